// The review: one link at a time, with its reasons; a key for each decision, and the list of what comes next.

import { reviewAddress } from "./address.js";
import { decide, exportReview, readLink, readReview, renewReview, undo } from "./api.js";
import { announce, byId, element, show } from "./dom.js";
import { downloadAs } from "./downloads.js";
import { reasonList } from "./reasons.js";
import { count, counted, percent } from "./words.js";

const REVIEWER = "cascader-reviewer";
const DECISIONS = { a: "accepted", r: "rejected", s: "skipped" };
const LEAST = [0, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9];
const FILES = { tsv: "text/tab-separated-values", nt: "application/n-triples" };
const POLL = 500; // milliseconds, while the list is being made

const idsOf = ({ head, relation, tail }) => ({ head: head.id, relation: relation.id, tail: tail.id });
const keyOf = (link) => JSON.stringify(idsOf(link));

export class ReviewView {
  /** `addressOf` returns the address of a question about an entity. */
  constructor(addressOf) {
    this.addressOf = addressOf;
    this.filter = { relation: "", least: 0 };
    this.queue = []; // the links that wait, the most probable first
    this.link = null; // the one in focus
    this.isBusy = true; // a key means nothing until a link is there to be seen
    this.reading = null; // an AbortController while reasons are awaited
    this.isShown = false;
    this.turn = 0; // of deciding: a list that was asked for in an earlier one is out of date
    this.listen();
  }

  get reviewer() {
    return byId("reviewer").value.trim() || "anonymous";
  }

