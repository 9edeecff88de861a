// The streams as moving pictures, and in a comparison both senders' beside each other. Only what can
// be seen is asked for, and nothing while the page is hidden.

import { Player, decodes } from "./player.js";
import { make } from "./row.js";

/** @typedef {import("./wire.js").VideoTrack} VideoTrack */
/** @typedef {import("./wire.js").MovingPicture} MovingPicture */
/** @typedef {import("./wire.js").Wire} Wire */

/** The server takes no longer list. */
const MOST = 64;
/** A picture that stands this long is said to stand. */
const STANDS_MS = 1000;
const LOOK_MS = 250;

const MEANINGS = {
  received: "What the receiver got by its time, as it can be decoded",
  sent: "The frames that left this node on time, as they can be decoded; what becomes of them on the way is not known here",
};

/**
 * @typedef {object} Place
 * @property {VideoTrack} track
 * @property {Player} player
 * @property {HTMLElement} root
 * @property {HTMLElement} note
 * @property {boolean} images whether this track is had as images
 */

export class Videos {
  /** @type {Place[]} */
  #places = [];
  /** @type {Set<Element>} */
  #seen = new Set();
  #key = "";
  #asked = "";

  /** @param {HTMLElement} root @param {Wire} wire */
  constructor(root, wire) {
    this.root = root;
    this.wire = wire;
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        if (isIntersecting) this.#seen.add(target);
        else this.#seen.delete(target);
      }
      this.#ask();
    }, { rootMargin: "50px" });
    document.addEventListener("visibilitychange", () => this.#ask());
    setInterval(() => this.#look(), LOOK_MS);
    const tick = (/** @type {number} */ now) => {
      for (const { player } of this.#places) player.tick(now);
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  /** @param {VideoTrack[]} tracks */
  update(tracks) {
    const key = tracks.map(({ stream, by, label }) => `${stream}\t${by}\t${label}`).join("\n");
    if (key !== this.#key) {
      this.#key = key;
      this.#build(tracks);
    }
    tracks.forEach((track, n) => {
      const place = this.#places[n];
      if (track.codec === place.player.codec) return;
      place.player.codec = track.codec;
      place.player.reset();
      place.images = !decodes || track.codec === "";
      this.#ask();
    });
  }

  /** Asks anew: the server forgets at a new connection. */
  again() {
    this.#asked = "";
    for (const { player } of this.#places) player.reset();
    this.#ask();
  }

  /** @param {MovingPicture} picture */
  draw(picture) {
    const place = this.#places[picture.track];
    // What was asked for before in another form is on its way still.
    if (place && place.images === picture.image) place.player.take(picture);
  }

  /** @param {VideoTrack[]} tracks */
  #build(tracks) {
    this.observer.disconnect();
    this.#seen.clear();
    for (const { player } of this.#places) player.reset();
    /** @type {Map<string, HTMLElement>} */
    const cards = new Map();
    this.#places = tracks.map((track, n) => {
      const caption = make("figcaption", "", track.stream);
      const card = cards.get(track.stream) ?? make("figure", "video card", caption, make("div", "sides"));
      cards.set(track.stream, card);
      const canvas = make("canvas", "");
      [canvas.width, canvas.height] = [16, 9];
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${track.stream}, ${track.by} ${track.label}`);
      const note = make("span", "note");
      const label = make("span", "label", track.by ? `${track.by}, ${track.label}` : track.label);
      label.title = MEANINGS[/** @type {"received"|"sent"} */ (track.label)] ?? "";
      const root = make("div", "side", canvas, label, note);
      card.lastElementChild?.append(root);
      const player = new Player(canvas, () => {
        this.#places[n].images = true;
        this.#ask();
      });
      player.codec = track.codec;
      this.observer.observe(root);
      return { track, player, root, note, images: !decodes || track.codec === "" };
    });
    this.root.replaceChildren(...cards.values());
    this.root.hidden = cards.size === 0;
    this.root.dataset.few = String(cards.size < 3);
    this.root.dataset.sides = String(new Set(tracks.map(({ by }) => by)).size);
  }

  #ask() {
    const seen = this.#places.flatMap((place, n) => (this.#seen.has(place.root) ? [n] : []));
    const wanted = document.hidden ? []
      : seen.slice(0, MOST).map((n) => [n, this.#places[n].images ? "images" : "coded"]);
    const key = JSON.stringify(wanted);
    if (key === this.#asked) return;
    this.#asked = key;
    this.wire.watch(wanted);
  }

  /** Says of which tracks nothing new can be shown. */
  #look() {
    const now = performance.now();
    for (const { player, root, note } of this.#places) {
      const stood = player.stood(now);
      const stands = stood === null || stood > STANDS_MS;
      root.classList.toggle("stands", stands);
      const text = stood === null ? "no picture yet" : stands ? `stands for ${(stood / 1000).toFixed(0)} s` : "";
      if (note.textContent !== text) note.textContent = text;
    }
  }
}
