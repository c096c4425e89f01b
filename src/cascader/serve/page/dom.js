// Building blocks. Text goes in as text nodes: whatever a graph holds, it is never read as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** A new element; properties that start with "on" listen, `class` and `data-…`/`aria-…` are attributes. */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** A new SVG element. */
export function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** Show or hide an element. */
export function show(target, isShown = true) {
  target.hidden = !isShown;
}

/** Say something to those who listen to the page. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Call `action` when nothing new has come for a while. */
export function debounced(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/** Whether this click should be left to the browser: a new tab, a new window, a download. */
export const isForBrowser = (event) => event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button > 0;
