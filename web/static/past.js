// The past as the node reports it: an hour of coarse samples for the plots, the list of events, and the
// alarm for what is broken now.

import { uptime } from "./format.js";
import { make } from "./make.js";

/** @typedef {import("./wire.js").Alarm} Alarm */
/** @typedef {import("./history.js").Samples} Samples */

const EVERY_MS = 5000;
/** Events that are shown before somebody asks for more. */
const FEW = 6;

export class Past {
  /** As in History: uptimes in seconds, and a line for each stream and link. @type {number[]} */
  times = [];
  /** @type {Map<string, {decodable: Samples, rate: Samples, delay: Samples}>} */
  streams = new Map();
  /** @type {Map<string, Samples>} */
  links = new Map();
  #newest = "";
  #all = false;

  /**
   * @param {HTMLElement} alarm
   * @param {HTMLElement} events a section, hidden at first
   */
  constructor(alarm, events) {
    this.alarm = alarm;
    this.events = events;
    this.list = make("ol", "events");
    this.more = make("button", "toggle push");
    this.more.type = "button";
    this.more.addEventListener("click", () => {
      this.#all = !this.#all;
      this.#newest = "";
      this.ask();
    });
    const since = make("p", "quiet", "since the start, newest first");
    events.append(make("div", "tools", make("h2", "", "Events"), since, this.more), this.list);
    setInterval(() => this.ask(), EVERY_MS);
    this.ask();
  }

  async ask() {
    if (document.hidden) return;
    try {
      const answer = await fetch("api/v1/history", { cache: "no-store" });
      if (answer.ok) this.#take(await answer.json());
    } catch {
      // The node has gone; the wire says so.
    }
  }

  /** @param {any} history */
  #take(history) {
    this.times = history.times_ms.map((/** @type {number} */ ms) => ms / 1000);
    this.streams = new Map(Object.entries(history.streams).map(([name, lines]) => [name, {
      ...lines,
      decodable: lines.decodable.map((/** @type {number|null} */ share) => (share === null ? null : share * 100)),
    }]));
    this.links = new Map(Object.entries(history.links));
    this.#list(history.events);
  }

  /** @param {{at_ms: number, about: string, tone: string, text: string}[]} events */
  #list(events) {
    this.events.hidden = events.length === 0;
    const key = JSON.stringify(events.at(-1));
    if (key === this.#newest) return;
    this.#newest = key;
    const shown = events.slice(this.#all ? 0 : -FEW).reverse();
    this.list.replaceChildren(...shown.map(({ at_ms: at, about, tone, text }) => {
      const what = make("span", "what", text);
      what.dataset.tone = tone;
      return make("li", "", make("time", "quiet", uptime(at)), make("strong", "", about), what);
    }));
    this.more.hidden = events.length <= FEW;
    this.more.textContent = this.#all ? "Show the newest" : `Show all ${events.length}`;
  }

  /** @param {Alarm[]} alarms */
  alarms(alarms) {
    this.alarm.hidden = alarms.length === 0;
    const of = (/** @type {Alarm} */ { stream, text, since_ms: since }) => `${stream}: ${text}, since ${uptime(since)}`;
    const rest = alarms.length > 3 ? `; and ${alarms.length - 3} more` : "";
    const text = `Broken: ${alarms.slice(0, 3).map(of).join("; ")}${rest}`;
    if (alarms.length === 0 || this.alarm.textContent === text) return;
    this.alarm.textContent = text;
    this.alarm.title = text;
  }
}
