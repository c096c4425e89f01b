// The ranked answers, and why each has its rank.

import { byId, element } from "./dom.js";
import { colorOf, rankPicture } from "./picture.js";
import { reasonList } from "./reasons.js";
import { count, counted, kindOf, movement, percent, weight } from "./words.js";

const SMALL = { width: 150, height: 62 };
const LARGE = { width: 340, height: 190, left: 84, right: 30, top: 18, bottom: 34, names: true };
const GLIDE = { duration: 350, easing: "cubic-bezier(.2, .7, .2, 1)" };

/** The list; `addressOf` returns the address of a question about an entity, `more` asks for more answers. */
export class AnswerList {
  constructor(graph, addressOf, more) {
    this.graph = graph;
    this.tiers = new Map(graph.tiers.map((tier) => [tier.name, tier]));
    this.places = new Map(graph.tiers.map((tier, place) => [tier.name, place]));
    this.addressOf = addressOf;
    this.more = more;
    this.open = new Set(); // ids of the answers whose explanations are open
    this.listing = byId("listing");
  }

  /** Show answers; `moves` says, by id, how each has moved since the last ranking. */
  show(response, moves, top) {
    const before = this.positions();
    const hadFocus = this.listing.contains(document.activeElement);
    const { answers } = response;
    const worst = Math.max(10, ...answers.flatMap((answer) => answer.trace.map((step) => step.rank)));
    const list = element("ol", { class: "ranking" });
    list.append(...answers.map((answer) => this.row(answer, response, worst, moves.get(answer.id))));
    this.listing.replaceChildren(...this.around(list, response, top));
    if (hadFocus) this.focusAt(before.size); // on the first new answer, if more were asked for
    this.glide(before);
  }

  focusAt(place) {
    const links = this.listing.querySelectorAll(".answer .name");
    links[Math.min(place, links.length - 1)]?.focus();
  }

  around(list, { answers, known, known_count: knownCount, question }, top) {
    const parts = [];
    if (answers.length > 0) parts.push(list);
    else parts.push(element("p", { class: "note" }, "The graph already has every possible answer."));
    if (answers.length >= top && top < 100) {
      parts.push(element("button", { type: "button", class: "quiet more", id: "more", onclick: this.more }, "More answers"));
    }
    if (known.length > 0) parts.push(this.known(known, knownCount ?? known.length));
    else if (!question.is_new) parts.push(element("p", { class: "note" }, "The graph has no answer to this question yet."));
    return parts;
  }

  known(known, knownCount) {
    const items = known.map((entity) =>
      element("li", {}, this.link(entity), entity.id === entity.name ? null : element("span", { class: "id" }, entity.id)),
    );
    const title = `Already in the graph: ${counted(knownCount, "fact")}`;
    const left = knownCount - known.length;
    if (left > 0) items.push(element("li", { class: "id" }, `and ${count(left)} more`));
    return element(
      "details",
      { class: "known", open: known.length <= 12 },
      element("summary", {}, element("h2", {}, title)),
      element("ul", {}, ...items),
    );
  }

  link(entity) {
    return element("a", { class: "name", href: this.addressOf(entity), "data-entity": entity.id }, entity.name);
  }

  // One answer.

  row(answer, response, worst, move) {
    const panelId = `why-${answer.rank}`;
    const panel = element("div", { class: "reasons", id: panelId, hidden: true });
    const button = element(
      "button",
      { type: "button", class: "quiet why", "aria-expanded": "false", "aria-controls": panelId },
      "Why",
      element("span", { class: "unseen" }, ` ${answer.name}`),
    );
    const toggle = (isOpen) => {
      button.setAttribute("aria-expanded", String(isOpen));
      panel.hidden = !isOpen;
      if (isOpen && !panel.hasChildNodes()) panel.append(...this.reasons(answer, response, worst));
      this.open[isOpen ? "add" : "delete"](answer.id);
    };
    button.addEventListener("click", () => toggle(panel.hidden));
    if (this.open.has(answer.id)) toggle(true);
    const what = element(
      "div",
      { class: "what" },
      element("h2", {}, this.link(answer), " ", ...tags(answer, response, move)),
      answer.id === answer.name ? null : element("span", { class: "id" }, answer.id),
      answer.description ? element("p", { class: "description" }, answer.description) : null,
    );
    const picture = element("div", { class: "picture" }, rankPicture(answer.trace, worst, this.places, SMALL));
    const number = element("span", { class: "place" }, element("span", { class: "unseen" }, "Rank "), count(answer.rank));
    const line = element("div", { class: "line" }, number, what, probability(answer), picture, button);
    return element("li", { class: answer.is_known ? "answer is-known" : "answer", "data-id": answer.id }, line, panel);
  }

