// What makes a stream lose frames, and what would help: from the link's load, from what else shares
// it, and from the reasons of the drops.

import { milliseconds, percent, rate } from "./format.js";

/** @typedef {import("./wire.js").LinkSnapshot} LinkSnapshot */
/** @typedef {import("./wire.js").StreamSnapshot} StreamSnapshot */

/** A link that was used less than this while frames waited is held up by the machine. */
const HELD_UP = 0.9;

/**
 * The link's cause for losing frames and its remedy; empty if it has none.
 * @param {StreamSnapshot} stream
 * @param {Map<string, number>} lost frames by reason, of late
 * @param {LinkSnapshot|undefined} link
 * @param {number} needs what all streams of the link offered on the average of late
 * @param {StreamSnapshot[]} sharing all streams of the link
 */
export function cause(stream, lost, link, needs, sharing) {
  const of = (/** @type {string} */ reason) => lost.get(reason) ?? 0;
  if (of("send-failed") > 0) {
    return `The system refuses packets to ${stream.to}; look whether that address can be reached.`;
  }
  if (of("full") > 0) return "Its queue was full; give the stream a larger pool and ring in the node file.";
  if (of("unusable") > 0) return "A frame does not fit its pool; give the stream a larger pool in the node file.";
  if (!link) return "";
  const carries = rate(link.rate_bps);
  if (needs > link.rate_bps) {
    const first = given(sharing);
    return `${link.name} is too small: needs ${rate(needs)}, the link carries ${carries}${first ? `; ${first}` : ""}. `
      + "Raise its rate if it carries more, or lower the bitrate of a source.";
  }
  if (link.used_share !== null && link.used_share < HELD_UP) {
    return `The machine wakes up late (${milliseconds(link.late_p99_ms)} ms), only ${percent(link.used_share)} % of `
      + `${link.name} was used; run fewer other programs, or raise catch_up.`;
  }
  return `A burst: on average ${link.name} needs ${rate(needs)} of ${carries}, but some frames can't pass within `
    + "their delay. A longer delay, or a source with smaller intra pictures, helps.";
}

/**
 * Who gives way first, by what the streams of a link differ in.
 * @param {StreamSnapshot[]} sharing
 */
function given(sharing) {
  if (sharing.length < 2) return "";
  const least = (/** @type {(stream: StreamSnapshot) => number} */ of) => {
    const values = sharing.map(of);
    const low = Math.min(...values);
    const those = sharing.filter((_, n) => values[n] === low);
    return those.length < sharing.length && those.length <= 2 ? those.map(({ name }) => name).join(" and ") : "";
  };
  const has = (/** @type {string} */ names, /** @type {string} */ what) =>
    `${names} ${names.includes(" and ") ? "have" : "has"} the ${what}`;
  const priority = least((stream) => stream.priority);
  if (priority) return has(priority, "lowest priority");
  const weight = least((stream) => stream.weight);
  if (weight) return has(weight, "lowest weight");
  const window = least((stream) => {
    const [lose, of] = stream.window.split("/").map(Number);
    return of > 0 ? -lose / of : 0;
  });
  return window ? `${window} may lose most, by ${window.includes(" and ") ? "their windows" : "its window"}` : "";
}
