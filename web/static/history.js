// What the node was like over the last two minutes: samples for the plots, and earlier counters
// for the sentences that compare.

/** @typedef {import("./wire.js").NodeSnapshot} NodeSnapshot */
/** @typedef {import("./wire.js").StreamSnapshot} StreamSnapshot */
/** @typedef {(number|null)[]} Samples */

/** Seconds that are kept and shown. */
export const SPAN = 120;
/** Seconds between samples. */
const STEP = 0.5;
/** A pause longer than this is a gap in the lines. */
const GAP = 2;
/** Seconds between the counters that are kept. */
const MARK = 0.5;
/** Seconds that all figures are of: those that the node tells, and those that are counted here. */
export const BASE = 10;

export class History {
  /** Node uptimes in seconds. @type {number[]} */
  times = [];
  /** @type {Map<string, {decodable: Samples, rate: Samples, delay: Samples}>} */
  streams = new Map();
  /** @type {Map<string, Samples>} */
  links = new Map();
  /** What was offered to each link on the average of late. @type {Map<string, number>} */
  needs = new Map();
  /** @type {{time: number, streams: Map<string, StreamSnapshot>}[]} */
  marks = [];

  clear() {
    this.times = [];
    this.streams.clear();
    this.links.clear();
    this.marks = [];
    this.needs.clear();
  }

  /**
   * Takes a snapshot in. Two minutes of 200 streams are about 150,000 numbers.
   * @param {NodeSnapshot} node
   */
  push(node) {
    const time = node.uptime_ms / 1000;
    const last = this.times.at(-1);
    // The node was started anew, or has other streams: what was is not comparable.
    const same = node.streams.length === this.streams.size
      && node.streams.every((stream) => this.streams.has(stream.name));
    if ((last !== undefined && time < last) || !same) this.clear();
    this.#mark(time, node);
    if (last !== undefined && this.times.length > 0) {
      if (time - last < STEP * 0.9) return;
      if (time - last > GAP) this.#append(last + STEP, null);
    }
    this.#append(time, node);
  }

  /**
   * @param {number} time
   * @param {NodeSnapshot|null} node null: a gap
   */
  #append(time, node) {
    this.times.push(time);
    const from = this.times.findIndex((each) => each >= time - SPAN - STEP);
    this.times.splice(0, from);
    const add = (/** @type {Samples} */ list, /** @type {number|null} */ value) => {
      list.push(value);
      list.splice(0, list.length - this.times.length);
    };
    const before = () => new Array(this.times.length - 1).fill(null);
    for (const { name } of node?.streams ?? []) {
      if (!this.streams.has(name)) {
        this.streams.set(name, { decodable: before(), rate: before(), delay: before() });
      }
    }
    for (const { name } of node?.links ?? []) {
      if (!this.links.has(name)) this.links.set(name, before());
    }
    const streams = new Map(node?.streams.map((stream) => [stream.name, stream]));
    for (const [name, lines] of this.streams) {
      const stream = streams.get(name);
      add(lines.decodable, stream?.decodable_share == null ? null : stream.decodable_share * 100);
      add(lines.rate, stream?.sent_bps ?? null);
      add(lines.delay, stream?.queueing_p99_ms ?? null);
    }
    const links = new Map(node?.links.map((link) => [link.name, link]));
    for (const [name, line] of this.links) add(line, links.get(name)?.rate_bps ?? null);
  }

  /**
   * @param {number} time
   * @param {NodeSnapshot} node
   */
  #mark(time, node) {
    const last = this.marks.at(-1);
    if (last && time - last.time < MARK) return;
    for (const { name, offered_bps: offered } of node.links) {
      const before = this.needs.get(name) ?? offered;
      const weight = last ? Math.min(1, (time - last.time) / BASE) : 1;
      this.needs.set(name, before + (offered - before) * weight);
    }
    this.marks.push({ time, streams: new Map(node.streams.map((each) => [each.name, each])) });
    while (this.marks.length > 1 && this.marks[1].time <= time - BASE) this.marks.shift();
  }

  /**
   * The stream as it was ten seconds ago, or when the page first saw it.
   * @param {string} name
   * @param {number} uptimeMs now
   * @returns {{before: StreamSnapshot|null, seconds: number}}
   */
  earlier(name, uptimeMs) {
    const mark = this.marks[0];
    const seconds = mark ? uptimeMs / 1000 - mark.time : 0;
    const before = mark?.streams.get(name) ?? null;
    return { before, seconds };
  }
}
