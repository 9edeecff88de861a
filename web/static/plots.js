// Three plots of the last two minutes, or of an hour: decodable share, rates stacked under the link's, queueing
// delay. Colours are those of the table; a stream pointed at in one place shows in all.

import uPlot from "./vendor/uplot-1.6.32/uPlot.esm.js";
import { milliseconds, rate } from "./format.js";
import { SPAN } from "./history.js";
import { make } from "./make.js";

/** @typedef {import("./history.js").Samples} Samples */
/** @typedef {{times: number[], streams: Map<string, {decodable: Samples, rate: Samples, delay: Samples}>, links: Map<string, Samples>}} Lines */
/** @typedef {import("./wire.js").NodeSnapshot} NodeSnapshot */

/** Hues that differ most between neighbours; twelve can be told apart, then they come again. */
const HUES = [252, 62, 155, 330, 195, 25, 290, 110, 225, 85, 350, 175];

/** Above this many streams, plots are drawn half as often. */
const MANY = 24;

/** @returns {boolean} */
export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/**
 * The colour of a stream, everywhere on the page.
 * @param {number} index
 * @param {boolean} dark
 */
export function colour(index, dark) {
  const round = Math.floor(index / HUES.length) % 3;
  const light = (dark ? 0.76 : 0.6) + [0, -0.1, 0.07][round];
  return `oklch(${light} 0.135 ${HUES[index % HUES.length]})`;
}

/**
 * @typedef {object} Kind
 * @property {string} title
 * @property {string} meaning
 * @property {"decodable"|"rate"|"delay"} line
 * @property {(value: number) => string} tick
 * @property {(value: number) => string} text
 * @property {number} least the top of the scale is at least this
 * @property {number} [most] and at most this
 */

/** @type {Kind[]} */
const KINDS = [
  {
    title: "Decodable, %",
    meaning: "Frames on time whose references all were too, over ten seconds",
    line: "decodable",
    tick: (value) => value.toFixed(0),
    text: (value) => `${(Math.floor(value * 10) / 10).toFixed(1)} %`,
    least: 100,
    most: 100,
  },
  {
    title: "Rate sent, Mbit/s",
    meaning: "Streams stacked; the dashed line is the rate of all links together",
    line: "rate",
    tick: (value) => String(+(value / 1e6).toPrecision(3)),
    text: rate,
    least: 1e5,
  },
  {
    title: "Queueing, 99th percentile, ms",
    meaning: "From arrival to the last packet sent, over ten seconds",
    line: "delay",
    tick: (value) => value.toFixed(0),
    text: (value) => `${milliseconds(value)} ms`,
    least: 20,
  },
];

class Plot {
  /** @type {uPlot|null} */
  chart = null;
  /** @type {string[]} */
  names = [];
  /** @type {(number|null)[][]} */
  raw = [];

