// Answers as files, made in the browser, with the same columns as `cascader predict`.

/** The answers as a table. */
export function asTable({ question, answers }) {
  const rows = answers.map((answer) => {
    const [head, tail] = question.side === "tail" ? [question.anchor.id, answer.id] : [answer.id, question.anchor.id];
    const ranks = answer.trace.map((step) => [`rank_after_${step.tier}`, step.rank]);
    return {
      head,
      relation: question.relation.id,
      tail,
      side: question.side,
      rank: answer.rank,
      name: answer.name,
      probability: answer.probability,
      score: answer.score,
      is_known: answer.is_known,
      ...Object.fromEntries(ranks),
    };
  });
  const columns = Object.keys(rows[0] ?? {});
  const lines = [columns, ...rows.map((row) => columns.map((column) => row[column]))];
  return lines.map((cells) => cells.map(cell).join("\t") + "\n").join("");
}

const cell = (value) => (value === null ? "" : String(value).replace(/\s+/g, " "));

/** The whole response, with the address that asks the question again. */
export const asJson = (response) => `${JSON.stringify({ address: location.href, ...response }, null, 2)}\n`;

/** Download a text as a file. */
export function download(response, text, suffix, type) {
  const { anchor, relation, side } = response.question;
  const words = side === "tail" ? [anchor.name, relation.name] : [relation.name, anchor.name];
  const name = words.join(" ").toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 80);
  downloadAs(`${name || "answers"}.${suffix}`, text, type);
}

/** Download a text as a file of this name. */
export function downloadAs(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