  listen() {
    byId("reviewer").value = localStorage.getItem(REVIEWER) ?? "";
    byId("reviewer").addEventListener("change", () => {
      localStorage.setItem(REVIEWER, byId("reviewer").value.trim());
      this.act(() => this.load());
    });
    byId("least").replaceChildren(...LEAST.map((value) => element("option", { value }, value ? percent(value) : "any")));
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["of-relation", "least"]) byId(id).addEventListener("change", () => this.refilter());
    byId("keys").addEventListener("click", (event) => this.press(event.target.closest("button")?.dataset.key));
    document.addEventListener("keydown", (event) => this.hear(event));
    byId("renew").addEventListener("click", () => this.act(() => this.renew()));
    for (const format of Object.keys(FILES)) byId(`export-${format}`).addEventListener("click", () => this.act(() => this.save(format)));
  }

  /** Show the view with a filter; `signal` ends the wait for the list. */
  async display(filter, signal) {
    this.isShown = true;
    this.filter = filter;
    byId("least").value = String(LEAST.includes(filter.least) ? filter.least : 0);
    document.title = "Review – cascader";
    await this.load(signal);
  }

  hide() {
    this.isShown = false;
    this.isBusy = true;
    this.reading?.abort();
  }

  /** Say that the list could not be read, with a way to try again. */
  showProblem(error) {
    byId("link-title").textContent = "Something went wrong";
    const again = element("button", { type: "button", class: "quiet", onclick: () => this.act(() => this.load()) }, "Try again");
    byId("link-about").replaceChildren(element("p", { class: "problem" }, error.message), again);
    byId("link-reasons").replaceChildren();
    show(byId("keys"), false);
    announce(error.message);
  }

  // The list.

  /** Read the list, waiting until it is made, and put a link in focus: the one that was, or the first. */
  async load(signal) {
    this.isBusy = true;
    let found = await this.read(signal);
    while (!found.is_ready) {
      this.showMaking(found);
      await new Promise((resolve) => setTimeout(resolve, POLL));
      if (signal?.aborted || !this.isShown) return;
      found = await this.read(signal);
    }
    if (signal?.aborted) return;
    this.showPart(found);
    const at = history.state?.at;
    this.focus(this.queue.find((link) => keyOf(link) === at) ?? this.queue[0] ?? null);
  }

  read(signal) {
    return readReview({ ...this.filter, reviewer: this.reviewer }, signal);
  }

  showPart(found) {
    this.part = found;
    this.queue = found.links;
    this.showCounts(found.counts, found.waiting);
    const options = found.relations.filter(({ id, count: number }) => number > 0 || id === this.filter.relation);
    const all = options.reduce((sum, { count: number }) => sum + number, 0);
    byId("of-relation").replaceChildren(
      element("option", { value: "" }, `All relations (${count(all)})`),
      ...options.map(({ id, name, count: number }) => element("option", { value: id }, `${name} (${count(number)})`)),
    );
    byId("of-relation").value = this.filter.relation;
    const notes = [...found.notes, ...(found.is_read_only ? ["This server is read-only: it takes no decisions."] : [])];
    byId("review-note").textContent = notes.join(" ");
    show(byId("review-note"), notes.length > 0);
    for (const button of byId("keys").children) button.disabled = found.is_read_only;
    byId("renew").textContent = `Make the list again: ${counted(found.decided_since, "decision")} since`;
    show(byId("renew"), found.decided_since > 0);
  }

  showCounts({ accepted, rejected, skipped }, waiting) {
    byId("tally").textContent = [
      `${count(waiting)} to review`,
      `${count(accepted)} accepted`,
      `${count(rejected)} rejected`,
      `${count(skipped)} skipped by you`,
    ].join(" · ");
  }

  showMaking({ questions, question_count: total }) {
    const bar = element("progress", { max: Math.max(total, 1), value: questions, "aria-label": "Questions asked" });
    byId("link-title").textContent = "The list is being made";
    byId("link-about").replaceChildren(element("p", { class: "note" }, `${count(questions)} of ${counted(total, "question")} asked.`), bar);
    byId("link-reasons").replaceChildren();
    byId("queue").replaceChildren();
    show(byId("keys"), false);
  }

  showQueue() {
    const items = this.queue.map((link) => {
      const isHere = this.link !== null && keyOf(link) === keyOf(this.link);
      const words = [link.head.name, " ", element("span", { class: "relation" }, link.relation.name), " ", link.tail.name];
      const button = element(
        "button",
        { type: "button", "aria-current": isHere ? "true" : null, onclick: () => this.focus(link, { isChosen: true }) },
        element("span", { class: "words" }, ...words),
        element("span", { class: "number" }, percent(link.probability)),
      );
      return element("li", {}, button);
    });
    byId("queue").replaceChildren(...items);
  }

  // The link in focus.

  /** Put a link in focus; a reload finds it again. */
  focus(link, { isChosen = false } = {}) {
    this.link = link;
    history.replaceState({ ...history.state, at: link ? keyOf(link) : null }, "");
    this.showQueue();
    show(byId("keys"));
    if (link === null) this.showEnd();
    else this.showLink(link);
    this.isBusy = false;
    if (isChosen) byId("link-title").focus();
  }

  showEnd() {
    byId("link-title").textContent = "Nothing is left to review here";
    const text = "Choose another relation or a lower probability, or make the list again, now that more is known.";
    byId("link-about").replaceChildren(element("p", { class: "note" }, text));
    byId("link-reasons").replaceChildren();
    announce("Nothing is left to review here.");
  }

  showLink(link) {
    const { head, relation, tail, probability } = link;
    const end = (entity) => element("a", { class: "name", href: this.addressOf(entity), "data-entity": entity.id }, entity.name);
    byId("link-title").replaceChildren(end(head), " ", element("span", { class: "relation" }, relation.name), " ", end(tail));
    const texts = [head, tail].filter(({ description }) => description).map(({ name, description }) => {
      return element("p", { class: "description" }, element("b", {}, name), ` ${description}`);
    });
    byId("link-about").replaceChildren(element("p", { class: "chance" }, `${percent(probability)} probable`), ...texts);
    announce(`${head.name} ${relation.name} ${tail.name}, ${percent(probability)}`);
    this.showReasons(link);
  }

  async showReasons(link) {
    this.reading?.abort();
    this.reading = new AbortController();
    const { signal } = this.reading;
    byId("link-reasons").replaceChildren(element("p", { class: "note" }, "Asking why…"));
    try {
      const found = await readLink(idsOf(link), signal);
      if (signal.aborted) return;
      const nothing = element("p", { class: "note" }, "No tier gives a reason in words: it is the scores alone.");
      byId("link-reasons").replaceChildren(found.reasons.length > 0 ? reasonList(found.reasons, found, this.addressOf) : nothing);
    } catch (error) {
      if (signal.aborted) return;
      byId("link-reasons").replaceChildren(element("p", { class: "problem" }, error.message));
    }
  }

  // Deciding.

  hear(event) {
    const isTyping = event.target.closest?.("input, select, textarea, dialog") !== null;
    if (!this.isShown || isTyping || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    this.press(event.key.toLowerCase());
  }

  press(key) {
    if (this.isBusy || this.part?.is_read_only) return;
    if (key in DECISIONS && this.link !== null) this.act(() => this.decide(DECISIONS[key]));
    else if (key === "u") this.act(() => this.undo());
  }

  async decide(decision) {
    const { link } = this;
    this.turn += 1;
    const { counts } = await decide({ ...idsOf(link), decision, reviewer: this.reviewer });
    const place = this.queue.findIndex((each) => keyOf(each) === keyOf(link));
    const left = this.queue.filter((each) => keyOf(each) !== keyOf(link));
    this.tell(`${link.head.name} ${link.relation.name} ${link.tail.name}: ${decision}.`);
    this.part.waiting = Math.max(0, this.part.waiting - 1);
    this.showCounts(counts, this.part.waiting);
    this.queue = left;
    this.focus(left[Math.max(place, 0)] ?? left[0] ?? null);
    await this.refresh();
  }

  async undo() {
    const undone = await undo(this.reviewer);
    if (undone.decision === null) {
      this.tell("There is nothing to undo.");
      this.isBusy = false;
      return;
    }
    this.tell(`${undone.head.name} ${undone.relation.name} ${undone.tail.name}: no longer ${undone.decision}.`);
    const link = await readLink(idsOf(undone)).catch(() => null); // another reviewer may have decided it
    await this.refresh();
    const own = link && !this.queue.some((each) => keyOf(each) === keyOf(link));
    if (own) this.queue.unshift(link);
    this.focus(link ?? this.link);
  }

  /** Read what waits now, with the decisions of others, and keep the link in focus. */
  async refresh() {
    const { turn } = this;
    const found = await this.read();
    if (!found.is_ready || !this.isShown || turn !== this.turn) return;
    this.showPart(found);
    if (this.link === null && this.queue.length > 0) this.focus(this.queue[0]);
    else this.showQueue();
  }

  tell(text) {
    byId("last").textContent = text;
  }

  async renew() {
    await renewReview();
    history.replaceState({ ...history.state, at: null }, "");
    await this.load();
  }

  refilter() {
    this.filter = { relation: byId("of-relation").value, least: Number(byId("least").value) };
    history.replaceState({ ...history.state, at: null }, "", reviewAddress(this.filter));
    this.act(() => this.load());
  }

  async save(format) {
    downloadAs(`decisions.${format}`, await exportReview(format), FILES[format]);
    this.isBusy = false;
  }

  /** Do something that the server has a part in, one at a time, and say what went wrong. */
  async act(action) {
    this.isBusy = true;
    try {
      await action();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.tell(error.message);
      announce(error.message);
      this.isBusy = false;
    }
  }
}
