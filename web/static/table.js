// The table of streams: which rows there are, in which order, and which of them can be seen. Only
// those are kept up to date, so that two hundred streams cost as much as ten.

import { cause } from "./cause.js";
import { plural } from "./format.js";
import { total, why } from "./reasons.js";
import { make } from "./make.js";
import { COLUMNS, Row } from "./row.js";

/** @typedef {import("./wire.js").NodeSnapshot} NodeSnapshot */
/** @typedef {import("./wire.js").StreamSnapshot} StreamSnapshot */
/** @typedef {import("./history.js").History} History */

/** An order by numbers is made anew this often, unless somebody is at the table. */
const REORDER_MS = 5000;

/** @type {Record<string, (a: StreamSnapshot, b: StreamSnapshot) => number>} */
const ORDERS = {
  file: () => 0,
  worst: (a, b) => (a.decodable_share ?? 2) - (b.decodable_share ?? 2),
  dropped: (a, b) => total(b.dropped) - total(a.dropped),
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
};

/**
 * @typedef {object} Actions
 * @property {(change: Record<string, string|number>) => Promise<Record<string, unknown>>} set
 * @property {(indices: Set<number>) => void} seen the rows that can be seen have changed
 * @property {(name: string|null) => void} point a row is pointed at
 * @property {(name: string) => void} pin a row's swatch is pressed
 */

export class StreamTable {
  /** @type {Row[]} */
  rows = [];
  /** @type {Set<number>} */
  visible = new Set();
  #ordered = 0;

  /**
   * @param {HTMLTableElement} table
   * @param {{order: HTMLSelectElement, filter: HTMLInputElement, shown: HTMLElement, empty: HTMLElement}} tools
   * @param {History} history
   * @param {Actions} actions
   */
  constructor(table, tools, history, actions) {
    this.table = table;
    this.tools = tools;
    this.history = history;
    this.actions = actions;
    /** @type {NodeSnapshot|null} */
    this.node = null;
    this.#head();
    this.observer = new IntersectionObserver((entries) => this.#crossed(entries), {
      rootMargin: "100px",
    });
    tools.order.addEventListener("change", () => this.#arrange(true));
    tools.filter.addEventListener("input", () => this.#filter());
    table.addEventListener("pointerover", (event) => actions.point(nameAt(event.target)));
    table.addEventListener("pointerleave", () => actions.point(null));
    table.addEventListener("focusin", (event) => actions.point(nameAt(event.target)));
    table.addEventListener("focusout", () => actions.point(null));
  }

  #head() {
    const row = make("tr", "");
    row.setAttribute("role", "row");
    for (const [key, heading, meaning] of COLUMNS) {
      const cell = make("th", key, heading);
      cell.scope = "col";
      cell.setAttribute("role", "columnheader");
      cell.title = meaning;
      if (!heading) cell.setAttribute("aria-label", meaning);
      row.append(cell);
    }
    this.table.tHead?.replaceChildren(row);
  }

  /**
   * @param {NodeSnapshot} node
   * @param {(index: number) => string} colour
   * @returns {boolean} whether the list of streams is another than before
   */
  update(node, colour) {
    this.node = node;
    const same = node.streams.length === this.rows.length
      && node.streams.every((stream, n) => stream.name === this.rows[n].name);
    if (!same) this.#rebuild(node, colour);
    for (const index of this.visible) this.#refresh(index);
    if (performance.now() - this.#ordered > REORDER_MS) this.#arrange(false);
    return !same;
  }

  /** @param {(index: number) => string} colour */
  paint(colour) {
    this.rows.forEach((row, index) => row.paint(colour(index)));
  }

  /** @param {string|null} name */
  point(name) {
    for (const row of this.rows) row.point(row.name === name);
  }

  /** @param {string|null} name */
  pinned(name) {
    for (const row of this.rows) row.pin.setAttribute("aria-pressed", String(row.name === name));
  }

  /** @param {NodeSnapshot} node @param {(index: number) => string} colour */
  #rebuild(node, colour) {
    this.observer.disconnect();
    for (const row of this.rows) row.body.remove();
    this.visible.clear();
    this.rows = node.streams.map((stream, index) => {
      const row = new Row(stream, this.actions.set, () => this.actions.pin(stream.name));
      row.body.dataset.index = String(index);
      row.paint(colour(index));
      row.update(stream, "", null, 0);
      return row;
    });
    this.#arrange(true);
    this.#filter();
    for (const row of this.rows) this.observer.observe(row.body);
  }

  /** @param {number} index */
  #refresh(index) {
    const stream = this.node?.streams[index];
    if (!stream || !this.node) return;
    const { before, seconds } = this.history.earlier(stream.name, this.node.uptime_ms);
    const { links, streams } = this.node;
    const text = why(stream, before, seconds, (lost) => {
      const link = links.find((each) => each.name === stream.link);
      const sharing = streams.filter((each) => each.link === stream.link);
      return cause(stream, lost, link, this.history.needs.get(stream.link) ?? 0, sharing);
    });
    this.rows[index]?.update(stream, text, before, seconds);
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #crossed(entries) {
    for (const { target, isIntersecting } of entries) {
      const index = Number(/** @type {HTMLElement} */ (target).dataset.index);
      if (this.rows[index]?.body !== target) continue;
      if (isIntersecting) this.visible.add(index);
      else this.visible.delete(index);
      if (isIntersecting) this.#refresh(index);
    }
    this.actions.seen(this.visible);
  }

  /** @param {boolean} asked by the user just now: otherwise rows stay put under hand or eye */
  #arrange(asked) {
    const busy = this.table.matches(":hover") || this.table.contains(document.activeElement);
    if (!this.node || (busy && !asked)) return;
    this.#ordered = performance.now();
    const { streams } = this.node;
    const order = ORDERS[this.tools.order.value] ?? ORDERS.file;
    const rows = this.rows
      .map((row, index) => ({ row, index, stream: streams[index] }))
      .sort((a, b) => order(a.stream, b.stream) || a.index - b.index)
      .map(({ row }) => row.body);
    const bodies = [...this.table.tBodies];
    if (rows.some((body, n) => body !== bodies[n])) this.table.append(...rows);
  }

  #filter() {
    const wanted = this.tools.filter.value.trim().toLowerCase();
    let shown = 0;
    this.rows.forEach((row, index) => {
      const stream = this.node?.streams[index];
      const text = stream ? `${stream.name} ${stream.source} ${stream.to} ${stream.state}` : "";
      row.body.hidden = !text.toLowerCase().includes(wanted);
      if (!row.body.hidden) shown += 1;
    });
    const all = this.rows.length;
    this.tools.shown.textContent = shown === all ? "" : `${shown} of ${plural(all, "stream")}`;
    this.tools.empty.hidden = shown > 0;
    this.tools.empty.textContent = all > 0 ? "No stream matches the filter." : "This node has no streams.";
  }
}

/** @param {EventTarget|null} target */
function nameAt(target) {
  const body = target instanceof Element ? target.closest("tbody") : null;
  return body?.dataset.stream ?? null;
}
