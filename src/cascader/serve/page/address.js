// A question in the address bar, so that it can be shared, bookmarked and reloaded.

export const USUAL_TOP = 10;

/** The question of an address; fields that are not given are empty. */
export function questionOf(search) {
  const fields = new URLSearchParams(search);
  const name = fields.get("name") ?? "";
  const pairs = fields.get("pairs") === null ? NaN : Number(fields.get("pairs"));
  const top = Number(fields.get("top"));
  return {
    entity: name ? "" : (fields.get("entity") ?? ""),
    isNew: name !== "",
    name,
    description: name ? (fields.get("description") ?? "") : "",
    relation: fields.get("relation") ?? "",
    side: fields.get("side") === "head" ? "head" : "tail",
    pairs: Number.isFinite(pairs) && pairs >= 0 ? pairs : null,
    withKnown: fields.get("known") === "1",
    top: Number.isInteger(top) && top > 0 && top <= 100 ? top : USUAL_TOP,
  };
}

/** The review that an address asks for: which relation, and how probable at least; null if it asks a question. */
export function reviewOf(search) {
  const fields = new URLSearchParams(search);
  if (!fields.has("review")) return null;
  const least = Number(fields.get("least"));
  return { relation: fields.get("relation") ?? "", least: least > 0 && least <= 1 ? least : 0 };
}

/** The address of a review. */
export function reviewAddress({ relation = "", least = 0 } = {}) {
  const fields = new URLSearchParams({ review: "1" });
  if (relation) fields.set("relation", relation);
  if (least > 0) fields.set("least", least);
  return `/?${fields}`;
}

/** The address of a question, without defaults. */
export function addressOf(question) {
  const fields = new URLSearchParams();
  if (question.isNew) {
    fields.set("name", question.name);
    if (question.description) fields.set("description", question.description);
  } else if (question.entity) fields.set("entity", question.entity);
  if (question.relation) {
    fields.set("relation", question.relation);
    fields.set("side", question.side);
  }
  if (question.pairs !== null) fields.set("pairs", question.pairs);
  if (question.withKnown) fields.set("known", "1");
  if (question.top !== USUAL_TOP) fields.set("top", question.top);
  const search = fields.toString();
  return search ? `?${search}` : "/";
}

/** Whether two questions differ in their options only. */
export function asksTheSame(one, other) {
  return ["entity", "isNew", "name", "description", "relation", "side"].every((field) => one[field] === other[field]);
}

/** The body of the request. */
export function bodyOf(question) {
  const about = question.isNew
    ? { new: { name: question.name, description: question.description } }
    : { entity: question.entity };
  return {
    ...about,
    relation: question.relation,
    side: question.side,
    top: question.top,
    with_known: question.withKnown,
    why: true,
    budget: question.pairs === null ? null : { pairs: question.pairs },
  };
}
