// The page: an address is a question, a question gets answers, and each answer links to the next question.

import { addressOf, asksTheSame, bodyOf, questionOf, reviewOf } from "./address.js";
import { AnswerList } from "./answers.js";
import { Problem, answer, onMissingToken, readEntity, readGraph } from "./api.js";
import { BudgetSlider, movesInWords, movesSince } from "./budget.js";
import { announce, byId, element, isForBrowser, show } from "./dom.js";
import { asJson, asTable, download } from "./downloads.js";
import { QuestionForm } from "./form.js";
import { describeAnchor, entitle, headline, spoken, toggleText } from "./headline.js";
import { colorOf } from "./picture.js";
import { ReviewView } from "./review.js";
import { problemScreen, skeleton, startScreen, suggestion } from "./screens.js";
import { tellTheme } from "./theming.js";
import { askForToken } from "./token.js";
import { Trail } from "./trail.js";
import { counted } from "./words.js";

const STEP = 10; // answers that "More answers" adds
const MOST_SUGGESTIONS = 8;

class Page {
  constructor(graph) {
    this.graph = graph;
    this.shown = null; // the {question, response} on the page
    this.asking = null; // an AbortController while waiting for an answer
    this.entities = new Map(); // fetched descriptions, by id or name
    this.trail = new Trail();
    this.form = new QuestionForm(graph, (fields) => this.go({ ...this.question, ...emptyNew(fields), ...fields }));
    this.slider = new BudgetSlider(graph, (pairs) => this.go({ ...this.question, pairs }, { isSame: true }));
    const more = () => this.go({ ...this.question, top: Math.min(100, this.question.top + STEP) }, { isSame: true });
    const address = (entity, fields = {}) => addressOf({ ...this.about(entity.id), ...fields });
    this.list = new AnswerList(graph, address, more);
    this.review = new ReviewView(address);
    this.listen();
    this.introduce();
  }

  /** The question in the address bar. */
  get question() {
    return questionOf(location.search);
  }

  /** The next question, about another entity: the server says which relations make sense. */
  about(entity) {
    return { ...this.question, entity, isNew: false, name: "", description: "", relation: "", side: "tail", top: STEP };
  }

  listen() {
    addEventListener("popstate", () => this.display({ moveFocus: true, preventScroll: true }));
    document.addEventListener("click", (event) => this.follow(event));
    byId("with-known").addEventListener("change", (event) => {
      this.go({ ...this.question, withKnown: event.target.checked }, { isSame: true });
    });
    byId("whole-text").addEventListener("click", toggleText);
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
    const places = graph.tiers.map((tier, place) => element("span", { class: `tier ${colorOf(place)}` }, tier.name));
    byId("legend").replaceChildren("Rank after ", ...places.flatMap((each, i) => (i > 0 ? [" → ", each] : [each])));
  }

  // From question to answers.

  /** Ask another question; if it `isSame` except for its options, it replaces the current history entry. */
  go(question, { isSame = false, moveFocus = false } = {}) {
    if (isSame) history.replaceState(history.state, "", addressOf(question));
    else history.pushState({ trail: this.trail.before(question) }, "", addressOf(question));
    return this.display({ moveFocus });
  }

  /** A link within the page is a question: ask it without reloading. */
  follow(event) {
    const at = event.target.closest("a[href]");
    const link = at && new URL(at.getAttribute("href"), location.href); // a link of a picture has no such parts
    if (!link || isForBrowser(event) || link.origin !== location.origin || link.pathname !== "/" || link.hash) return;
    event.preventDefault();
    const question = questionOf(link.search);
    if (at.dataset.crumb) history.pushState({ trail: this.trail.until(Number(at.dataset.crumb)) }, "", link.href);
    else history.pushState({ trail: link.search ? this.trail.before(question) : [] }, "", link.href);
    this.display({ moveFocus: true });
  }

  /** Show the questions or the review. */
  switchTo(isReview) {
    for (const id of ["question", "answers"]) show(byId(id), !isReview);
    show(byId("review"), isReview);
    if (isReview) show(byId("trail"), false);
    else this.review.hide();
    for (const [id, isHere] of [["view-ask", !isReview], ["view-review", isReview]]) {
      if (isHere) byId(id).setAttribute("aria-current", "page");
      else byId(id).removeAttribute("aria-current");
    }
    byId("skip").setAttribute("href", isReview ? "#link-title" : "#answers-title");
    byId("skip").textContent = isReview ? "Skip to the link" : "Skip to the answers";
  }

