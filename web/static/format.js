// Numbers and times as text. Widths change little, so that nothing beside them moves.

const NONE = "–";
const THIN = "\u202f";

/**
 * A share of 1 in percent, rounded down: 100 % means all.
 * @param {number|null|undefined} share
 */
export function percent(share) {
  if (share === null || share === undefined) return NONE;
  const tenths = Math.floor(share * 1000 + 1e-6);
  return tenths >= 1000 ? "100" : `${Math.floor(tenths / 10)}.${tenths % 10}`;
}

/** @param {number} value */
function three(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/**
 * A number and its unit, three digits.
 * @param {number} bps
 * @returns {[string, string]}
 */
export function rateParts(bps) {
  if (bps >= 999.5e6) return [three(bps / 1e9), "Gbit/s"];
  if (bps >= 999.5e3) return [three(bps / 1e6), "Mbit/s"];
  return [(bps / 1e3).toFixed(0), "kbit/s"];
}

/** @param {number} bps */
export function rate(bps) {
  return rateParts(bps).join(" ");
}

/**
 * A rate as the node writes it, exactly: `6 Mbit/s`.
 * @param {number} bps
 */
export function rateExact(bps) {
  /** @type {[number, string][]} */
  const units = [[1e9, "Gbit/s"], [1e6, "Mbit/s"], [1e3, "kbit/s"]];
  const [scale, unit] = units.find(([scale]) => bps > 0 && bps % scale === 0) ?? [1, "bit/s"];
  return `${bps / scale} ${unit}`;
}

/** @param {number} n of bytes */
export function bytes(n) {
  if (n >= 1e9) return `${three(n / 1e9)} GB`;
  if (n >= 1e6) return `${three(n / 1e6)} MB`;
  return n >= 1e3 ? `${(n / 1e3).toFixed(0)} kB` : `${n} B`;
}

/** @param {number|null|undefined} ms */
export function milliseconds(ms) {
  if (ms === null || ms === undefined) return NONE;
  return ms >= 9.95 ? ms.toFixed(0) : ms.toFixed(1);
}

/** @param {number} n */
export function count(n) {
  return String(n).replace(/\B(?=(\d{3})+$)/g, THIN);
}

/**
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** @param {number} ms */
export function uptime(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const days = Math.floor(seconds / 86400);
  const clock = `${two(Math.floor(seconds / 3600) % 24)}:${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return days > 0 ? `${days} d ${clock}` : clock;
}

/** @param {number} seconds */
export function lately(seconds) {
  return `${Math.max(1, Math.floor(seconds))} s`;
}
