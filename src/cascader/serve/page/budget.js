// The slider: how many pairs may be read, what that cost, and what it moved.

import { byId, debounced, element, show } from "./dom.js";
import { colourOf } from "./picture.js";
import { count, counted, digitsFor, seconds, share } from "./words.js";

const WAIT = 180;

/** The stops of a run's budgets; `choose` is called with the pairs of a stop, or null at the last one. */
export class BudgetSlider {
  constructor(graph, choose) {
    this.stops = graph.budgets;
    this.places = new Map(graph.tiers.map((tier, place) => [tier.name, place]));
    this.digits = digitsFor(this.stops.map((stop) => stop.valid_mrr));
    this.range = byId("pairs");
    this.range.max = String(Math.max(0, this.stops.length - 1));
    show(byId("budget"), this.stops.length > 1);
    byId("stops").replaceChildren(...this.stops.map((stop) => stopLabel(stop, this.digits)));
    this.set(null);
    const chosen = debounced(() => choose(this.pairs), WAIT);
    this.range.addEventListener("input", () => {
      this.describe();
      chosen();
    });
  }

  /** The pairs of the stop that is set; null at the last: whatever is best. */
  get pairs() {
    const place = Number(this.range.value);
    return place >= this.stops.length - 1 ? null : this.stops[place].pairs;
  }

  /** Move to the dearest stop within so many pairs. */
  set(pairs) {
    const within = this.stops.filter((stop) => pairs === null || stop.pairs <= pairs).length;
    this.range.value = String(Math.max(0, within - 1));
    this.describe();
  }

  describe() {
    const place = Number(this.range.value);
    const stop = this.stops[place];
    if (!stop) return;
    this.range.setAttribute("aria-valuetext", `${counted(stop.pairs, "pair")}, ${stop.tiers.join(", ")}, valid MRR ${share(stop.valid_mrr, this.digits)}`);
    [...byId("stops").children].forEach((each, i) => each.classList.toggle("chosen", i === place));
  }

  /** What the answers cost. */
  showCost(cost) {
    const pairs = cost.pairs_read + cost.pairs_from_store;
    const kept = cost.pairs_read === 0 ? "all" : count(cost.pairs_from_store);
    const fromStore = cost.pairs_from_store > 0 ? `, ${kept} kept from before` : "";
    const tiers = cost.tiers.flatMap((tier, i) => [
      i > 0 ? " → " : "",
      element("span", { class: `tier ${colourOf(this.places.get(tier) ?? 0)}` }, tier),
    ]);
    const rows = [
      ["Pairs read", `${count(pairs)}${fromStore}`],
      ["Time", `${seconds(cost.seconds)}${cost.complete ? "" : ", cut short"}`],
      ["Tiers", tiers],
      ["MRR on valid", share(cost.valid_mrr, this.digits)],
    ];
    byId("cost").replaceChildren(
      ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, ...[value].flat()))),
    );
    show(byId("effort"));
  }
}

function stopLabel(stop, digits) {
  return element("li", {}, element("b", {}, count(stop.pairs)), element("span", {}, share(stop.valid_mrr, digits)));
}

/** How each answer moved since another ranking: ranks risen, or "new"; nothing where it stayed. */
export function movesSince(before, answers) {
  const earlier = new Map(before.map((answer) => [answer.id, answer.rank]));
  const moves = new Map();
  for (const { id, rank } of answers) {
    const risen = earlier.has(id) ? earlier.get(id) - rank : "new";
    if (risen !== 0) moves.set(id, risen);
  }
  return moves;
}

/** The same in one sentence. */
export function movesInWords(moves) {
  const values = [...moves.values()];
  const parts = [
    [values.filter((value) => value > 0).length, "rose"],
    [values.filter((value) => value < 0).length, "fell"],
    [values.filter((value) => value === "new").length, "came in"],
  ].filter(([number]) => number > 0);
  if (parts.length === 0) return "The ranking stayed as it was.";
  return `Since the last budget: ${parts.map(([number, what]) => `${number} ${what}`).join(", ")}.`;
}
