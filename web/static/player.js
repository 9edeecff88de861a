// Plays one track: coded pictures through the browser's decoder (WebCodecs), or images. Pictures come
// in decoding order, ahead of time, and are shown at theirs.

/** @typedef {import("./wire.js").MovingPicture} MovingPicture */

/** Coded pictures go to the decoder this long before they are shown: it holds some back. */
const AHEAD_MS = 350;
/** Pictures that may wait for their time; beyond, the oldest are left out. */
const WAITING_MAX = 150;
/** How long a track remembers which of its pictures was due last of all, after its own time. */
const REMEMBERED_MS = 4000;
/** The pace of a track is known after so many pictures; pauses before do not count. */
const SETTLED = 50;
/** Times of presentation go back by less, where pictures are decoded in another order than shown. */
const BACK_MS = 2000;
/** Ages that are remembered. */
const AGES_MAX = 600;
/** A picture that is further off than this belongs to another beginning. */
const FAR_MS = 30_000;

/** Whether this browser decodes here: only pages from this machine, or over TLS, may. */
export const decodes = typeof VideoDecoder === "function";

/**
 * When the pictures of one track are shown, by the page's clock: at their time of presentation plus the largest distance
 * between due time and time of presentation. And how old they are.
 */
export class Pace {
  /** From media time to the page's clock, of this stretch of time and the one before. */
  #offsets = { at: 0, now: -Infinity, before: -Infinity };
  /** The latest time of presentation. */
  #latest = -Infinity;
  /** When pictures were taken in at their source, by the page's clock and their times of presentation. @type {Map<number, number>} */
  #taken = new Map();

  reset() {
    this.#offsets = { at: 0, now: -Infinity, before: -Infinity };
    this.#latest = -Infinity;
    this.#taken.clear();
  }

  get #offset() {
    return Math.max(this.#offsets.now, this.#offsets.before);
  }

