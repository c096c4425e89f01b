// The question above its answers, to read and to hear.

import { byId, element, show } from "./dom.js";
import { counted, ends, percent, sentence } from "./words.js";

/** A question as elements: the given end, the relation, and the end to predict. */
export function phrase(anchor, relation, side) {
  const [head, tail] = ends(anchor.name, side);
  const end = (text) => element("span", { class: text === "?" ? "asked" : "given" }, text);
  return [end(head), " ", element("span", { class: "relation" }, relation.name), " ", end(tail)];
}

/** Show a question at the top of the page. */
export function headline(anchor, relation, side) {
  byId("answers-title").replaceChildren(...phrase(anchor, relation, side));
  document.title = `${sentence(anchor.name, relation.name, side)} – cascader`;
}

/** Show a few words at the top of the page. */
export function entitle(text, title) {
  byId("answers-title").textContent = text;
  document.title = title;
}

/** Show the beginning of a long text, and a button for the rest. */
export function describeAnchor(text) {
  const described = byId("anchor-text");
  const button = byId("whole-text");
  described.textContent = text;
  cut(true);
  show(button, described.scrollHeight > described.clientHeight + 1);
}

/** Show all of a long text, or only its beginning. */
export function toggleText() {
  cut(!byId("anchor-text").classList.contains("cut"));
}

function cut(isCut) {
  byId("anchor-text").classList.toggle("cut", isCut);
  byId("whole-text").setAttribute("aria-expanded", String(!isCut));
  byId("whole-text").textContent = isCut ? "Read more" : "Read less";
}

/** A question and its best answer, for screen readers. */
export function spoken({ question, answers }, moved) {
  const asked = sentence(question.anchor.name, question.relation.name, question.side);
  const best = answers[0];
  if (!best) return `${asked}: no answer.`;
  const probability = best.probability === null ? "" : `, ${percent(best.probability)}`;
  return `${asked}: ${counted(answers.length, "answer")}. First: ${best.name}${probability}. ${moved}`;
}
