// Why frames were dropped, in words: a label, a sentence's end, and what kind of loss it is.

import { count, lately, plural } from "./format.js";

/** @typedef {import("./wire.js").StreamSnapshot} StreamSnapshot */

/**
 * `chosen`: the scheduler gave it up for the good of others; `late`: time ran out;
 * `fault`: something is too small or broken.
 * @typedef {"chosen"|"late"|"fault"} Blame
 */

/**
 * Label, sentence's end and kind of each reason.
 * @type {Record<string, [string, string, Blame]>}
 */
const REASONS = {
  "group-skipped": ["group skipped", "whole groups skipped so that others could be decoded", "chosen"],
  sacrificed: ["sacrificed", "the least loss among frames that could not all be on time", "chosen"],
  "reference-lost": ["reference lost", "a frame that they refer to was lost, so they could not be decoded", "chosen"],
  expired: ["expired", "their deadlines passed while they waited", "late"],
  "too-late": ["too late", "they could not have been sent whole by their deadlines", "late"],
  full: ["queue full", "the stream's ring or pool, or the link's queue, was full", "fault"],
  unusable: ["unusable", "malformed, or too large for the pool", "fault"],
  removed: ["removed", "the stream was removed while they waited", "fault"],
  "send-failed": ["send failed", "the socket refused them", "fault"],
};

/** @param {string} name */
export function reason(name) {
  const [label, because, blame] = REASONS[name] ?? [name, name, /** @type {Blame} */ ("fault")];
  return { label, because, blame };
}

/**
 * The drops, most first.
 * @param {Record<string, number>} dropped
 * @returns {[string, number][]}
 */
export function ranked(dropped) {
  return Object.entries(dropped)
    .filter(([, n]) => n > 0)
    .sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

/** @param {Record<string, number>} dropped */
export function total(dropped) {
  return Object.values(dropped).reduce((sum, n) => sum + n, 0);
}

/**
 * The frames that were dropped between two looks, by reason, most first.
 * @param {StreamSnapshot} now
 * @param {StreamSnapshot|null} before null: since the start
 * @returns {[string, number][]}
 */
export function droppedSince(now, before) {
  const since = Object.entries(now.dropped).map(([name, n]) => [name, n - (before?.dropped[name] ?? 0)]);
  return ranked(Object.fromEntries(since));
}

/**
 * What became of a stream's frames lately, and why, in plain sentences.
 * @param {StreamSnapshot} now
 * @param {StreamSnapshot|null} before the same stream earlier; null: count since the start
 * @param {number} seconds between the two
 * @param {(lost: Map<string, number>) => string} causeOf what made it lose these, and what would help
 */
export function why(now, before, seconds, causeOf) {
  const since = (/** @type {"frames"|"violations"|"on_time"|"sent"} */ key) => now[key] - (before?.[key] ?? 0);
  const when = before ? `Last ${lately(seconds)}` : "Since the start";
  const drops = droppedSince(now, before);
  const lost = drops.reduce((sum, [, n]) => sum + n, 0);
  if (lost === 0) return `${when}: ${unharmed(since("frames"), since("sent") - since("on_time"))}`;
  return `${when}: ${plural(lost, "drop")}. ${causeOf(new Map(drops))}`;
}

/**
 * @param {number} frames
 * @param {number} late
 */
function unharmed(frames, late) {
  if (frames <= 0) return "no frames came.";
  if (late > 0) return `nothing dropped, ${plural(late, "frame")} late.`;
  return `nothing dropped, ${plural(frames, "frame")} came.`;
}
