// A section with a table that is asked for every two seconds while the page is looked at, and hidden
// where there is nothing to show.

import { make } from "./make.js";

const EVERY_MS = 2000;

/** @template T what one thing is that the node tells */
export class Panel {
  /**
   * @param {HTMLElement} root a section, hidden at first
   * @param {string} title
   * @param {string} name of what the API lists, and of the table's class
   * @param {string[]} columns
   */
  constructor(root, title, name, columns) {
    this.root = root;
    this.name = name;
    this.body = make("tbody", "");
    this.shown = make("p", "quiet");
    const tools = make("div", "tools", make("h2", "", title), this.shown);
    const head = make("tr", "", ...columns.map((column) => make("th", "", column)));
    root.append(tools, make("table", name, make("thead", "", head), this.body));
    setInterval(() => this.ask(), EVERY_MS);
    this.ask();
  }

  async ask() {
    if (document.hidden) return;
    try {
      const answer = await fetch(`api/v1/${this.name}`, { cache: "no-store" });
      if (!answer.ok) return;
      /** @type {T[]} */
      const all = await answer.json();
      this.root.hidden = all.length === 0;
      this.update(all, performance.now());
    } catch {
      // The node has gone; the wire says so.
    }
  }

  /** Shows them, as they are at this millisecond. @param {T[]} _all @param {number} _at */
  update(_all, _at) {
    throw new Error(`${this.name}: nothing shows them`);
  }
}
