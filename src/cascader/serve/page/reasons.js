// Why an answer stands where it does: reasons in words, each with the facts that say so, as a list and as a graph.

import { element } from "./dom.js";
import { factGraph } from "./facts.js";

/** The reasons for a `link` as a list, in the server's order; `addressOf` returns the address of a question. */
export function reasonList(reasons, link, addressOf) {
  return element("ul", { class: "grounds" }, ...reasons.map((reason) => item(reason, about(reason, link), addressOf)));
}

function item(reason, link, addressOf) {
  const facts = reason.facts.map((fact) => line(fact, addressOf));
  const hasFacts = facts.length > 0;
  return element(
    "li",
    { class: reason.speaks_for ? "for" : "against" },
    element("p", {}, element("b", {}, heading(reason)), " ", reason.text),
    hasFacts ? element("ul", { class: "facts-of" }, ...facts) : null,
    hasFacts ? factGraph(reason.facts, link, addressOf) : null,
  );
}

/** The link that a reason speaks of: with the rival in place of the answer, if it is about that. */
function about({ rival }, { head, relation, tail, side }) {
  if (!rival) return { head, relation, tail };
  return side === "head" ? { head: rival, relation, tail } : { head, relation, tail: rival };
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
