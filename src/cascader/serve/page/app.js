// The page: an address becomes a question, the question becomes answers, each answer is an address again.

import { addressOf, asksTheSame, bodyOf, questionOf } from "./address.js";
import { AnswerList, skeleton } from "./answers.js";
import { Problem, answer, onMissingToken, readEntity, readGraph } from "./api.js";
import { BudgetSlider, movesInWords, movesSince } from "./budget.js";
import { announce, byId, element, isForBrowser, show } from "./dom.js";
import { asJson, asTable, download } from "./downloads.js";
import { QuestionForm } from "./form.js";
import { colourOf } from "./picture.js";
import { tellTheme } from "./theming.js";
import { askForToken } from "./token.js";
import { Trail } from "./trail.js";
import { counted, ends, kindOf, percent, sentence } from "./words.js";

const STEP = 10; // answers that "More answers" adds
const MOST_SUGGESTIONS = 8;

class Page {
  constructor(graph) {
    this.graph = graph;
    this.shown = null; // {question, response} that stands on the page
    this.asking = null; // an AbortController while an answer is awaited
    this.entities = new Map(); // descriptions that were fetched, by what was asked for
    this.trail = new Trail();
    this.form = new QuestionForm(graph, (fields) => this.go({ ...this.question, ...emptyNew(fields), ...fields }));
    this.slider = new BudgetSlider(graph, (pairs) => this.go({ ...this.question, pairs }, { isSame: true }));
    const more = () => this.go({ ...this.question, top: Math.min(100, this.question.top + STEP) }, { isSame: true });
    this.list = new AnswerList(graph, (entity) => addressOf(this.about(entity.id)), more);
    this.listen();
    this.introduce();
  }

  /** The question in the address bar. */
  get question() {
    return questionOf(location.search);
  }

  /** The question to go on with about another entity: the server says which relations make sense. */
  about(entity) {
    return { ...this.question, entity, isNew: false, name: "", description: "", relation: "", side: "tail", top: STEP };
  }

  listen() {
    addEventListener("popstate", () => this.display());
    document.addEventListener("click", (event) => this.follow(event));
    byId("with-known").addEventListener("change", (event) => {
      this.go({ ...this.question, withKnown: event.target.checked }, { isSame: true });
    });
    byId("whole-text").addEventListener("click", (event) => {
      const isCut = byId("anchor-text").classList.toggle("cut");
      event.target.setAttribute("aria-expanded", String(!isCut));
      event.target.textContent = isCut ? "Read on" : "Read less";
    });
    byId("as-tsv").addEventListener("click", () => this.save(asTable, "tsv", "text/tab-separated-values"));
    byId("as-json").addEventListener("click", () => this.save(asJson, "json", "application/json"));
  }

  introduce() {
    const { graph } = this;
    const facts = Object.values(graph.triple_counts).reduce((sum, number) => sum + number, 0);
    byId("graph-name").textContent = graph.name;
    byId("graph-facts").textContent = [
      counted(graph.entity_count, "entity", "entities"),
      counted(graph.relation_count, "relation"),
      counted(facts, "fact"),
    ].join(" · ");
    show(byId("report"), graph.has_report);
    const places = graph.tiers.map((tier, place) => element("span", { class: `tier ${colourOf(place)}` }, tier.name));
    byId("legend").replaceChildren("Rank after ", ...places.flatMap((each, i) => (i > 0 ? [" → ", each] : [each])));
  }

  // From question to answers.

  /** Ask another question; one that `isSame` but for what may be read takes the place of the present one. */
  go(question, { isSame = false, moveFocus = false } = {}) {
    if (isSame) history.replaceState(history.state, "", addressOf(question));
    else history.pushState({ trail: this.trail.before(question) }, "", addressOf(question));
    return this.display({ moveFocus });
  }

  /** A link within the page is a question: ask it without leaving. */
  follow(event) {
    const link = event.target.closest("a[href]");
    if (!link || isForBrowser(event) || link.origin !== location.origin || link.pathname !== "/" || link.hash) return;
    event.preventDefault();
    const question = questionOf(link.search);
    if (link.dataset.crumb) history.pushState({ trail: this.trail.until(Number(link.dataset.crumb)) }, "", link.href);
    else history.pushState({ trail: link.search ? this.trail.before(question) : [] }, "", link.href);
    this.display({ moveFocus: true });
  }