  async displayReview(review, moveFocus, signal) {
    try {
      await this.review.display(review, signal);
    } catch (error) {
      if (!signal.aborted) this.review.showProblem(error);
    }
    if (moveFocus && !signal.aborted) byId("review-title").focus();
  }

  /** Answer the question in the address bar, or show the review that it asks for. */
  async display({ moveFocus = false, preventScroll = false } = {}) {
    this.asking?.abort();
    const asking = new AbortController();
    this.asking = asking;
    const review = reviewOf(location.search);
    this.switchTo(review !== null);
    if (review !== null) return this.displayReview(review, moveFocus, asking.signal);
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
    if (moveFocus) byId("answers-title").focus({ preventScroll });
  }

  async showAnswers(asked, signal) {
    const isSame = this.shown !== null && asksTheSame(asked, this.shown.question);
    this.wait(isSame);
    const entity = asked.isNew ? null : await this.entity(asked.entity, signal);
    this.form.fill(asked, entity);
    const question = this.complete(asked, entity);
    this.slider.set(question.pairs);
    byId("with-known").checked = question.withKnown;
    const relation = this.graph.relations.find(({ id }) => id === question.relation);
    if (relation) headline(entity ?? question, relation, question.side); // shown early, because the answers may take a while
    const response = await answer(bodyOf(question), signal);
    if (signal.aborted) return;
    question.relation = response.question.relation.id;
    history.replaceState({ trail: this.trail.at(question, response.question.anchor.name) }, "", addressOf(question));
    this.trail.show();
    this.present(question, response);
  }

  /** The question with its missing fields filled in, and ids instead of names. */
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
    show(byId("with-known").parentElement, !question.isNew); // nothing is known about a new entity
    this.noteProbabilities(response);
    announce(spoken(response, isComparable ? movesInWords(moves) : ""));
  }

  noteProbabilities({ question, answers }) {
    const reason = question.is_new
      ? "No probabilities: they are calibrated on entities of the graph, not for new ones. The ranking is still valid."
      : "No probabilities: the graph has no valid triples to calibrate them on. The ranking is still valid.";
    byId("note").textContent = reason;
    show(byId("note"), answers.length > 0 && answers.every(({ probability }) => probability === null));
  }

  save(write, suffix, type) {
    if (this.shown) download(this.shown.response, write(this.shown.response), suffix, type);
  }

  // Other states.

  wait(isSame) {
    byId("answers").setAttribute("aria-busy", "true");
    if (isSame) return; // the old answers stay, dimmed, until the new ranking arrives
    entitle("", document.title);
    describeAnchor("");
    announce("Looking for answers.");
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
    entitle("Which links are missing?", `${this.graph.name} – cascader`);
    describeAnchor(
      "Choose an entity and a relation. Every answer comes with its probability and the reasons for it.",
    );
    this.clear(...startScreen(this.graph, (fields) => addressOf({ ...this.question, ...fields })));
  }

  async showProblem(error, signal) {
    const meant = await this.meant(error.suggestions ?? [], signal);
    if (signal.aborted) return;
    if (!(error instanceof Problem)) console.error(error); // a bug of the page itself
    this.shown = null;
    this.trail.show(false);
    if (error.status === 404) this.form.fill({ ...this.question, relation: "" }, this.entities.get(this.question.entity) ?? null);
    entitle(error.status === 404 ? "No such name" : "Something went wrong", "cascader");
    describeAnchor("");
    this.clear(...problemScreen(error, meant, () => this.display({ moveFocus: true })));
    announce(error.message);
    byId("answers-title").focus();
  }

  /** Buttons that ask again with a name of the graph, shown with their ids and descriptions. */
  async meant(names, signal) {
    const isEntityKnown = this.question.isNew || this.entities.has(this.question.entity); // then the relation is unknown
    const relation = (name) => isEntityKnown && this.graph.relations.find((each) => [each.id, each.name].includes(name));
    const described = async (name) => relation(name) || this.entity(name, signal).catch(() => ({ id: name, name }));
    const found = await Promise.all(names.slice(0, MOST_SUGGESTIONS).map(described));
    return found.map((named) => {
      const instead = relation(named.id) ? { ...this.question, relation: named.id } : this.about(named.id);
      return suggestion(named, () => this.go(instead, { moveFocus: true }));
    });
  }
}

/** A question about an entity of the graph drops the fields of a new one. */
const emptyNew = (fields) => (fields.isNew ? {} : { name: "", description: "", top: STEP });

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
    entitle("Something went wrong", "cascader");
    byId("listing").replaceChildren(...problemScreen(error, [], () => location.reload()));
  }
}

start();
