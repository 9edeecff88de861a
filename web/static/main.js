// Joins the parts: what the wire brings goes to history, table, links, plots and pictures; what
// somebody changes goes back.

import { Channels } from "./channels.js";
import { ComparisonLine } from "./comparison.js";
import { Connection } from "./connection.js";
import { plural, uptime } from "./format.js";
import { History, SPAN } from "./history.js";
import { Links } from "./links.js";
import { Past } from "./past.js";
import { Plots, colour, isDark } from "./plots.js";
import { Stacks } from "./stacks.js";
import { StreamTable } from "./table.js";
import { Thumbs } from "./thumbs.js";
import { Videos } from "./videos.js";
import { Wire } from "./wire.js";

/** @typedef {import("./wire.js").NodeSnapshot} NodeSnapshot */

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @returns {T}
 */
function part(id) {
  return /** @type {T} */ (document.getElementById(id));
}

// The token has become a cookie; keep it out of the history and of what people copy.
if (new URLSearchParams(location.search).has("token")) history.replaceState(null, "", location.pathname);

const address = new URL("/ws", location.href);
address.protocol = location.protocol === "https:" ? "wss:" : "ws:";

/** @type {NodeSnapshot|null} */
let newest = null;
let framed = false;
/** @type {string|null} */
let pinned = null;

const past = new History();
const hour = new Past(part("alarm"), part("events"));
const connection = new Connection(part("connection"), part("main"));
const wire = new Wire(address, {
  tracks: (list) => videos.update(list),
  snapshot(node, more) {
    newest = node;
    compared.update(more.comparison, node.links);
    hour.alarms(more.alarms);
    past.push(node);
    if (!framed) requestAnimationFrame(show);
    framed = true;
  },
  picture: (index, number, jpeg) => thumbs.draw(index, number, jpeg),
  moving: (picture) => videos.draw(picture),
  link(now) {
    if (now.kind === "open") {
      thumbs.again();
      videos.again();
    }
    connection.update(now);
  },
});
const set = (/** @type {Record<string, string|number>} */ change) => wire.set(change);
const videos = new Videos(part("videos"), wire);
const compared = new ComparisonLine(part("comparison"), set);
const links = new Links(part("links"), set);
const plots = new Plots(part("plots"), point);
const table = new StreamTable(
  part("streams"),
  { order: part("order"), filter: part("filter"), shown: part("shown"), empty: part("empty") },
  past,
  {
    set,
    point,
    pin(name) {
      pinned = pinned === name ? null : name;
      table.pinned(pinned);
      point(null);
    },
    seen(indices) {
      thumbs.visible = indices;
      thumbs.changed();
    },
  },
);
const thumbs = new Thumbs(wire, (index) => table.rows[index]?.canvas ?? null);

/**
 * A stream pointed at anywhere is pointed out everywhere; a pinned one when none is.
 * @param {string|null} name
 */
function point(name) {
  const now = name ?? pinned;
  plots.highlight(now);
  table.point(now);
}

const paint = (/** @type {number} */ index) => colour(index, isDark());

function show() {
  framed = false;
  const node = newest;
  if (!node) return;
  text("name", node.name);
  document.title = `${node.name} – Selvedge`;
  const running = node.streams.filter((stream) => stream.state === "running").length;
  text("summary", `${plural(node.streams.length, "stream")}, ${running} running`);
  text("uptime", uptime(node.uptime_ms));
  links.update(node.links);
  if (table.update(node, paint)) {
    plots.build(node.streams.map((stream) => stream.name));
    thumbs.again();
  }
  plots.update(plots.span > SPAN ? hour : past, node);
}

for (const [id, span] of /** @type {[string, number][]} */ ([["minutes", SPAN], ["hour", 3600]])) {
  part(id).addEventListener("click", () => {
    plots.span = span;
    for (const each of ["minutes", "hour"]) part(each).setAttribute("aria-pressed", String(each === id));
    if (newest) plots.build(newest.streams.map((stream) => stream.name));
    show();
  });
}

/**
 * @param {string} id
 * @param {string} value
 */
function text(id, value) {
  const element = part(id);
  if (element.textContent !== value) element.textContent = value;
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) wire.retry();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  table.paint(paint);
  if (newest) plots.build(newest.streams.map((stream) => stream.name));
});
new Channels(part("channels"));
new Stacks(part("stacks"));
wire.open();
