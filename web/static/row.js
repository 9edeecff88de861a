// One stream in the table: two table rows in a body of their own, changed only where the numbers
// have. The second row says why frames were lost.

import { Field } from "./controls.js";
import { bytes, count, milliseconds, percent, plural, rate, rateParts } from "./format.js";
import { make } from "./make.js";
import { droppedSince, ranked, reason } from "./reasons.js";
import { HEIGHT, WIDTH } from "./thumbs.js";

/** @typedef {import("./wire.js").StreamSnapshot} StreamSnapshot */

/** Shares below these are pointed out. */
const WARN = 0.95;
const BAD = 0.75;

/**
 * The row's facts of what a stack's receiver reported, beside what left.
 * @param {StreamSnapshot["received"]} received
 * @returns {[string, string][]}
 */
function reported(received) {
  if (!received) return [];
  const silent = received.silent_ms == null ? "" : `; silent for ${Math.round(received.silent_ms / 1000)} s`;
  const left = `${count(received.sent_decodable)} left decodable`;
  return [["Receiver", `${plural(received.complete, "frame")} whole, ${count(received.decodable)} decodable; ${left}${silent}`]];
}

/**
 * The row's fact of an encoder that follows the measured rate of its link.
 * @param {number|null|undefined} bps
 * @returns {[string, string][]}
 */
function aimed(bps) {
  return bps == null ? [] : [["Encoder", `aims at ${rate(bps)}, by the measured rate of the link`]];
}

/** @type {Record<StreamSnapshot["state"], {tone: string, title: string}>} */
const STATES = {
  starting: { tone: "quiet", title: "Not started yet" },
  running: { tone: "good", title: "Frames come" },
  stalled: { tone: "warn", title: "No frame has come for several periods" },
  retrying: { tone: "warn", title: "The source failed and will be tried again" },
  ended: { tone: "quiet", title: "The source came to its end" },
  failed: { tone: "bad", title: "The source failed for good" },
};

/**
 * The columns, in order: key, heading, what it means.
 * @type {[string, string, string][]}
 */
export const COLUMNS = [
  ["picture", "", "Newest picture of the source, whether it was sent or not"],
  ["stream", "Stream", "Name, source and destination"],
  ["state", "State", "How the source does"],
  ["decodable", "Decodable", "Frames on time whose references all were too, last ten seconds"],
  ["ontime", "On time", "Frames sent whole by their deadline, last ten seconds"],
  ["rate", "Rate", "Sent, last ten seconds; of what its encoder aims at, where that follows the link"],
  ["violations", "Violations", "Windows that lost more than they may, last ten seconds"],
  ["drops", "Drops", "Frames dropped, by reason, last ten seconds"],
  ["delay", "Queueing", "From arrival to the last packet sent, last ten seconds: mean / 99th percentile"],
  ["window", "Window", "x/y: at most x of any y frames late or lost"],
  ["priority", "Priority", "Higher goes first under the priority discipline; under dwcs it decides who gives way when the link is too small"],
];

export class Row {
  /** What was set last. */
  #seen = new Map();

  /**
   * @param {StreamSnapshot} stream
   * @param {(change: Record<string, string|number>) => Promise<Record<string, unknown>>} set
   * @param {() => void} pin called when somebody wants this stream pointed out, or no longer
   */
  constructor(stream, set, pin) {
    const name = stream.name;
    this.name = name;
    /** @type {StreamSnapshot|null} */
    this.stream = null;
    this.body = make("tbody", "stream");
    this.body.setAttribute("role", "rowgroup");
    this.body.dataset.stream = name;
    const [first, second, third] = [make("tr", ""), make("tr", "second"), make("tr", "third")];
    for (const row of [first, second, third]) row.setAttribute("role", "row");
    this.body.append(first, second, third);
    this.more = third;
    third.hidden = true;
    this.details = make("dl", "details");
    const place = make("td", "more", this.details);
    place.setAttribute("role", "cell");
    place.setAttribute("colspan", String(COLUMNS.length));
    third.append(place);

    /** @type {Record<string, HTMLElement>} */
    this.cells = {};
    for (const [key, heading] of COLUMNS) {
      const cell = make("td", key);
      cell.setAttribute("role", "cell");
      if (heading) cell.dataset.label = heading;
      this.cells[key] = cell;
      first.append(cell);
    }
    this.why = make("td", "why");
    this.why.setAttribute("role", "cell");
    this.why.setAttribute("colspan", String(COLUMNS.length - 1));
    second.append(this.why);

    this.canvas = make("canvas", "");
    this.canvas.width = WIDTH;
    this.canvas.height = HEIGHT;
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `picture of ${name}`);
    this.cells.picture.setAttribute("rowspan", "2");
    this.cells.picture.append(this.canvas);