  /** Show what the address bar asks. */
  async display({ moveFocus = false } = {}) {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    try {
      const question = this.question;
      if (!question.entity && !question.isNew) this.showStart();
      else await this.showAnswers(question, asking.signal);
    } catch (error) {
      if (error.name === "AbortError" || asking.signal.aborted) return;
      await this.showProblem(error, asking.signal);
    }
    if (asking.signal.aborted) return;
    byId("answers").setAttribute("aria-busy", "false");
    if (moveFocus) byId("answers-title").focus();
  }

  async showAnswers(asked, signal) {
    const isSame = this.shown !== null && asksTheSame(asked, this.shown.question);
    this.wait(isSame);
    const entity = asked.isNew ? null : await this.entity(asked.entity, signal);
    this.form.fill(asked, entity);
    const question = this.complete(asked, entity);
    this.slider.set(question.pairs);
    byId("with-known").checked = question.withKnown;
    const response = await answer(bodyOf(question), signal);
    if (signal.aborted) return;
    question.relation = response.question.relation.id;
    history.replaceState({ trail: this.trail.at(question, response.question.anchor.name) }, "", addressOf(question));
    this.trail.show();
    this.present(question, response);
  }

  /** The question with all that was left open; ids take the place of names. */
  complete(question, entity) {
    const found = { ...question, entity: entity ? entity.id : "" };
    return question.relation ? found : { ...found, ...this.form.suggested(this.shown?.question ?? question) };
  }

  async entity(id, signal) {
    if (!this.entities.has(id)) this.entities.set(id, await readEntity(id, signal));
    return this.entities.get(id);
  }

  present(question, response) {
    const { anchor, relation, side } = response.question;
    const earlier = this.shown;
    const isSame = earlier !== null && asksTheSame(question, earlier.question);
    if (!isSame) this.list.open.clear();
    const isComparable = isSame && earlier.question.withKnown === question.withKnown && earlier.question.pairs !== question.pairs;
    const moves = isComparable ? movesSince(earlier.response.answers, response.answers) : new Map();
    this.shown = { question, response };
    headline(anchor, relation, side);
    describeAnchor(anchor.description);
    this.slider.showCost(response.cost);
    byId("moved").textContent = isComparable ? movesInWords(moves) : "";
    this.list.show(response, moves, question.top);
    show(byId("toolbar"));
    show(byId("with-known").parentElement, !question.isNew); // of a new entity, nothing is known
    this.noteProbabilities(response);
    announce(spoken(response, isComparable ? movesInWords(moves) : ""));
  }

  noteProbabilities({ question, answers }) {
    const reason = question.is_new
      ? "No probabilities: they can be learnt for entities that were trained, and not for new ones. The order stands."
      : "No probabilities: the graph has no valid triples to learn them on. The order stands.";
    byId("note").textContent = reason;
    show(byId("note"), answers.length > 0 && answers.every(({ probability }) => probability === null));
  }

  save(write, suffix, type) {
    if (this.shown) download(this.shown.response, write(this.shown.response), suffix, type);
  }

  // Other states.

  wait(isSame) {
    byId("answers").setAttribute("aria-busy", "true");
    if (isSame) return; // what is there stays, dimmed, until it is reranked
    byId("answers-title").textContent = "";
    describeAnchor("");
    this.clear(skeleton());
  }

  clear(...instead) {
    for (const id of ["effort", "toolbar", "note"]) show(byId(id), false);
    byId("listing").replaceChildren(...instead);
  }

  showStart() {
    this.shown = null;
    this.form.fill(this.question, null);
    this.trail.show();
    document.title = `${this.graph.name} – cascader`;
    byId("answers-title").textContent = "Which links does the graph lack?";
    describeAnchor(
      "Choose an entity and a relation. Every answer says how probable it is, and what each tier made of it.",
    );
    const examples = this.graph.examples.map(({ entity, relation, side }) => {
      const address = addressOf({ ...this.question, entity: entity.id, relation: relation.id, side });
      return element("li", {}, element("a", { href: address }, ...phrase(entity, relation, side)));
    });
    this.clear(
      ...(examples.length > 0 ? [element("h2", {}, "For example"), element("ul", { class: "examples" }, ...examples)] : []),
      element("h2", {}, "The tiers of this run, from the quick one to the one that reads most closely"),
      element("ol", { class: "tiers" }, ...this.graph.tiers.map(tierLine)),
    );
  }

