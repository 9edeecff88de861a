// The protocol stacks that carry the node's streams: connections, their modules, the elements that
// serve them. Asked for every two seconds while the page is looked at; hidden where there are none.

import { count, milliseconds, plural, rate } from "./format.js";
import { Panel } from "./panel.js";
import { make } from "./make.js";

/**
 * @typedef {object} Module
 * @property {string} module
 * @property {number[]} down
 * @property {number[]} up
 * @property {number} waiting_down
 * @property {number} waiting_up
 */

/**
 * @typedef {object} Flow
 * @property {number} messages
 * @property {number} bytes
 * @property {number} guaranteed_ns
 * @property {boolean} kept
 * @property {boolean} policed
 */

/**
 * @typedef {object} Connection
 * @property {number} id
 * @property {string} peer
 * @property {Module[]} modules
 * @property {Flow} out
 * @property {[string, number][]} dropped
 */

/**
 * @typedef {object} Endpoint
 * @property {string} address
 * @property {{modules: number, messages: number}[]} elements
 * @property {Connection[]} connections
 * @property {number} reassigned
 * @property {boolean} encrypted
 */

const COLUMNS = ["Receiver", "Modules, served down ↓ and up ↑ by elements", "Sent/s", "Rate", "At most here", "Drops"];

/** @param {Endpoint} endpoint @param {Connection} one */
const key = (endpoint, one) => `${endpoint.address}\n${one.id}`;

/** @param {number[]} elements */
export const served = (elements) => (elements.length === 0 ? "–" : elements.join(","));

/** @param {Flow} flow */
export function promise(flow) {
  const ms = flow.guaranteed_ns / 1e6;
  const time = ms < 1 ? `${Math.round(ms * 1000)} µs` : `${milliseconds(ms)} ms`;
  if (flow.policed) return `${time}, held to its contract`;
  return flow.kept ? time : `${time}, more than wanted`;
}

/** @extends {Panel<Endpoint>} */
export class Stacks extends Panel {
  /** @type {Map<string, {at: number, messages: number, bytes: number}>} */
  before = new Map();

  /** @param {HTMLElement} root a section, hidden at first */
  constructor(root) {
    super(root, "Stacks", "stacks", COLUMNS);
  }

  /** @param {Endpoint[]} all @param {number} at */
  update(all, at) {
    const connections = all.reduce((sum, endpoint) => sum + endpoint.connections.length, 0);
    const elements = all.reduce((sum, endpoint) => sum + endpoint.elements.length, 0);
    const moved = all.reduce((sum, endpoint) => sum + endpoint.reassigned, 0);
    this.shown.textContent =
      `${plural(connections, "connection")} on ${plural(elements, "element")}, ` +
      `re-assigned ${plural(moved, "time")}` +
      (all.every((endpoint) => endpoint.encrypted) ? ", encrypted" : ", not encrypted");
    const rows = all.flatMap((endpoint) => endpoint.connections.map((one) => this.row(endpoint, one, at)));
    this.body.replaceChildren(...rows);
    this.before = new Map(
      all.flatMap((endpoint) =>
        endpoint.connections.map((one) => [
          key(endpoint, one),
          { at, messages: one.out.messages, bytes: one.out.bytes },
        ]),
      ),
    );
  }

  /** @param {Endpoint} endpoint @param {Connection} one @param {number} at */
  row(endpoint, one, at) {
    const past = this.before.get(key(endpoint, one));
    const seconds = past ? (at - past.at) / 1000 : 0;
    const since = (/** @type {number} */ now, /** @type {number} */ then) => Math.max(0, now - then) / seconds;
    const cells = [
      make("td", "", one.peer),
      make("td", "modules", ...one.modules.map(chip)),
      make("td", "number sent", past && seconds > 0 ? count(Math.round(since(one.out.messages, past.messages))) : "–"),
      make("td", "number", past && seconds > 0 ? rate(since(one.out.bytes, past.bytes) * 8) : "–"),
      make("td", "number", promise(one.out)),
      make("td", "drops", one.dropped.map(([why, n]) => `${why} ${count(n)}`).join(", ") || "none"),
    ];
    cells[0].title = `from ${endpoint.address}, connection ${one.id.toString(16)}`;
    return make("tr", "", ...cells);
  }
}

/** @param {Module} one */
function chip(one) {
  const all = make("span", "module", one.module, make("small", "", ` ↓${served(one.down)} ↑${served(one.up)}`));
  const waiting = one.waiting_down + one.waiting_up;
  if (waiting > 0) all.append(make("small", "waiting", ` ${count(waiting)} wait`));
  all.title = `${one.module}: elements ${served(one.down)} down, ${served(one.up)} up; ${one.waiting_down} and ${one.waiting_up} wait`;
  return all;
}
