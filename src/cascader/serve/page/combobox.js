// A search field with a list of matches: the ARIA combobox pattern, where focus never leaves the field.

import { announce, byId, debounced, element, show } from "./dom.js";
import { findEntities } from "./api.js";
import { count, counted } from "./words.js";

const LIMIT = 20;
const WAIT = 120;

/** Makes the field search; `choose` is called with the entity that was picked. */
export class EntityBox {
  constructor(choose) {
    this.field = byId("entity");
    this.list = byId("entity-list");
    this.choose = choose;
    this.entities = [];
    this.active = -1;
    this.searching = null;
    const search = debounced(() => this.search(), WAIT);
    this.field.addEventListener("input", search);
    this.field.addEventListener("keydown", (event) => this.press(event));
    this.field.addEventListener("blur", () => this.close());
    this.list.addEventListener("pointerdown", (event) => event.preventDefault()); // focus stays in the field
    this.list.addEventListener("click", (event) => this.click(event));
  }

  /** The text in the field. */
  get text() {
    return this.field.value.trim();
  }

  set text(value) {
    this.field.value = value;
    this.close();
  }

  async search() {
    this.searching?.abort();
    if (!this.text || document.activeElement !== this.field) return this.close();
    this.searching = new AbortController();
    try {
      const found = await findEntities(this.text, LIMIT, this.searching.signal);
      if (document.activeElement === this.field) this.open(found);
    } catch (error) {
      if (error.name !== "AbortError") this.say(error.message);
    }
    return undefined;
  }

  open({ entities, total }) {
    this.entities = entities;
    this.active = -1;
    this.field.removeAttribute("aria-activedescendant");
    if (entities.length === 0) {
      this.say(`Nothing in the graph matches “${this.text}”.`);
      return;
    }
    this.list.replaceChildren(...entities.map(option));
    if (total > entities.length) {
      this.list.append(element("li", { class: "more", role: "presentation" }, `${count(total - entities.length)} more: keep typing`));
    }
    this.list.scrollTop = 0;
    this.expand(true);
    announce(`${counted(total, "entity", "entities")} found.`);
  }

  say(text) {
    this.list.replaceChildren(element("li", { class: "more", role: "presentation" }, text));
    this.entities = [];
    this.expand(true);
    announce(text);
  }

  close() {
    this.searching?.abort();
    this.entities = [];
    this.expand(false);
  }

  expand(isOpen) {
    show(this.list, isOpen);
    this.field.setAttribute("aria-expanded", String(isOpen && this.entities.length > 0));
    if (!isOpen) this.field.removeAttribute("aria-activedescendant");
  }

  press(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (this.entities.length === 0) this.search();
      else this.activate(this.active + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter" && this.active >= 0 && this.entities.length > 0) {
      event.preventDefault();
      this.pick(this.active);
    } else if (event.key === "Escape") {
      if (this.list.hidden) this.field.value = "";
      this.close();
    }
  }

  activate(place) {
    const last = this.entities.length - 1;
    this.active = place > last ? 0 : place < 0 ? last : place;
    this.list.querySelectorAll("[role=option]").forEach((each, i) => each.setAttribute("aria-selected", String(i === this.active)));
    const chosen = byId(`entity-option-${this.active}`);
    this.field.setAttribute("aria-activedescendant", chosen.id);
    chosen.scrollIntoView({ block: "nearest" });
  }

  click(event) {
    const chosen = event.target.closest("[role=option]");
    if (chosen) this.pick(Number(chosen.dataset.place));
  }

  pick(place) {
    const entity = this.entities[place];
    this.text = entity.name;
    this.choose(entity);
  }
}

function option(entity, place) {
  return element(
    "li",
    { role: "option", id: `entity-option-${place}`, "aria-selected": "false", "data-place": String(place) },
    element("span", { class: "name" }, entity.name),
    " ",
    entity.id === entity.name ? null : element("span", { class: "id" }, entity.id),
    entity.description ? element("span", { class: "description" }, entity.description) : null,
  );
}
