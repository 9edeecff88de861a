// The event channels that the node sees, on all hosts: members, rates, drops by reason, what filters
// cost. Asked for every two seconds while the page is looked at; hidden where there are none.

import { count, plural } from "./format.js";
import { Panel } from "./panel.js";
import { make } from "./make.js";

/**
 * @typedef {object} Sink
 * @property {number} delivered
 * @property {number} expired
 * @property {number} overflowed
 * @property {number} faulted
 */

/**
 * @typedef {object} Member
 * @property {string} host
 * @property {"ring"|"zenoh"} sent_by
 * @property {"ring"|"zenoh"} received_by
 * @property {number} lost
 * @property {number} refused
 * @property {number} dropped
 */

/**
 * @typedef {object} Deployed
 * @property {string} name
 * @property {string} place
 * @property {number} cost_ns
 * @property {number} faults
 */

/**
 * @typedef {object} Channel
 * @property {string} channel
 * @property {string} host
 * @property {Sink[]} sinks
 * @property {Member[]} members
 * @property {number} published
 * @property {number} held
 * @property {number} missed
 * @property {[number|null, number|null]} faults
 * @property {Deployed[]} deployed
 */

const COLUMNS = ["Channel", "Host", "Members", "Sinks", "Sent/s", "Delivered/s", "Drops", "Filters"];

/** @param {Channel} one @param {"delivered"|"expired"|"overflowed"|"faulted"} key */
const sum = (one, key) => one.sinks.reduce((all, sink) => all + sink[key], 0);

/** @param {Channel} one */
const key = (one) => `${one.channel}\n${one.host}`;

/**
 * Why events were dropped, most first.
 * @param {Channel} one
 * @returns {[string, number][]}
 */
export function drops(one) {
  const of = (/** @type {"refused"|"dropped"|"lost"} */ what) =>
    one.members.reduce((all, member) => all + member[what], 0);
  /** @type {[string, number][]} */
  const all = [
    ["expired", sum(one, "expired")],
    ["no room", sum(one, "overflowed")],
    ["filter failed", sum(one, "faulted")],
    ["sink blocks", of("refused")],
    ["not taken", of("dropped")],
    ["ring full", of("lost")],
    ["missed by the process", one.missed],
  ];
  return all.filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
}

/**
 * Filters and handlers, each with what a call costs.
 * @param {Channel} one
 */
export function filters(one) {
  const words = one.deployed.map((handler) => {
    const failed = handler.faults > 0 ? `, ${plural(handler.faults, "fault")}` : "";
    return `${handler.name} (${handler.place}): ${count(handler.cost_ns)} ns a call${failed}`;
  });
  ["in", "out"].forEach((place, n) => {
    const faults = one.faults[n];
    const known = one.deployed.some((handler) => handler.place === place);
    if (faults !== null && !known) words.push(`${place}${faults > 0 ? `, ${plural(faults, "fault")}` : ""}`);
  });
  return words;
}

/**
 * A member, and what carries its events: shared memory, or the network.
 * @param {Member} member
 */
function carried({ host, sent_by, received_by }) {
  const by = sent_by === received_by ? sent_by : `to it ${sent_by}, from it ${received_by}`;
  return `${host}: ${by}`;
}

/**
 * How many members there are, and how many of them a ring connects.
 * @param {Channel} one
 */
function members(one) {
  const near = one.members.filter((member) => [member.sent_by, member.received_by].includes("ring")).length;
  return near > 0 ? `${one.members.length} (${plural(near, "ring")})` : String(one.members.length);
}

/** @extends {Panel<Channel>} */
export class Channels extends Panel {
  /** @type {Map<string, {at: number, published: number, delivered: number}>} */
  before = new Map();

  /** @param {HTMLElement} root a section, hidden at first */
  constructor(root) {
    super(root, "Channels", "channels", COLUMNS);
  }

  /** @param {Channel[]} all @param {number} at */
  update(all, at) {
    const hosts = new Set(all.map((one) => one.host)).size;
    const names = new Set(all.map((one) => one.channel)).size;
    this.shown.textContent = `${plural(names, "channel")} on ${plural(hosts, "host")}`;
    const sorted = [...all].sort((a, b) => (key(a) < key(b) ? -1 : 1));
    this.body.replaceChildren(...sorted.map((one) => this.row(one, at)));
    this.before = new Map(
      all.map((one) => [key(one), { at, published: one.published, delivered: sum(one, "delivered") }]),
    );
  }

  /** @param {Channel} one @param {number} at */
  row(one, at) {
    const past = this.before.get(key(one));
    const rate = (/** @type {number} */ now, /** @type {number|undefined} */ then) => {
      const seconds = (at - (past?.at ?? at)) / 1000;
      return then === undefined || seconds <= 0 ? "–" : count(Math.max(0, Math.round((now - then) / seconds)));
    };
    const reasons = drops(one);
    const total = reasons.reduce((all, [, n]) => all + n, 0);
    const cells = [
      make("td", "", one.channel),
      make("td", "quiet", one.host),
      make("td", "number members", members(one)),
      make("td", "number", String(one.sinks.length)),
      make("td", "number sent", rate(one.published, past?.published)),
      make("td", "number delivered", rate(sum(one, "delivered"), past?.delivered)),
      make("td", "drops", total === 0 ? "none" : reasons.map(([why, n]) => `${why} ${count(n)}`).join(", ")),
      make("td", "filters", filters(one).join("; ") || "–"),
    ];
    cells[2].title = one.members.map(carried).join("\n");
    if (one.held > 0) cells[4].title = `${plural(one.held, "event")} kept for members that are behind`;
    return make("tr", "", ...cells);
  }
}
