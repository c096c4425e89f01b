// Light and dark: the system's theme until the button is used.

import { byId } from "./dom.js";

const KEY = "cascader-theme";
const machine = matchMedia("(prefers-color-scheme: dark)");

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : machine.matches;
};

/** Make the button show and change the theme. */
export function tellTheme() {
  const button = byId("theme");
  const tell = () => {
    const other = isDark() ? "Light" : "Dark";
    button.textContent = other;
    button.setAttribute("aria-label", `${other} theme`);
  };
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // Storage may be blocked: then the choice lasts as long as the page.
    }
    tell();
  });
  machine.addEventListener("change", tell);
  tell();
}