  async showProblem(error, signal) {
    const meant = await this.meant(error.suggestions ?? [], signal);
    if (signal.aborted) return;
    if (!(error instanceof Problem)) console.error(error);
    this.shown = null;
    this.trail.show(false);
    document.title = "cascader";
    if (error.status === 404) this.form.fill({ ...this.question, relation: "" }, this.entities.get(this.question.entity) ?? null);
    byId("answers-title").textContent = error.status === 404 ? "No such name" : "That did not work";
    describeAnchor("");
    const message = element("p", { class: "problem" }, error instanceof Problem ? error.message : `The page failed: ${error.message}`);
    const again = element("button", { type: "button", class: "quiet", onclick: () => this.display({ moveFocus: true }) }, "Try again");
    this.clear(message, ...(meant.length > 0 ? [element("h2", {}, "Did you mean"), element("ul", { class: "meant" }, ...meant)] : [again]));
    announce(error.message);
    byId("answers-title").focus();
  }

  /** Buttons that ask again with what the graph has; ids say little, so names and descriptions go with them. */
  async meant(ids, signal) {
    const relation = (id) => this.graph.relations.find((each) => each.id === id);
    const described = async (id) => relation(id) ?? this.entity(id, signal).catch(() => ({ id, name: id }));
    const found = await Promise.all(ids.slice(0, MOST_SUGGESTIONS).map(described));
    return found.map(({ id, name, description }) => {
      const instead = relation(id) ? { ...this.question, relation: id } : this.about(id);
      const ask = () => this.go(instead, { moveFocus: true });
      return element(
        "li",
        {},
        element("button", { type: "button", class: "quiet", onclick: ask }, name),
        id === name ? null : element("span", { class: "id" }, id),
        description ? element("p", { class: "description" }, description) : null,
      );
    });
  }
}

/** A question about an entity of the graph forgets the new one. */
const emptyNew = (fields) => (fields.isNew ? {} : { name: "", description: "", top: STEP });

function phrase(anchor, relation, side) {
  const [head, tail] = ends(anchor.name, side);
  const end = (text) => element("span", { class: text === "?" ? "asked" : "given" }, text);
  return [end(head), " ", element("span", { class: "relation" }, relation.name), " ", end(tail)];
}

function tierLine(tier, place) {
  const kind = element("span", { class: "kind" }, `${kindOf(tier)}, ${counted(tier.parameters, "parameter")}`);
  return element("li", {}, element("span", { class: `tier ${colourOf(place)}` }, tier.name), " ", kind);
}

/** A long text shows its beginning; a button shows the rest. */
function describeAnchor(text) {
  const described = byId("anchor-text");
  const button = byId("whole-text");
  described.textContent = text;
  described.classList.add("cut");
  button.setAttribute("aria-expanded", "false");
  button.textContent = "Read on";
  show(button, described.scrollHeight > described.clientHeight + 1);
}

function headline(anchor, relation, side) {
  byId("answers-title").replaceChildren(...phrase(anchor, relation, side));
  document.title = `${sentence(anchor.name, relation.name, side)} – cascader`;
}

function spoken({ question, answers }, moved) {
  const asked = sentence(question.anchor.name, question.relation.name, question.side);
  const best = answers[0];
  if (!best) return `${asked}: no answer.`;
  const probability = best.probability === null ? "" : `, ${percent(best.probability)}`;
  return `${asked}: ${counted(answers.length, "answer")}. First: ${best.name}${probability}. ${moved}`;
}

async function start() {
  tellTheme();
  onMissingToken(askForToken);
  byId("answers").setAttribute("aria-busy", "true");
  byId("listing").replaceChildren(skeleton());
  try {
    const page = new Page(await readGraph());
    await page.display();
  } catch (error) {
    byId("answers").setAttribute("aria-busy", "false");
    byId("answers-title").textContent = "That did not work";
    byId("listing").replaceChildren(
      element("p", { class: "problem" }, error.message),
      element("button", { type: "button", class: "quiet", onclick: () => location.reload() }, "Try again"),
    );
  }
}

start();
