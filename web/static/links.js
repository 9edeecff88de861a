// The links: rate, what is used of it, what is offered, what waits. The bar's whole width is one
// and a half times the rate, so that it does not move when the load does.

import { Field } from "./controls.js";
import { bytes, milliseconds, percent, plural, rate, rateExact } from "./format.js";
import { make } from "./make.js";

/** @typedef {import("./wire.js").LinkSnapshot} LinkSnapshot */
/** @typedef {import("./wire.js").PathSnapshot} PathSnapshot */

const FULL = 1.5;

class LinkStrip {
  /**
   * @param {LinkSnapshot} link
   * @param {(change: Record<string, string>) => Promise<Record<string, unknown>>} set
   */
  constructor({ name }, set) {
    this.name = name;
    this.root = make("div", "card link");
    this.discipline = make("span", "tag");
    const head = make("div", "title", make("h2", "", name), this.discipline);

    this.meter = make("div", "meter", make("i", "offered"), make("i", "used"), make("i", "limit"));
    this.meter.setAttribute("role", "meter");
    this.meter.setAttribute("aria-label", `used of ${name}, in percent of its rate`);
    this.meter.setAttribute("aria-valuemin", "0");
    this.meter.setAttribute("aria-valuemax", "100");

    this.used = figure("Used");
    this.offered = figure("Offered");
    this.queue = figure("Queue");
    this.late = figure("Late wake-ups");
    this.late.root.title = "99th percentile of how late the link's thread woke up, and what was sent of what "
      + "the rate allowed while frames waited; both of the last seconds";
    this.rate = new Field({
      label: `rate of ${name}`,
      title: "A rate with its unit, such as 6 Mbit/s. Enter applies, Escape reverts.",
      size: 14,
      apply: async (text) => String((await set({ link: name, rate: text })).rate),
    });
    this.paths = make("div", "paths");
    this.knob = make("div", "figure-box rate", make("span", "caption", "Rate"), this.rate.root);
    this.root.append(head, this.meter, this.used.root, this.offered.root, this.queue.root,
      this.late.root, this.knob, this.paths);
  }

  /** @param {LinkSnapshot} link */
  update(link) {
    const share = (/** @type {number} */ bps) => (link.rate_bps > 0 ? bps / link.rate_bps : 0);
    const [used, offered] = [share(link.sent_bps), share(link.offered_bps)];
    this.discipline.textContent = link.discipline;
    const wide = (/** @type {number} */ part) => `${Math.min(100, (part / FULL) * 100).toFixed(2)}%`;
    this.meter.style.setProperty("--used", wide(used));
    this.meter.style.setProperty("--offered", wide(offered));
    this.meter.dataset.over = String(offered > 1);
    this.meter.setAttribute("aria-valuenow", (used * 100).toFixed(0));
    this.meter.title = `used ${percent(used)} %, offered ${(offered * 100).toFixed(0)} % of the rate`;
    this.used.set(rate(link.sent_bps), `${(used * 100).toFixed(0)} %`);
    this.offered.set(rate(link.offered_bps), `${(offered * 100).toFixed(0)} %`);
    this.offered.root.dataset.tone = offered > 1 ? "warn" : "";
    this.queue.set(plural(link.queued_frames, "frame"), bytes(link.queued_bytes));
    this.late.set(`${milliseconds(link.late_p99_ms)} ms`, `${percent(link.used_share)} % used`);
    const paths = link.paths ?? [];
    // A measured rate is not for anybody to set.
    const measured = paths.length > 0;
    this.rate.update(measured ? rate(link.rate_bps) : rateExact(link.rate_bps));
    this.knob.querySelectorAll("input").forEach((input) => { input.disabled = measured; });
    this.paths.replaceChildren(...paths.map(pathLine));
  }
}

/** @param {PathSnapshot} path */
function pathLine(path) {
  const carries = `${rate(path.sent_bps)} of ${rate(path.rate_bps)}`;
  const figures = `${percent(path.loss)} % lost, ${milliseconds(path.round_trip_ms)} ms there and back`;
  // Nothing is measured of a path of which nothing was reported.
  const known = [path.rate_bps > 0 ? carries : "", path.round_trip_ms > 0 ? figures : ""]
    .filter((text) => text !== "").map((text) => make("span", "", text));
  const line = make("div", "bond-path", make("b", "", path.name), ...known, make("span", "", path.detail));
  line.dataset.active = String(path.active);
  return line;
}

/** @param {string} caption */
function figure(caption) {
  const [main, more] = [make("span", "value"), make("span", "more")];
  return {
    root: make("div", "figure-box", make("span", "caption", caption), main, more),
    /** @param {string} value @param {string} extra */
    set(value, extra) {
      main.textContent = value;
      more.textContent = extra;
    },
  };
}

export class Links {
  /** @type {LinkStrip[]} */
  strips = [];

  /**
   * @param {HTMLElement} root
   * @param {(change: Record<string, string>) => Promise<Record<string, unknown>>} set
   */
  constructor(root, set) {
    this.root = root;
    this.set = set;
  }

  /** @param {LinkSnapshot[]} links */
  update(links) {
    if (links.map((link) => link.name).join("\n") !== this.strips.map((strip) => strip.name).join("\n")) {
      this.strips = links.map((link) => new LinkStrip(link, this.set));
      this.root.replaceChildren(...this.strips.map((strip) => strip.root));
    }
    links.forEach((link, n) => this.strips[n].update(link));
  }
}