  /**
   * @param {Kind} kind
   * @param {Plots} plots
   */
  constructor(kind, plots) {
    this.kind = kind;
    this.plots = plots;
    const title = make("span", "caption", kind.title);
    title.title = kind.meaning;
    this.readout = make("span", "readout");
    this.caption = make("figcaption", "", title, this.readout);
    this.place = make("div", "place");
    this.root = make("figure", "card plot", this.caption, this.place);
    new ResizeObserver(() => this.#resize()).observe(this.place);
  }

  get stacked() {
    return this.kind.line === "rate";
  }

  /**
   * Makes the chart anew: for another list of streams or another colour scheme.
   * @param {string[]} names
   */
  build(names) {
    this.chart?.destroy();
    this.names = names;
    const style = getComputedStyle(document.documentElement);
    const [ink, grid, surface] = ["--quiet", "--grid", "--surface"].map((name) => style.getPropertyValue(name).trim());
    const faint = style.getPropertyValue("--faint").trim();
    const dark = isDark();
    const width = names.length > MANY ? 1 : 1.5;
    const tone = (/** @type {number} */ index) => () => {
      const pointed = this.plots.pointed;
      return pointed === null || pointed === names[index] ? colour(index, dark) : faint;
    };
    const edge = names.length > MANY ? undefined : surface;
    const lines = names.map((_, index) => ({
      stroke: this.stacked ? edge : tone(index),
      fill: this.stacked ? tone(index) : undefined,
      width: this.stacked ? 0.5 : width,
      points: { show: false },
    }));
    // A stack is painted from its top down, each area over the one behind it.
    if (this.stacked) lines.reverse();
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    /** @type {uPlot.Options} */
    const options = {
      width: Math.max(120, this.place.clientWidth),
      height: Math.max(80, this.place.clientHeight),
      padding: [6, 16, 0, 0],
      legend: { show: false },
      cursor: {
        points: { show: false },
        drag: { x: false, y: false },
        y: false,
        sync: { key: "time", setSeries: false },
      },
      scales: {
        x: { time: false, range: () => [-this.plots.span, 0] },
        y: { range: (_, bottom, top) => [this.#bottom(bottom), this.#top(top)] },
      },
      axes: [
        {
          ...axis,
          size: 20,
          gap: 3,
          splits: () => [1, 0.75, 0.5, 0.25, 0].map((part) => -part * this.plots.span),
          // The first would run into the other axis.
          values: () => (this.plots.span > SPAN
            ? ["", "45 min", "30 min", "15 min", "now"] : ["", "90 s", "60 s", "30 s", "now"]),
        },
        {
          ...axis,
          size: 38,
          gap: 4,
          splits: (_, __, bottom, top) => [bottom, (bottom + top) / 2, top],
          values: (_, splits) => splits.map(this.kind.tick),
        },
      ],
      series: [
        {},
        ...lines,
        { stroke: ink, width: 1.5, dash: [5, 3], points: { show: false } },
      ],
      hooks: { setCursor: [() => this.say()] },
    };
    this.chart = new uPlot(options, [[], ...names.map(() => []), []], this.place);
    this.chart.over.addEventListener("pointermove", () => this.#aim());
    this.chart.over.addEventListener("pointerleave", () => this.plots.point(null));
  }

  /**
   * A scale that changes in few and round steps.
   * @param {number|null} top of the data
   */
  #top(top) {
    if (this.kind.most) return this.kind.most;
    const value = Math.max(this.kind.least, (top ?? 0) * 1.05);
    const step = 10 ** Math.floor(Math.log10(value));
    return ([1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((n) => n * step >= value) ?? 10) * step;
  }

  /**
   * Shares are high as a rule: then only the upper part of the scale is shown.
   * @param {number|null} bottom of the data
   */
  #bottom(bottom) {
    if (!this.kind.most || bottom === null) return 0;
    return [80, 50].find((floor) => bottom > floor + 2) ?? 0;
  }

  #resize() {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (width > 0 && height > 0) this.chart?.setSize({ width, height });
  }

  /**
   * @param {Lines} history
   * @param {NodeSnapshot} node
   */
  draw(history, node) {
    if (!this.chart) return;
    const now = node.uptime_ms / 1000;
    const times = history.times.map((time) => time - now);
    const empty = () => new Array(times.length).fill(null);
    this.raw = this.names.map((name) => history.streams.get(name)?.[this.kind.line] ?? empty());
    let lines = this.raw;
    let limit = empty();
    if (this.stacked) {
      const sum = new Array(times.length).fill(0);
      lines = this.raw.map((line) => line.map((value, n) => (value === null ? null : (sum[n] += value))));
      lines.reverse();
      limit = times.map((_, n) => {
        const rates = [...history.links.values()].map((line) => line[n]).filter((each) => each !== null);
        return rates.length > 0 ? rates.reduce((a, b) => /** @type {number} */ (a) + /** @type {number} */ (b), 0) : null;
      });
    }
    this.chart.setData(/** @type {uPlot.AlignedData} */ ([times, ...lines, limit]));
    this.say();
  }

  /** Points at the stream nearest to the pointer. */
  #aim() {
    const { idx, top } = this.chart?.cursor ?? {};
    if (!this.chart || idx == null || top == null) return;
    const at = this.chart.posToVal(top, "y");
    let nearest = null;
    let distance = Infinity;
    let below = 0;
    for (let index = 0; index < this.names.length; index++) {
      const value = this.raw[index][idx];
      if (value == null) continue;
      const middle = this.stacked ? below + value / 2 : value;
      below += value;
      const away = this.stacked ? Math.max(0, Math.abs(at - middle) - value / 2) : Math.abs(at - middle);
      if (away < distance) [nearest, distance] = [this.names[index], away];
    }
    this.plots.point(nearest);
  }

  /** Names the stream pointed at and its value; without one, the value to look at first. */
  say() {
    const pointed = this.plots.pointed;
    const idx = this.chart?.cursor.idx ?? (this.raw[0]?.length ?? 0) - 1;
    const valueOf = (/** @type {number} */ index) => this.raw[index]?.[idx] ?? null;
    let text = "";
    if (pointed !== null) {
      const value = valueOf(this.names.indexOf(pointed));
      text = `${pointed} ${value === null ? "–" : this.kind.text(value)}`;
    } else if (this.stacked) {
      text = `all ${rate(this.raw.reduce((sum, line) => sum + (line[idx] ?? 0), 0))}`;
    } else {
      const all = this.names.map((name, index) => ({ name, value: valueOf(index) }));
      const known = /** @type {{name: string, value: number}[]} */ (all.filter(({ value }) => value !== null));
      const low = this.kind.line === "decodable";
      known.sort((a, b) => (low ? a.value - b.value : b.value - a.value));
      if (known.length > 0) text = `${low ? "lowest" : "highest"}: ${known[0].name} ${this.kind.text(known[0].value)}`;
    }
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }
}

export class Plots {
  /** The stream that is pointed at. @type {string|null} */
  pointed = null;
  /** Seconds that are shown. */
  span = SPAN;
  #drawn = 0;
  #samples = 0;

  /**
   * @param {HTMLElement} root
   * @param {(name: string|null) => void} point called when a stream in a plot is pointed at
   */
  constructor(root, point) {
    this.point = point;
    this.plots = KINDS.map((kind) => new Plot(kind, this));
    root.append(...this.plots.map((plot) => plot.root));
  }

  /** @param {string[]} names */
  build(names) {
    for (const plot of this.plots) plot.build(names);
    this.#drawn = 0;
  }

  /**
   * Draws what is new; many streams less often.
   * @param {Lines} history
   * @param {NodeSnapshot} node
   */
  update(history, node) {
    const now = performance.now();
    const last = history.times.at(-1) ?? 0;
    // Coarse samples move on as time does.
    const coarse = this.span > SPAN;
    if ((coarse && now - this.#drawn < 950) || (!coarse && last === this.#samples) || (node.streams.length > MANY && now - this.#drawn < 950)) return;
    this.#drawn = now;
    this.#samples = last;
    for (const plot of this.plots) plot.draw(history, node);
  }

  /** @param {string|null} name */
  highlight(name) {
    if (name === this.pointed) return;
    this.pointed = name;
    for (const plot of this.plots) {
      plot.chart?.redraw(false);
      plot.say();
    }
  }
}