    this.pin = make("button", "swatch");
    this.pin.type = "button";
    this.pin.title = "Point out in the plots";
    this.pin.setAttribute("aria-label", `point out ${name} in the plots`);
    this.pin.setAttribute("aria-pressed", "false");
    this.pin.addEventListener("click", pin);
    this.path = make("span", "path");
    this.opener = make("button", "opener", make("strong", "", name));
    this.opener.type = "button";
    this.opener.title = "All that is known of it, since the start";
    this.opener.setAttribute("aria-label", `details of ${name}`);
    this.opener.setAttribute("aria-expanded", "false");
    this.opener.addEventListener("click", () => {
      third.hidden = !third.hidden;
      this.opener.setAttribute("aria-expanded", String(!third.hidden));
      this.#detail();
    });
    this.label = make("span", "label");
    this.cells.stream.append(this.pin, this.opener, this.label, this.path);

    this.badge = make("span", "badge");
    this.cells.state.append(this.badge);
    this.decodable = make("span", "big");
    this.bar = make("span", "bar", make("i", ""));
    this.cells.decodable.append(this.decodable, this.bar);
    this.ontime = make("span", "number");
    this.cells.ontime.append(this.ontime);
    this.rate = [make("span", "number"), make("span", "unit")];
    this.aim = make("span", "parts");
    this.cells.rate.append(...this.rate, this.aim);
    this.dropTotal = make("span", "number");
    this.dropBar = make("span", "split", make("i", "chosen"), make("i", "late"), make("i", "fault"));
    this.dropText = make("span", "parts");
    this.cells.drops.append(this.dropTotal, this.dropBar, this.dropText);

