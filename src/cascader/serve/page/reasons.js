// Why an answer stands where it does: reasons in words, each with the facts that say so.

import { element } from "./dom.js";

/** The reasons as a list, in the server's order; `addressOf` returns the address of a question about an entity. */
export function reasonList(reasons, addressOf) {
  return element("ul", { class: "grounds" }, ...reasons.map((reason) => item(reason, addressOf)));
}

function item(reason, addressOf) {
  const facts = reason.facts.map((fact) => line(fact, addressOf));
  return element(
    "li",
    { class: reason.speaks_for ? "for" : "against" },
    element("p", {}, element("b", {}, heading(reason)), " ", reason.text),
    facts.length > 0 ? element("ul", { class: "facts-of" }, ...facts) : null,
  );
}

/** Who says it, and of what. */
function heading({ tier, share, speaks_for: speaksFor, rival }) {
  const says = share > 0 ? tier : `${tier}, without weight here`;
  if (rival !== null) return `${says}, against ${rival.name} below:`;
  return speaksFor ? `${says}:` : `${says}, against it:`;
}

/** A fact; each end links to the question that the other end answers. */
function line({ head, relation, tail }, addressOf) {
  const end = (entity, side) => element("a", { href: addressOf(entity, { relation: relation.id, side }) }, entity.name);
  return element("li", {}, end(head, "tail"), ` ${relation.name} `, end(tail, "head"));
}
