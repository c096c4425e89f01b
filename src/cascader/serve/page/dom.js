// Building blocks. Text becomes text nodes, so nothing in a graph is ever parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** The element of the page with this id. */
export const byId = (id) => document.getElementById(id);

/** A new element; properties that start with "on" are listeners, `class` and `data-…`/`aria-…` are attributes. */
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

/** Announce something to screen readers. */
export function announce(text) {
  byId("status").textContent = text;
}

/** Call `action` once there have been no calls for a while. */
export function debounced(action, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/** Whether to leave a click to the browser: a new tab, a new window, a download. */
export const isForBrowser = (event) => event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button > 0;
