// Two senders over links of one rate: what each made decodable at its receiver, the most that any
// sender could, and one knob for both links.

import { Field } from "./controls.js";
import { milliseconds, percent, rate, rateExact, uptime } from "./format.js";
import { make } from "./make.js";

/** @typedef {import("./wire.js").Comparison} Comparison */
/** @typedef {import("./wire.js").LinkSnapshot} LinkSnapshot */

export class ComparisonLine {
  /**
   * @param {HTMLElement} root
   * @param {(change: Record<string, string>) => Promise<Record<string, unknown>>} set
   */
  constructor(root, set) {
    this.root = root;
    this.scores = ["ours", "other", "bound"].map((kind) => {
      const [name, value] = [make("span", "caption"), make("span", "big", "–")];
      const bar = make("span", "bar", make("i", ""));
      return { box: make("div", `score ${kind}`, name, value, bar), name, value, bar };
    });
    this.scores[2].name.textContent = "Best possible";
    this.scores[2].box.title = "No sender could make more decodable on this link, even one that knew all frames in advance";
    this.note = make("p", "quiet");
    this.link = "";
    this.rate = new Field({
      label: "rate of both links",
      title: "A rate with its unit, such as 2 Mbit/s, for both links. Enter applies, Escape reverts.",
      size: 14,
      apply: async (text) => String((await set({ link: this.link, rate: text })).rate),
    });
    this.knob = make("div", "figure-box rate", make("span", "caption", "Rate of both links"), this.rate.root);
    this.root.append(...this.scores.map(({ box }) => box), this.knob, this.note);
  }

  /** @param {Comparison|null} comparison @param {LinkSnapshot[]} links */
  update(comparison, links) {
    this.root.hidden = comparison === null;
    if (!comparison || links.length === 0) return;
    this.link = links[0].name;
    this.rate.update(rateExact(links[0].rate_bps));
    const { ours, other, bound, needed_bps: needed, since_ms: since, delay_ms: delay } = comparison;
    this.#score(0, `Decodable with ${ours[0]}`, ours[1]);
    this.#score(1, `Decodable with ${other[0]}`, other[1]);
    this.#score(2, "Best possible", bound);
    const has = rate(links[0].rate_bps);
    const paths = links[0].paths?.length ?? 0;
    this.knob.hidden = paths > 0;
    const carried = paths > 0 ? `the ${paths} simulated paths carry ${has} as measured` : `each link carries ${has}`;
    const need = needed > 0 ? `The streams need ${rate(needed)}, ${carried}. ` : "";
    const begun = paths > 0 ? "" : ", since the link was set last";
    this.note.textContent = `${need}Counted at the receivers for ${uptime(since)}${begun}. `
      + `The delay of ${milliseconds(delay)} ms is used up: frames wait as long as they may, so that fewer are lost.`;
  }

  /** @param {number} n @param {string} name @param {number|null} share */
  #score(n, name, share) {
    const { value, bar, name: caption } = this.scores[n];
    caption.textContent = name;
    value.textContent = share === null ? "–" : percent(share);
    value.dataset.known = String(share !== null);
    bar.style.setProperty("--share", `${((share ?? 0) * 100).toFixed(1)}%`);
  }
}
