// Numbers and questions as text.

const whole = new Intl.NumberFormat("en-US");

/** 4,699 */
export const count = (value) => whole.format(value);

/** "1 pair", "20 pairs" */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

/** A probability: "43.2 %", "< 0.1 %", or "–" if there is none. */
export function percent(probability) {
  if (probability === null || probability === undefined) return "–";
  if (probability < 0.001) return "< 0.1 %";
  if (probability > 0.999) return "> 99.9 %";
  return `${(100 * probability).toFixed(1)} %`;
}

/** "8 ms", "0.24 s", "12 s" */
export function seconds(value) {
  if (value < 0.0995) return `${Math.max(1, Math.round(1000 * value))} ms`;
  return value < 10 ? `${value.toFixed(2)} s` : `${Math.round(value)} s`;
}

/** An MRR: "0.487". */
export const share = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));

/** Enough digits to tell neighbors apart, within reason. */
export function digitsFor(values) {
  const isTelling = (digits) => values.every((value, i) => i === 0 || share(value, digits) !== share(values[i - 1], digits));
  return [3, 4].find(isTelling) ?? 5;
}

/** The two ends of a question, with "?" for the one to predict. */
export const ends = (anchor, side) => (side === "tail" ? [anchor, "?"] : ["?", anchor]);

/** "aspirin treats ?" */
export function sentence(anchor, relation, side) {
  const [head, tail] = ends(anchor, side);
  return `${head} ${relation} ${tail}`;
}

const KINDS = {
  DualEncoder: "dual encoder",
  ContextEncoder: "context encoder",
  LateInteraction: "late interaction",
  PooledEncoder: "pooled encoder",
  CrossEncoder: "cross encoder",
};

/** The name of a tier's kind of model. */
export const kindOf = (tier) => (tier ? (KINDS[tier.kind] ?? tier.kind) : "");

/** What a tier counts for in the score of an answer; empty if it did not score it. */
export function weight({ share: part, pruned }) {
  if (pruned) return "";
  if (part === 0) return "Does not count here.";
  return part < 0.005 ? "Counts for less than 1 %." : `Counts for ${Math.round(100 * part)} %.`;
}

/** How a rank has changed; `before` is null for the first tier. */
export function movement(before, step, entityCount) {
  if (before === null) return `Ranks it number ${count(step.rank)} of ${count(entityCount)}.`;
  if (step.pruned) {
    const where = step.rank === before ? "stays at" : "moves to";
    return `Did not read it (${step.pruned}); it ${where} rank ${count(step.rank)}.`;
  }
  if (step.rank < before) return `Lifts it from rank ${count(before)} to ${count(step.rank)}.`;
  if (step.rank > before) return `Lowers it from rank ${count(before)} to ${count(step.rank)}.`;
  return `Leaves it at rank ${count(step.rank)}.`;
}
