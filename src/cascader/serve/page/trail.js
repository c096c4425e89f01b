// The way through the graph: each entity that was asked about, kept with the history entry that shows it.

import { addressOf } from "./address.js";
import { byId, element, show } from "./dom.js";

const LONGEST = 12;

export class Trail {
  /** The crumbs of the present history entry: {about, name, address}. */
  get crumbs() {
    return history.state?.trail ?? [];
  }

  /** The crumbs for a question to come: if it is about something else, the present ones are its past. */
  before(question) {
    const { crumbs } = this;
    return crumbs.at(-1)?.about === aboutOf(question) ? crumbs.slice(0, -1) : crumbs;
  }

  /** The crumbs up to one of them, without it: it is asked again. */
  until(place) {
    return this.crumbs.slice(0, place);
  }

  /** The crumbs with this question as the last. */
  at(question, name) {
    const crumb = { about: aboutOf(question), name, address: addressOf(question) };
    return [...this.before(question), crumb].slice(-LONGEST);
  }

  /** Show the crumbs; the last one is what the page is about, unless that has failed. */
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
