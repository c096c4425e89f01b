// The server as functions: each returns JSON, or throws a Problem with a readable message.

const TOKEN = "cascader-token";

/** What went wrong, in the server's words, with names that may have been meant. */
export class Problem extends Error {
  constructor(message, suggestions = [], status = 0) {
    super(message);
    this.suggestions = suggestions;
    this.status = status;
  }
}

let askForToken = async () => null;

/** Sets the function that asks for a token when the server requires one. */
export function onMissingToken(asking) {
  askForToken = asking;
}

/** The run: its graph, tiers, budgets and examples. */
export const readGraph = () => request("/api/graph");

/** Entities by part of a name or id. */
export const findEntities = (text, limit, signal) =>
  request(`/api/entities?${new URLSearchParams({ q: text, limit })}`, { signal });

/** An entity with everything that can be asked about it. */
export const readEntity = (id, signal) => request(`/api/entity?${new URLSearchParams({ id })}`, { signal });

/** The answers to a question. */
export const answer = (body, signal) => request("/api/answer", { method: "POST", body: JSON.stringify(body), signal });

/** The links that wait for a reviewer. */
export const readReview = ({ relation, least, reviewer }, signal) =>
  request(`/api/review?${new URLSearchParams({ relation, min_probability: least, reviewer })}`, { signal });

/** A link with its reasons; it is given by ids. */
export const readLink = (ids, signal) => request(`/api/review/link?${new URLSearchParams(ids)}`, { signal });

/** Keep a decision. */
export const decide = (body) => request("/api/review/decide", { method: "POST", body: JSON.stringify(body) });

/** Undo what a reviewer did last. */
export const undo = (reviewer) => request("/api/review/undo", { method: "POST", body: JSON.stringify({ reviewer }) });

/** Make the list again. */
export const renewReview = () => request("/api/review/renew", { method: "POST" });

/** All decisions as the text of a file. */
export const exportReview = (format) => request(`/api/review/export?format=${format}`, {}, (response) => response.text());

async function request(path, options = {}, read = (response) => response.json()) {
  const response = await send(path, options);
  if (response.status === 401) {
    const token = await askForToken(sessionStorage.getItem(TOKEN) !== null);
    if (token === null) throw new Problem("This server requires a token, and none was given.", [], 401);
    sessionStorage.setItem(TOKEN, token);
    return request(path, options, read);
  }
  const content = await (response.ok ? read(response) : response.json()).catch(() => null);
  if (response.ok && content !== null) return content;
  const message = content?.error ?? `The server replied with status ${response.status} and no explanation.`;
  throw new Problem(message, content?.suggestions ?? [], response.status);
}

async function send(path, options) {
  const headers = { Accept: "application/json" };
  if (options.body) headers["Content-Type"] = "application/json";
  const token = sessionStorage.getItem(TOKEN);
  if (token !== null) headers.Authorization = `Bearer ${asBytes(token)}`;
  try {
    return await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server does not answer. Check that `cascader serve` is still running, then try again.");
  }
}

/** A text as UTF-8, a character for each byte: a header can have no other. */
const asBytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));
