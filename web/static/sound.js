// Plays one track of sound through the browser's decoder (WebCodecs), in step with the pictures. Nothing is
// asked for before the viewer turns it on: browsers play no sound before either.

import { Pace } from "./player.js";

/** @typedef {import("./wire.js").MovingPicture} MovingPicture */

/** Sound goes to the decoder this long before it is played. */
const AHEAD_MS = 400;
const LOOK_MS = 50;
/** Pieces that may wait for their time: a minute of them. */
const WAITING_MAX = 3000;
/** Pieces follow each other without a gap, until their times differ by more from that. In seconds. */
const APART = 0.15;
/** Sound begins so much late, since it has a gap where a picture would only be shown a little later. In seconds. */
const SLACK = 0.06;
/** A piece that comes later is of no use. In seconds. */
const LATE = 0.5;

/** Whether this browser decodes sound here: only pages from this machine, or over TLS, may. */
export const hears = typeof AudioDecoder === "function";

export class SoundPlayer {
  /** @type {AudioDecoder|null} */
  #decoder = null;
  /** @type {AudioContext|null} */
  #context = null;
  /** @type {MovingPicture[]} */
  #coded = [];
  #pace = new Pace();
  /** When the last piece ends, by the context's clock. */
  #ends = 0;
  /** The last piece that was played, by the page's clock. @type {{at: number, age: number|null, pieces: number}} */
  #heard = { at: 0, age: null, pieces: 0 };
  #timer = 0;

  /** @param {{rate: number, channels: number}} form @param {HTMLElement} root counts the pieces for tests */
  constructor(form, root) {
    this.form = form;
    this.root = root;
    this.codec = "";
  }

  get isOn() {
    return this.#context !== null;
  }

  /** Must be called while a button is pressed. @param {boolean} on */
  turn(on) {
    this.reset();
    clearInterval(this.#timer);
    void this.#context?.close();
    this.#context = on ? new AudioContext({ sampleRate: this.form.rate, latencyHint: "interactive" }) : null;
    if (on) this.#timer = setInterval(() => this.tick(performance.now()), LOOK_MS);
  }

  reset() {
    if (this.#decoder?.state !== "closed") this.#decoder?.close();
    this.#decoder = null;
    this.#coded = [];
    this.#pace.reset();
    this.#ends = 0;
    this.#heard.at = 0;
  }

  /** Takes a piece that came just now. @param {MovingPicture} piece */
  take(piece) {
    if (!this.isOn) return;
    const now = performance.now();
    if (this.#pace.isOther(piece, now)) this.reset();
    this.#pace.take(piece, now);
    this.#coded.push(piece);
    if (this.#coded.length > WAITING_MAX) this.#coded.shift();
  }

  /** Decodes what is played soon. @param {number} now as `performance.now` */
  tick(now) {
    while (this.#coded.length > 0 && this.#pace.at(this.#coded[0].present) - AHEAD_MS <= now) {
      this.#decode(/** @type {MovingPicture} */ (this.#coded.shift()));
    }
  }

  /** @param {MovingPicture} piece */
  #decode({ present, bytes }) {
    try {
      if (this.#decoder?.state !== "configured") {
        const { rate, channels } = this.form;
        this.#decoder = new AudioDecoder({ output: (data) => this.#play(data), error: () => this.reset() });
        this.#decoder.configure({ codec: this.codec, sampleRate: rate, numberOfChannels: channels });
      }
      this.#decoder.decode(new EncodedAudioChunk({ type: "key", timestamp: present, data: bytes }));
    } catch {
      this.reset();
    }
  }

  /** @param {AudioData} data */
  #play(data) {
    const context = this.#context;
    const now = performance.now();
    if (context !== null && context.state === "running") {
      const soon = context.currentTime;
      const at = soon + (this.#pace.at(data.timestamp) - now) / 1000 + SLACK - (context.outputLatency || 0);
      const next = Math.abs(at - this.#ends) < APART ? this.#ends : at;
      const begin = next < soon ? soon + SLACK : next;
      if (at > soon - LATE) {
        const until = (begin - soon) * 1000;
        const sound = context.createBuffer(data.numberOfChannels, data.numberOfFrames, data.sampleRate);
        for (let channel = 0; channel < data.numberOfChannels; channel++) {
          data.copyTo(sound.getChannelData(channel), { planeIndex: channel, format: "f32-planar" });
        }
        const source = new AudioBufferSourceNode(context, { buffer: sound });
        source.connect(context.destination);
        source.start(begin);
        this.#ends = begin + sound.duration;
        const age = this.#pace.age(data.timestamp, now);
        this.#heard = { at: now + until, age: age === null ? null : age + until, pieces: this.#heard.pieces + 1 };
        this.root.dataset.pieces = String(this.#heard.pieces);
      }
    }
    data.close();
  }

  /** Milliseconds since sound was played; null before the first. @param {number} now */
  stood(now) {
    return this.#heard.at > 0 ? Math.max(0, now - this.#heard.at) : null;
  }

  /** How old the last piece was when it was played, in milliseconds. */
  get age() {
    return this.#heard.age;
  }
}
