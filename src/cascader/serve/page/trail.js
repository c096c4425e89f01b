// The trail through the graph: each entity that was asked about, stored with its history entry.

import { addressOf } from "./address.js";
import { byId, element, show } from "./dom.js";

const LONGEST = 12;

export class Trail {
  /** The crumbs of the current history entry: {about, name, address}. */
  get crumbs() {
    return history.state?.trail ?? [];
  }

  /** The crumbs before the next question: the current ones, unless it is about the same entity. */
  before(question) {
    const { crumbs } = this;
    return crumbs.at(-1)?.about === aboutOf(question) ? crumbs.slice(0, -1) : crumbs;
  }

  /** The crumbs before one of them, which is about to be asked again. */
  until(place) {
    return this.crumbs.slice(0, place);
  }

  /** The crumbs with this question as the last. */
  at(question, name) {
    const crumb = { about: aboutOf(question), name, address: addressOf(question) };
    return [...this.before(question), crumb].slice(-LONGEST);
  }

  /** Show the crumbs; the last one is the current page, unless its question failed. */
  show(isThere = true) {
    const { crumbs } = this;
    const last = isThere ? crumbs.length - 1 : crumbs.length;
    const items = crumbs.map(({ name, address }, place) =>
      place === last
        ? element("li", { "aria-current": "page" }, name)
        : element("li", {}, element("a", { href: address, "data-crumb": String(place) }, name)),
    );
    byId("trail").firstElementChild.replaceChildren(...items);
    show(byId("trail"), last > 0);
  }
}

const aboutOf = (question) => (question.isNew ? `new:${question.name}` : question.entity);