  reasons(answer, { read, question }, worst) {
    const link = linkOf(question, answer);
    const grounds = answer.reasons.length > 0 ? [reasonList(answer.reasons, link, this.addressOf)] : [];
    const steps = answer.trace.map((step, place) => {
      const before = place === 0 ? null : answer.trace[place - 1].rank;
      const tier = this.tiers.get(step.tier);
      return element(
        "li",
        { class: colorOf(this.places.get(step.tier) ?? 0) },
        element("p", {}, element("b", {}, step.tier), " ", element("span", { class: "kind" }, kindOf(tier))),
        element("p", {}, movement(before, step, this.graph.entity_count)),
        element("p", { class: "numbers" }, weight(step)),
      );
    });
    const figure = element(
      "figure",
      {},
      rankPicture(answer.trace, worst, this.places, LARGE),
      element("figcaption", {}, "Rank after each tier, on a logarithmic scale."),
    );
    const texts = [
      ["The question, as the language models read it", read.question],
      ["This answer, as they read it", answer.read],
    ].filter(([, text]) => read.of && text); // of: the tiers that read
    return [
      ...grounds,
      element("div", { class: "trace" }, figure, element("ol", { class: "steps" }, ...steps)),
      ...texts.map(([title, text]) => element("div", { class: "text" }, element("h3", {}, title), element("blockquote", {}, text))),
    ];
  }

  // Movement: each answer glides from its old place.

  positions() {
    const rows = [...this.listing.querySelectorAll(".answer")];
    return new Map(rows.map((row) => [row.dataset.id, row.getBoundingClientRect().top]));
  }

  glide(before) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || before.size === 0) return;
    for (const row of this.listing.querySelectorAll(".answer")) {
      const from = before.get(row.dataset.id);
      const by = from === undefined ? 0 : from - row.getBoundingClientRect().top;
      if (by !== 0) row.animate([{ transform: `translateY(${by}px)` }, { transform: "none" }], GLIDE);
      else if (from === undefined) row.animate([{ opacity: 0 }, { opacity: 1 }], GLIDE);
    }
  }
}

/** The link that an answer would add to the graph. */
function linkOf({ anchor, relation, side }, answer) {
  const [head, tail] = side === "tail" ? [anchor, answer] : [answer, anchor];
  return { head, relation, tail, side };
}

function tags(answer, { question }, move) {
  const found = [];
  if (answer.id === question.anchor.id) found.push(element("span", { class: "tag" }, "itself"));
  if (answer.is_known) found.push(element("span", { class: "tag" }, "known"));
  if (move === "new") found.push(element("span", { class: "tag up" }, "new here"));
  else if (move > 0) found.push(element("span", { class: "tag up", title: `${move} up` }, `▲ ${move}`));
  else if (move < 0) found.push(element("span", { class: "tag down", title: `${-move} down` }, `▼ ${-move}`));
  return found;
}

function probability(answer) {
  const has = answer.probability !== null && answer.probability !== undefined;
  const fill = element("span", { class: "fill" });
  if (has) fill.style.setProperty("--share", String(answer.probability));
  return element(
    "div",
    { class: "probability", title: has ? null : "No probability: see the note above." },
    element("span", { class: "number" }, percent(answer.probability)),
    element("span", { class: "unseen" }, has ? " probability" : " no probability"),
    has ? element("span", { class: "bar" }, fill) : null,
  );
}
