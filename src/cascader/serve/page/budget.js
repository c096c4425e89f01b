// The slider: how many pairs may be read, what the answers cost, and how the ranking changed.

import { byId, debounced, element, show } from "./dom.js";
import { colorOf } from "./picture.js";
import { count, counted, digitsFor, seconds, share } from "./words.js";

const WAIT = 180;

/** The budget levels of a run; `choose` is called with the pairs of a level, or null for the last one. */
export class BudgetSlider {
  constructor(graph, choose) {
    this.levels = graph.budgets;
    this.places = new Map(graph.tiers.map((tier, place) => [tier.name, place]));
    this.digits = digitsFor(this.levels.map((level) => level.valid_mrr));
    this.range = byId("pairs");
    this.range.max = String(Math.max(0, this.levels.length - 1));
    show(byId("budget"), this.levels.length > 1);
    byId("levels").replaceChildren(...this.levels.map((level) => levelLabel(level, this.digits)));
    this.set(null);
    const chosen = debounced(() => choose(this.pairs), WAIT);
    this.range.addEventListener("input", () => {
      this.describe();
      chosen();
    });
  }

  /** The pairs of the chosen level; null for the last: whatever is best. */
  get pairs() {
    const place = Number(this.range.value);
    return place >= this.levels.length - 1 ? null : this.levels[place].pairs;
  }

  /** Move to the highest level within so many pairs. */
  set(pairs) {
    const within = this.levels.filter((level) => pairs === null || level.pairs <= pairs).length;
    this.range.value = String(Math.max(0, within - 1));
    this.describe();
  }

  describe() {
    const place = Number(this.range.value);
    const level = this.levels[place];
    if (!level) return;
    this.range.setAttribute("aria-valuetext", `${counted(level.pairs, "pair")}, ${level.tiers.join(", ")}, valid MRR ${share(level.valid_mrr, this.digits)}`);
    [...byId("levels").children].forEach((each, i) => each.classList.toggle("chosen", i === place));
  }

  /** What the answers cost. */
  showCost(cost) {
    const pairs = cost.pairs_read + cost.pairs_from_store;
    const kept = cost.pairs_read === 0 ? "all" : count(cost.pairs_from_store);
    const fromStore = cost.pairs_from_store > 0 ? `, ${kept} from the store` : "";
    const tiers = cost.tiers.flatMap((tier, i) => [
      i > 0 ? " → " : "",
      element("span", { class: `tier ${colorOf(this.places.get(tier) ?? 0)}` }, tier),
    ]);
    const rows = [
      ["Pairs read", `${count(pairs)}${fromStore}`],
      ["Time", `${seconds(cost.seconds)}${cost.complete ? "" : ", out of time"}`],
      ["Tiers", tiers],
      ["MRR on valid", share(cost.valid_mrr, this.digits)],
    ];
    byId("cost").replaceChildren(
      ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, ...[value].flat()))),
    );
    show(byId("effort"));
  }
}

function levelLabel(level, digits) {
  return element("li", {}, element("b", {}, count(level.pairs)), element("span", {}, share(level.valid_mrr, digits)));
}

/** How each answer moved since an earlier ranking: ranks gained, or "new"; nothing if it stayed. */
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
    [values.filter((value) => value === "new").length, "new"],
  ].filter(([number]) => number > 0);
  if (parts.length === 0) return "The ranking did not change.";
  return `Since the last budget: ${parts.map(([number, what]) => `${number} ${what}`).join(", ")}.`;
}