    this.window = new Field({
      label: `window of ${name}`,
      title: "x/y, such as 1/5: one window for all frames. Enter applies, Escape reverts.",
      size: 9,
      apply: async (text) => String((await set({ stream: name, window: text })).window),
    });
    this.cells.window.append(this.window.root);
    this.priority = new Field({
      label: `priority of ${name}`,
      title: "A whole number; higher goes first. Enter applies, Escape reverts.",
      size: 4,
      apply: async (text) => {
        if (!/^-?\d{1,9}$/.test(text)) throw { message: `"${text}" is not a whole number` };
        return String((await set({ stream: name, priority: Number(text) })).priority);
      },
    });
    this.cells.priority.append(this.priority.root);
  }

  /** @param {string} colour */
  paint(colour) {
    this.body.style.setProperty("--stream", colour);
  }

  /** @param {boolean} on */
  point(on) {
    this.body.classList.toggle("pointed", on);
  }

  /**
   * @param {StreamSnapshot} stream
   * @param {string} why
   * @param {StreamSnapshot|null} before ten seconds ago
   * @param {number} seconds since then
   */
  update(stream, why, before, seconds) {
    this.stream = stream;
    if (!this.more.hidden) this.#detail();
    this.#set(this.label, "textContent", stream.label ?? "");
    this.#set(this.path, "textContent", `${stream.source} → ${stream.to.replace(/^rtp:\/\//, "")}`);
    const about = `${stream.source} → ${stream.to}\n${stream.encoding || "encoding not known yet"}, `
      + `period ${milliseconds(stream.period_ms)} ms, ${stream.link}, late frames: ${stream.late}`;
    this.#set(this.cells.stream, "title", about);
    const state = STATES[stream.state];
    this.#set(this.badge, "textContent", stream.state);
    this.#set(this.badge.dataset, "tone", state.tone);
    this.#set(this.badge, "title", stream.detail ? `${state.title}: ${stream.detail}` : state.title);

    this.#set(this.decodable, "textContent", percent(stream.decodable_share));
    this.#set(this.cells.decodable.dataset, "tone", toneOf(stream.decodable_share));
    const share = `${Math.floor((stream.decodable_share ?? 0) * 100)}%`;
    this.#set(this.bar.style, "--share", share);
    this.#set(this.ontime, "textContent", percent(stream.on_time_share));
    this.#set(this.cells.ontime.dataset, "tone", stream.on_time_share === null ? "none" : "");
    const sent = stream.sent_bytes - (before?.sent_bytes ?? 0);
    const [number, unit] = rateParts(before && seconds >= 1 ? (sent * 8) / seconds : stream.sent_bps);
    this.#set(this.rate[0], "textContent", number);
    this.#set(this.rate[1], "textContent", unit);
    const aim = stream.encoder_bps == null ? "" : rate(stream.encoder_bps);
    this.#set(this.aim, "textContent", aim && `of ${aim}`);
    this.#set(this.cells.rate, "title", aim && `Its encoder aims at ${aim}`);
    const violations = stream.violations - (before?.violations ?? 0);
    this.#set(this.cells.violations, "textContent", count(violations));
    this.#set(this.cells.violations.dataset, "tone", violations > 0 ? "bad" : "");
    this.#drops(droppedSince(stream, before));
    const [mean, p99] = [stream.queueing_mean_ms, stream.queueing_p99_ms];
    const delay = mean === null ? "–" : `${milliseconds(mean)} / ${milliseconds(p99)} ms`;
    this.#set(this.cells.delay, "textContent", delay);
    this.window.update(stream.window);
    this.priority.update(String(stream.priority));
    this.#set(this.why, "textContent", stream.detail || why);
    this.#set(this.why, "title", stream.detail ? `${stream.detail}\n${why}` : why);
    this.#set(this.why.dataset, "tone", stream.detail ? state.tone : "");
  }

  /** What the row has no room for: counters since the start, and what the node file says. */
  #detail() {
    const { stream } = this;
    if (!stream) return;
    const drops = ranked(stream.dropped);
    /** @type {[string, string][]} */
    const facts = [
      ["Why", this.why.textContent || "–"],
      ["Source", stream.source],
      ["To", stream.to],
      ["Encoding", `${stream.encoding || "not known yet"}, period ${milliseconds(stream.period_ms)} ms`],
      ["Link", `${stream.link || "–"}, weight ${stream.weight}, late frames: ${stream.late || "–"}`],
      ["Since the start", `${plural(stream.frames, "frame")} came, ${count(stream.sent)} sent (${bytes(stream.sent_bytes)}), `
        + `${count(stream.on_time)} on time, ${count(stream.decodable)} decodable`],
      ...reported(stream.received),
      ...aimed(stream.encoder_bps),
      ["Violations", `${count(stream.violations)}; ${plural(stream.missed, "deadline")} missed`],
      ["Drops", drops.map(([name, n]) => `${count(n)} ${reason(name).label}: ${reason(name).because}`).join("; ") || "none"],
      ["Waiting now", plural(stream.queued_frames, "frame")],
    ];
    if (this.details.childElementCount !== facts.length * 2) {
      this.details.replaceChildren(...facts.flatMap(([name]) => [make("dt", "", name), make("dd", "")]));
    }
    facts.forEach(([, text], n) => {
      const value = this.details.children[n * 2 + 1];
      if (value.textContent !== text) value.textContent = text;
    });
  }

  /** @param {[string, number][]} parts */
  #drops(parts) {
    const lost = parts.reduce((sum, [, n]) => sum + n, 0);
    this.#set(this.dropTotal, "textContent", count(lost));
    const text = parts.map(([name, n]) => `${reason(name).label} ${count(n)}`).join(", ");
    this.#set(this.dropText, "textContent", text);
    const lines = parts.map(([name, n]) => `${count(n)} ${reason(name).label}: ${reason(name).because}`);
    this.#set(this.cells.drops, "title", lines.join("\n"));
    for (const piece of /** @type {NodeListOf<HTMLElement>} */ (this.dropBar.childNodes)) {
      const mine = parts.filter(([name]) => reason(name).blame === piece.className);
      const n = mine.reduce((sum, [, n]) => sum + n, 0);
      this.#set(piece.style, "--share", `${lost > 0 ? Math.round((n / lost) * 100) : 0}%`);
    }
  }

  /**
   * Touches the page only where it changes: a property of an element, of its data, or of its style.
   * @param {HTMLElement|DOMStringMap|CSSStyleDeclaration} of
   * @param {string} key
   * @param {string} value
   */
  #set(of, key, value) {
    const seen = this.#seen.get(of) ?? this.#seen.set(of, {}).get(of);
    if (seen[key] === value) return;
    seen[key] = value;
    if (of instanceof CSSStyleDeclaration) of.setProperty(key, value);
    else Object.assign(of, { [key]: value });
  }
}

/** @param {number|null} share */
function toneOf(share) {
  if (share === null) return "none";
  return share < BAD ? "bad" : share < WARN ? "warn" : "good";
}
