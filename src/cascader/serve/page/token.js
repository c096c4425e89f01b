// The prompt for a token: one at a time, however many requests need it.

import { byId } from "./dom.js";

let asked = null;

/** The token that the user typed, or null. */
export function askForToken(wasWrong) {
  asked ??= prompt(wasWrong).finally(() => {
    asked = null;
  });
  return asked;
}

function prompt(wasWrong) {
  const dialog = byId("token-dialog");
  const field = byId("token");
  if (wasWrong) byId("token-text").textContent = "That token was not accepted. Try again.";
  field.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const given = () => resolve(field.value);
    byId("token-form").addEventListener("submit", given, { once: true });
    dialog.addEventListener("cancel", () => resolve(null), { once: true });
  });
}
