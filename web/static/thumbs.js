// Pictures of the streams whose rows can be seen. Each is acknowledged once it is drawn, so a slow
// page gets fewer pictures and nothing piles up.

/** @typedef {import("./wire.js").Wire} Wire */

/** Pixels of a canvas: twice its size on the page, for fine screens. */
export const WIDTH = 192;
export const HEIGHT = 108;
/** The server takes no longer list. */
const MOST = 256;
/** Scrolling changes what is seen many times a second. */
const SETTLE_MS = 120;

export class Thumbs {
  /** @type {number|undefined} */
  #timer;
  /** @type {string} */
  #asked = "";

  /**
   * @param {Wire} wire
   * @param {(index: number) => HTMLCanvasElement|null} canvasOf
   */
  constructor(wire, canvasOf) {
    this.wire = wire;
    this.canvasOf = canvasOf;
    /** @type {Set<number>} */
    this.visible = new Set();
    document.addEventListener("visibilitychange", () => this.changed());
  }

  /** To be called when `visible` has changed. */
  changed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), SETTLE_MS);
  }

  /** Asks anew: the server forgets at a new connection or list of streams. */
  again() {
    this.#asked = "";
    this.changed();
  }

  #ask() {
    const seen = document.hidden ? [] : [...this.visible].sort((a, b) => a - b).slice(0, MOST);
    const key = seen.join();
    if (key === this.#asked) return;
    this.#asked = key;
    this.wire.show(seen);
  }

  /**
   * @param {number} index
   * @param {number} number
   * @param {Blob} jpeg
   */
  async draw(index, number, jpeg) {
    try {
      const picture = await createImageBitmap(jpeg);
      const canvas = this.canvasOf(index);
      const context = canvas?.getContext("2d");
      if (canvas && context) {
        const scale = Math.min(WIDTH / picture.width, HEIGHT / picture.height);
        const [wide, high] = [picture.width * scale, picture.height * scale];
        context.clearRect(0, 0, WIDTH, HEIGHT);
        context.drawImage(picture, (WIDTH - wide) / 2, (HEIGHT - high) / 2, wide, high);
        canvas.dataset.picture = String(number);
      }
      picture.close();
    } catch {
      // A picture that can't be decoded is passed over; the next may do.
    }
    this.wire.acknowledge(index);
  }
}
