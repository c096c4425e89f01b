// What is shown instead of answers: the start, waiting, a problem.

import { Problem } from "./api.js";
import { element } from "./dom.js";
import { phrase } from "./headline.js";
import { colorOf } from "./picture.js";
import { counted, kindOf } from "./words.js";

/** Questions to start with, and the tiers that will answer them. */
export function startScreen(graph, addressOf) {
  const examples = graph.examples.map(({ entity, relation, side }) => {
    const address = addressOf({ entity: entity.id, relation: relation.id, side });
    return element("li", {}, element("a", { href: address }, ...phrase(entity, relation, side)));
  });
  return [
    ...(examples.length > 0 ? [element("h2", {}, "Examples"), element("ul", { class: "examples" }, ...examples)] : []),
    element("h2", {}, "The tiers of this run, from fastest to most thorough"),
    element("ol", { class: "tiers" }, ...graph.tiers.map(tierLine)),
  ];
}

function tierLine(tier, place) {
  const kind = element("span", { class: "kind" }, `${kindOf(tier)}, ${counted(tier.parameters, "parameter")}`);
  return element("li", {}, element("span", { class: `tier ${colorOf(place)}` }, tier.name), " ", kind);
}

/** What went wrong, with suggestions or a way to try again. */
export function problemScreen(error, meant, again) {
  const text = error instanceof Problem ? error.message : `The page failed: ${error.message}`;
  const message = element("p", { class: "problem" }, text);
  if (meant.length > 0) return [message, element("h2", {}, "Did you mean:"), element("ul", { class: "meant" }, ...meant)];
  return [message, element("button", { type: "button", class: "quiet", onclick: again }, "Try again")];
}

/** A suggestion, with its id and description. */
export function suggestion({ id, name, description }, ask) {
  return element(
    "li",
    {},
    element("button", { type: "button", class: "quiet", onclick: ask }, name),
    id === name ? null : element("span", { class: "id" }, id),
    description ? element("p", { class: "description" }, description) : null,
  );
}

/** Placeholder rows. */
export function skeleton(rows = 6) {
  const parts = () => ["place", "what", "probability", "picture"].map((part) => element("span", { class: part }));
  const bone = () => element("li", { class: "answer bone" }, element("div", { class: "line" }, ...parts()));
  return element("ol", { class: "ranking", "aria-hidden": "true" }, ...Array.from({ length: rows }, bone));
}
