// The streams as moving pictures with their sound, and in a comparison both senders' beside each other. Only
// what can be seen is asked for, no pictures while the page is hidden, and sound that is turned on.

import { Player, decodes } from "./player.js";
import { make } from "./make.js";
import { SoundPlayer, hears } from "./sound.js";

/** @typedef {import("./wire.js").VideoTrack} VideoTrack */
/** @typedef {import("./wire.js").MovingPicture} MovingPicture */
/** @typedef {import("./wire.js").Wire} Wire */

/** The server takes no longer list. */
const MOST = 64;
/** A picture that stands this long is said to stand. */
const STANDS_MS = 1000;
const LOOK_MS = 250;
const AGE = "How long ago the source's node took in what is shown; the way to this browser is not in it";

const MEANINGS = {
  received: "What the receiver got by its time, as it can be decoded",
  sent: "The frames that left this node on time, as they can be decoded; what becomes of them on the way is not known here",
};

/**
 * @typedef {object} Place
 * @property {Player|SoundPlayer} player
 * @property {HTMLElement} root
 * @property {HTMLElement} note
 * @property {HTMLElement} age
 * @property {boolean} images whether this track is had as images
 * @property {boolean} fails whether the browser could not decode it
 */

export class Videos {
  /** @type {Place[]} */
  #places = [];
  /** All that there were, so that a stream that comes back keeps its last picture, and its sound stays on. @type {Map<string, Place>} */
  #known = new Map();
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
      for (const { player } of this.#places) if (player instanceof Player) player.tick(now);
      requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  /** @param {VideoTrack[]} tracks */
  update(tracks) {
    const key = tracks.map(keyOf).join("\n");
    if (key !== this.#key) {
      this.#key = key;
      this.#build(tracks);
    }
    tracks.forEach((track, n) => {
      const place = this.#places[n];
      if (track.codec === place.player.codec) return;
      place.player.codec = track.codec;
      place.player.reset();
      place.images = !track.sound && (!decodes || track.codec === "");
      place.fails = false;
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
    /** @type {Map<string, HTMLElement>} */
    const cards = new Map();
    this.#places = tracks.map((track) => {
      const place = this.#known.get(keyOf(track)) ?? this.#make(track);
      this.#known.set(keyOf(track), place);
      place.player.reset();
      const card = cards.get(track.stream)
        ?? make("figure", "video card", make("figcaption", "", track.stream), make("div", "sides"));
      cards.set(track.stream, card);
      card.lastElementChild?.append(place.root);
      this.observer.observe(place.root);
      return place;
    });
    this.root.replaceChildren(...cards.values());
    this.root.hidden = cards.size === 0;
    this.root.dataset.few = String(cards.size < 3);
    this.root.dataset.pictures = String(new Set(tracks.filter(({ sound }) => !sound).map(({ stream }) => stream)).size);
    this.root.dataset.sides = String(new Set(tracks.map(({ by }) => by)).size);
    // The server forgets what was asked for when its list changes.
    this.#asked = "";
    this.#ask();
  }

  /** @param {VideoTrack} track @returns {Place} */
  #make(track) {
    const note = make("span", "note");
    const age = make("span", "age");
    age.title = AGE;
    age.id = `age-${this.#known.size}`;
    if (track.sound) {
      const root = make("div", "side sound", note, age);
      const player = new SoundPlayer(track.sound, root);
      const button = make("button", "toggle", "Sound");
      button.type = "button";
      button.title = "Play the sound of this stream";
      button.setAttribute("aria-pressed", "false");
      button.onclick = () => {
        player.turn(!player.isOn);
        button.setAttribute("aria-pressed", String(player.isOn));
        this.#ask();
      };
      if (hears) root.prepend(button);
      return { player, root, note, age, images: false, fails: false };
    }
    const canvas = make("canvas", "");
    [canvas.width, canvas.height] = [16, 9];
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${track.stream}, ${track.by} ${track.label}`);
    canvas.setAttribute("aria-describedby", age.id);
    const label = make("span", "label", track.by ? `${track.by}, ${track.label}` : track.label);
    label.title = MEANINGS[/** @type {"received"|"sent"} */ (track.label)] ?? "";
    const root = make("div", "side", canvas, label, note, age);
    const whole = make("button", "whole");
    whole.type = "button";
    whole.title = "Full screen, and back; also by a double click";
    whole.setAttribute("aria-label", `${track.stream} in full screen`);
    const turn = () => void (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen());
    whole.onclick = turn;
    if (document.fullscreenEnabled) {
      root.append(whole);
      canvas.ondblclick = turn;
    }
    const player = new Player(canvas, () => {
      place.images = true;
      place.fails = true;
      this.#ask();
    });
    /** @type {Place} */
    const place = { player, root, note, age, images: !decodes || track.codec === "", fails: false };
    player.codec = track.codec;
    return place;
  }

  #ask() {
    const isWanted = (/** @type {Place} */ { player, root }) => (
      player instanceof SoundPlayer ? player.isOn : this.#seen.has(root) && !document.hidden);
    const numbers = this.#places.flatMap((place, n) => (isWanted(place) ? [n] : []));
    const wanted = numbers.slice(0, MOST).map((n) => [n, this.#places[n].images ? "images" : "coded"]);
    const key = JSON.stringify(wanted);
    if (key === this.#asked) return;
    this.#asked = key;
    this.wire.watch(wanted);
  }

  /** Says how old what is shown is, and of which tracks nothing new can be shown. */
  #look() {
    const now = performance.now();
    for (const { player, root, note, age, fails } of this.#places) {
      const stood = player.stood(now);
      const stands = stood === null || stood > STANDS_MS;
      const isMute = player instanceof SoundPlayer && !player.isOn;
      root.classList.toggle("stands", stands && !isMute);
      const nothing = player instanceof Player ? "no picture yet" : "no sound yet";
      const unable = player instanceof Player ? !decodes : !hears;
      const reason = unable ? "open the page by https" : fails ? `this browser does not decode ${player.codec}` : "";
      const why = reason ? `${nothing}: ${reason}` : isMute ? "" : nothing;
      write(note, stood === null ? why : stands ? `stands for ${(stood / 1000).toFixed(0)} s` : "");
      const old = player.age === null || stood === null ? null : player.age + (stands ? stood : 0);
      write(age, old === null ? "" : `${(old / 1000).toFixed(old < 9_995 ? 2 : 0)} s old`);
    }
  }
}

/** @param {VideoTrack} track */
function keyOf({ stream, by, label }) {
  return `${stream}\t${by}\t${label}`;
}

/** @param {HTMLElement} element @param {string} text */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
