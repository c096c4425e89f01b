// The question as a form: the entity, the relation, and the side to predict.

import { byId, element, show } from "./dom.js";
import { EntityBox } from "./combobox.js";
import { counted, sentence } from "./words.js";

/** The form; `ask` is called with the fields of a question, whenever one is complete. */
export class QuestionForm {
  constructor(graph, ask) {
    this.graph = graph;
    this.ask = ask;
    this.entity = null; // as the server describes it; null if none is chosen or it is new
    this.options = []; // each (relation, side) that can be asked, the most sensible first
    this.box = new EntityBox((entity) => this.ask({ entity: entity.id, isNew: false, relation: "" }));
    this.form = byId("question");
    this.relation = byId("relation");
    this.form.addEventListener("submit", (event) => this.submit(event));
    this.relation.addEventListener("change", () => this.changeRelation());
    byId("sides").addEventListener("change", () => this.askAgain());
    this.form.elements.about.forEach((radio) => radio.addEventListener("change", () => this.changeAbout()));
    for (const id of ["new-name", "new-description"]) byId(id).addEventListener("input", () => this.nameSides());
    this.limitNew();
  }

  get isNew() {
    return this.form.elements.about.value === "new";
  }

  /** Show a question from elsewhere: an address, a link, the history. */
  fill(question, entity) {
    this.form.elements.about.value = question.isNew ? "new" : "graph";
    this.entity = entity;
    if (question.isNew) {
      byId("new-name").value = question.name;
      byId("new-description").value = question.description;
    } else this.box.text = entity ? entity.name : question.entity;
    byId("entity-hint").textContent = entity && entity.id !== entity.name ? entity.id : "";
    this.showAbout();
    this.listRelations();
    if (question.relation) this.select(question.relation, question.side);
  }

  /** The relation and side to start with; those of `question` if they make sense for the entity. */
  suggested(question) {
    const fits = (option) => option.id === question.relation && option.side === question.side;
    const kept = this.options.find((option) => fits(option) && (option.facts > 0 || option.share > 0));
    const { id, side } = kept ?? this.options[0];
    return { relation: id, side };
  }

  // What it is about.

  limitNew() {
    const radio = [...this.form.elements.about].find((each) => each.value === "new");
    if (this.graph.reads_new) return;
    radio.disabled = true;
    radio.parentElement.title = "This run has no tier that can read the text of a new entity.";
  }

  changeAbout() {
    this.showAbout();
    this.entity = null;
    this.box.text = "";
    this.listRelations();
    (this.isNew ? byId("new-name") : this.box.field).focus();
  }

  showAbout() {
    show(byId("of-graph"), !this.isNew);
    show(byId("of-new"), this.isNew);
  }

  // The relation and the side.

  listRelations() {
    this.options = this.isNew ? everyOption(this.graph) : (this.entity?.relations ?? []);
    this.relation.replaceChildren(...groups(this.options));
    this.relation.disabled = this.options.length === 0;
    if (this.options.length > 0) this.select(this.options[0].id, this.options[0].side);
    else this.relation.append(element("option", {}, "Choose an entity first"));
    show(byId("sides"), this.options.length > 0);
  }

  select(relation, side) {
    this.relation.value = this.options.find((each) => each.id === relation || each.name === relation)?.id ?? "";
    this.form.elements.side.value = side;
    this.nameSides();
  }

  changeRelation() {
    const first = this.options.find((each) => each.id === this.relation.value);
    this.form.elements.side.value = first.side;
    this.nameSides();
    this.askAgain();
  }

  nameSides() {
    const anchor = this.isNew ? byId("new-name").value.trim() || "it" : (this.entity?.name ?? "");
    const chosen = this.relation.selectedOptions[0]?.dataset.name ?? "";
    for (const side of ["tail", "head"]) {
      const option = this.options.find((each) => each.id === this.relation.value && each.side === side);
      const facts = option?.facts ? element("small", {}, `${counted(option.facts, "known fact")}`) : "";
      byId(`side-${side}`).replaceChildren(sentence(anchor, chosen, side), " ", facts);
    }
  }

  // Asking.

  submit(event) {
    event.preventDefault();
    if (this.isNew) this.submitNew();
    else if (!this.box.text) this.box.field.focus();
    else if (this.entity && this.box.text === this.entity.name) this.askAgain();
    else {
      this.box.close();
      this.ask({ entity: this.box.text, isNew: false, relation: "" }); // by name: the server resolves it
    }
  }

  submitNew() {
    const name = byId("new-name");
    if (!name.value.trim()) {
      name.setCustomValidity("A new entity needs a name.");
      name.reportValidity();
      name.setCustomValidity("");
      name.focus();
    } else this.ask(this.fields());
  }

  /** Ask again after a change of relation or side, if there is an entity. */
  askAgain() {
    if (this.isNew ? byId("new-name").value.trim() : this.entity) this.ask(this.fields());
  }

  fields() {
    const about = this.isNew
      ? { entity: "", isNew: true, name: byId("new-name").value.trim(), description: byId("new-description").value.trim() }
      : { entity: this.entity.id, isNew: false, name: "", description: "" };
    return { ...about, relation: this.relation.value, side: this.form.elements.side.value };
  }
}

function everyOption(graph) {
  const ordered = [...graph.relations].sort((one, other) => other.count - one.count);
  return ordered.flatMap(({ id, name }) => ["tail", "head"].map((side) => ({ id, name, side, facts: 0, share: 0 })));
}

/** Each relation once, in the group of its more sensible side. */
function groups(options) {
  const firsts = options.filter((option, place) => options.findIndex((other) => other.id === option.id) === place);
  const parts = [
    ["Has known facts", firsts.filter(({ facts }) => facts > 0)],
    ["Similar entities have facts", firsts.filter(({ facts, share }) => facts === 0 && share > 0)],
    ["Other relations", firsts.filter(({ facts, share }) => facts === 0 && share === 0)],
  ].filter(([, members]) => members.length > 0);
  const listed = (members) => members.map(({ id, name }) => element("option", { value: id, "data-name": name }, name));
  if (parts.length === 1) return listed(parts[0][1]);
  return parts.map(([label, members]) => element("optgroup", { label }, ...listed(members)));
}