  /** Whether a picture that came just now belongs to another beginning. @param {MovingPicture} picture @param {number} now */
  isOther({ left, present }, now) {
    const due = now + left - present / 1000;
    const isFar = Math.abs(due - this.#offset) > FAR_MS && Number.isFinite(this.#offset);
    return isFar || present / 1000 < this.#latest - BACK_MS;
  }

  /** Takes a picture that came just now. @param {MovingPicture} picture @param {number} now */
  take({ left, present, age }, now) {
    const due = now + left - present / 1000;
    // Pictures are due by when they were decoded at the source: the one that was decoded last before
    // its time of presentation sets the pace for all.
    const offsets = this.#offsets;
    if (now - offsets.at > REMEMBERED_MS) {
      this.#offsets = { at: now, now: due, before: offsets.now };
    } else if (due > offsets.now) {
      offsets.now = due;
    }
    this.#latest = Math.max(this.#latest, present / 1000);
    if (age === null) return;
    // Decoders return whole microseconds.
    this.#taken.set(Math.trunc(present), now - age);
    if (this.#taken.size > AGES_MAX) this.#taken.delete(this.#taken.keys().next().value ?? 0);
  }

  /** When this is shown. @param {number} present */
  at(present) {
    return present / 1000 + this.#offset;
  }

  /** Milliseconds since its source took in the picture of this time; null where that is not known. @param {number} present @param {number} now */
  age(present, now) {
    // Decoders of sound count by samples, so their microseconds can be off by one.
    const at = Math.trunc(present);
    const taken = this.#taken.get(at) ?? this.#taken.get(at - 1) ?? this.#taken.get(at + 1);
    return taken === undefined ? null : now - taken;
  }
}

export class Player {
  /** @type {VideoDecoder|null} */
  #decoder = null;
  /** @type {MovingPicture[]} in decoding order */
  #coded = [];
  /** @type {{present: number, image: VideoFrame|ImageBitmap}[]} in the order of their times */
  #ready = [];
  /** Decoding begins with an intra picture. */
  #needsIntra = true;
  /** Number of the picture that came last. @type {number|null} */
  #last = null;
  #pace = new Pace();
  /** @type {{at: number, present: number, pictures: number, gap: number, age: number|null}} */
  #drawn = { at: 0, present: -Infinity, pictures: 0, gap: 0, age: null };

  /**
   * @param {HTMLCanvasElement} canvas
   * @param {() => void} fail called when the browser can't decode the track
   */
  constructor(canvas, fail) {
    this.canvas = canvas;
    this.fail = fail;
    this.codec = "";
  }

  /** Forgets everything; the canvas keeps its picture. */
  reset() {
    if (this.#decoder?.state !== "closed") this.#decoder?.close();
    this.#decoder = null;
    for (const { image } of this.#ready) image.close();
    this.#coded = [];
    this.#ready = [];
    this.#needsIntra = true;
    this.#last = null;
    this.#pace.reset();
    this.#drawn.present = -Infinity;
    this.#drawn.at = 0;
  }

  /** Takes a picture that came just now. @param {MovingPicture} picture */
  take(picture) {
    const now = performance.now();
    if (this.#pace.isOther(picture, now)) this.reset();
    this.#pace.take(picture, now);
    // What was left out on the way was left out up to an intra picture.
    const follows = this.#last !== null && picture.number === ((this.#last + 1) >>> 0);
    this.#last = picture.number;
    if (!follows && !picture.intra) this.#needsIntra = true;
    if (picture.image) {
      this.#image(picture);
      return;
    }
    if (this.#coded.length >= WAITING_MAX) {
      this.#coded = [];
      this.#needsIntra = true;
    }
    if (this.#needsIntra && !picture.intra) return;
    this.#needsIntra = false;
    this.#coded.push(picture);
  }

  /** Shows what is due. @param {number} now as `performance.now` */
  tick(now) {
    while (this.#coded.length > 0 && this.#pace.at(this.#coded[0].present) - AHEAD_MS <= now) {
      this.#decode(/** @type {MovingPicture} */ (this.#coded.shift()));
    }
    let due = -1;
    while (due + 1 < this.#ready.length && this.#pace.at(this.#ready[due + 1].present) <= now) due += 1;
    if (due < 0) return;
    const past = this.#ready.splice(0, due + 1);
    const { present, image } = past[due];
    if (present > this.#drawn.present) this.#draw(image, present, now);
    for (const each of past) each.image.close();
  }

  /** @param {MovingPicture} picture */
  #decode(picture) {
    const chunk = { type: picture.intra ? "key" : "delta", timestamp: picture.present, data: picture.bytes };
    try {
      if (this.#decoder?.state !== "configured") {
        if (!picture.intra) return;
        this.#decoder = new VideoDecoder({
          output: (frame) => this.#put(frame.timestamp, frame),
          error: () => this.#broken(),
        });
        this.#decoder.configure({ codec: this.codec });
      }
      this.#decoder.decode(new EncodedVideoChunk(/** @type {EncodedVideoChunkInit} */ (chunk)));
    } catch {
      this.#broken();
    }
  }

  #broken() {
    this.reset();
    this.fail();
  }

  /** @param {MovingPicture} picture */
  async #image({ bytes, present }) {
    try {
      this.#put(present, await createImageBitmap(new Blob([bytes], { type: "image/jpeg" })));
    } catch {
      // The next may do.
    }
  }

  /** @param {number} present @param {VideoFrame|ImageBitmap} image */
  #put(present, image) {
    let at = this.#ready.length;
    while (at > 0 && this.#ready[at - 1].present > present) at -= 1;
    this.#ready.splice(at, 0, { present, image });
    if (this.#ready.length > WAITING_MAX) this.#ready.shift()?.image.close();
  }

  /** @param {VideoFrame|ImageBitmap} image @param {number} present @param {number} now */
  #draw(image, present, now) {
    const [width, height] = "displayWidth" in image
      ? [image.displayWidth, image.displayHeight] : [image.width, image.height];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.canvas.getContext("2d")?.drawImage(image, 0, 0, width, height);
    const drawn = this.#drawn;
    // Tests read these: pictures shown, and the longest pause between two.
    drawn.pictures += 1;
    if (drawn.at > 0 && drawn.pictures > SETTLED) drawn.gap = Math.max(drawn.gap, now - drawn.at);
    [drawn.at, drawn.present, drawn.age] = [now, present, this.#pace.age(present, now)];
    this.canvas.dataset.pictures = String(drawn.pictures);
    this.canvas.dataset.gap = drawn.gap.toFixed(0);
    this.canvas.dataset.age = drawn.age === null ? "" : drawn.age.toFixed(0);
  }

  /** Milliseconds since a picture was shown; null before the first. @param {number} now */
  stood(now) {
    return this.#drawn.at > 0 ? now - this.#drawn.at : null;
  }

  /** How old the picture was when it was drawn, in milliseconds; null where that is not known. */
  get age() {
    return this.#drawn.age;
  }
}
