// The conversation with the node: one WebSocket, opened again with back-off whenever it ends.
// Knows messages, nothing of how they are shown. docs/api.md describes them.

/**
 * @typedef {object} PathSnapshot
 * @property {string} name
 * @property {boolean} active
 * @property {string} detail
 * @property {number} rate_bps
 * @property {number} sent_bps
 * @property {number} round_trip_ms
 * @property {number} queueing_ms
 * @property {number} loss
 */

/**
 * @typedef {object} LinkSnapshot
 * @property {string} name
 * @property {string} discipline
 * @property {number} rate_bps
 * @property {number} sent_bps
 * @property {number} offered_bps
 * @property {number|null} used_share
 * @property {number|null} late_p99_ms
 * @property {number} queued_frames
 * @property {number} queued_bytes
 * @property {PathSnapshot[]} [paths] those of its bond, whose rate is measured
 */

/**
 * @typedef {object} StreamSnapshot
 * @property {string} name
 * @property {string} link
 * @property {string} source
 * @property {string} to
 * @property {string} encoding
 * @property {string} [label]
 * @property {"starting"|"running"|"stalled"|"retrying"|"ended"|"failed"} state
 * @property {string} detail
 * @property {number} period_ms
 * @property {string} window
 * @property {number} priority
 * @property {number} weight
 * @property {string} late
 * @property {number} frames
 * @property {number} sent
 * @property {number} on_time
 * @property {number} decodable
 * @property {number} missed
 * @property {number} violations
 * @property {Record<string, number>} dropped
 * @property {number} [dropped_bytes] of dropped frames, not sent
 * @property {number|null} [spared_ms] estimate of the processor time that sending them would have taken
 * @property {number} sent_bytes
 * @property {number} sent_bps
 * @property {number|null} [encoder_bps] what its encoder aims at, where that follows the measured rate
 * @property {number|null} on_time_share
 * @property {number|null} decodable_share
 * @property {number|null} queueing_mean_ms
 * @property {number|null} queueing_p99_ms
 * @property {number} queued_frames
 * @property {Received|null} received
 */

/**
 * What a stack's receiver reports.
 * @typedef {object} Received
 * @property {number} complete
 * @property {number} decodable
 * @property {number} sent_decodable
 * @property {number|null} silent_ms
 */

/**
 * @typedef {object} NodeSnapshot
 * @property {string} name
 * @property {number} uptime_ms
 * @property {LinkSnapshot[]} links
 * @property {StreamSnapshot[]} streams
 */

/**
 * Pictures of a stream, or its sound.
 * @typedef {object} VideoTrack
 * @property {string} stream
 * @property {string} label
 * @property {string} by
 * @property {string} codec
 * @property {{rate: number, channels: number}} [sound]
 */

/**
 * Two senders of the same frames, since the rate was set last: name and decodable share of each.
 * @typedef {object} Comparison
 * @property {[string, number|null]} ours
 * @property {[string, number|null]} other
 * @property {number|null} bound
 * @property {number} needed_bps
 * @property {number} since_ms
 * @property {number} delay_ms
 */

/**
 * A picture or a piece of sound of a track: `left` ms until it is due, `present` its time in the media in
 * microseconds, `age` ms since its source took it in, if that is known.
 * @typedef {object} MovingPicture
 * @property {number} track
 * @property {boolean} intra
 * @property {boolean} image
 * @property {number} number
 * @property {number} left
 * @property {number} present
 * @property {number|null} age
 * @property {Uint8Array<ArrayBuffer>} bytes
 */

/** @typedef {{stream: string, text: string, since_ms: number}} Alarm */

/** @typedef {{message: string, remedy?: string}} Problem */

/**
 * How the conversation is: `open` once snapshots come; `waiting` until `until` (ms, as
 * `performance.now`) for the next attempt, because of `why`.
 * @typedef {{kind: "connecting"|"open"|"waiting", until?: number, why?: string}} Link
 */

/**
 * @typedef {object} Listener
 * @property {(videos: VideoTrack[]) => void} tracks
 * @property {(snapshot: NodeSnapshot, more: {comparison: Comparison|null, alarms: Alarm[]}) => void} [snapshot]
 * @property {(picture: MovingPicture) => void} moving
 * @property {(index: number, number: number, jpeg: Blob) => void} [picture]
 * @property {(link: Link) => void} link
 */

const BACKOFF_FIRST_MS = 500;
const BACKOFF_MOST_MS = 10_000;
/** Snapshots come every 250 ms; after this long without one the connection is taken for dead. */
const SILENCE_MS = 5_000;
const REPLY_MS = 5_000;
/** Stands in front of moving pictures, where small ones have their stream's index. */
const MOVING = 0xffff;

export class Wire {
  /** @type {WebSocket|null} */
  #socket = null;
  #attempts = 0;
  /** @type {number|undefined} */
  #timer;
  #heard = 0;
  #nextId = 1;
  /** @type {Map<number, {resolve: (accepted: Record<string, unknown>) => void, reject: (problem: Problem) => void}>} */
  #waiting = new Map();
  /** Whether a snapshot has come since the last connection. */
  #live = false;

  /**
   * @param {URL} address of the WebSocket
   * @param {Listener} listener
   */
  constructor(address, listener) {
    this.address = address;
    this.listener = listener;
    setInterval(() => this.#watch(), 1000);
    addEventListener("online", () => this.retry());
  }

  /** Connects; from then on the wire keeps itself connected. */
  open() {
    clearTimeout(this.#timer);
    this.listener.link({ kind: "connecting" });
    const socket = new WebSocket(this.address);
    socket.binaryType = "arraybuffer";
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.#heard = performance.now();
    };
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => this.#closed(socket, opened, event.reason);
    this.#socket = socket;
  }

  /** Tries again now, if it was waiting to. */
  retry() {
    if (this.#socket === null) this.open();
  }

  /**
   * Changes one value of a stream or link.
   * @param {Record<string, string|number>} change such as `{stream: "a", window: "1/5"}`
   * @returns {Promise<Record<string, unknown>>} the value as the node reads it; rejects with a Problem
   */
  set(change) {
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) {
        reject({ message: "not connected", remedy: "try again once the page is connected" });
        return;
      }
      const id = this.#nextId++;
      this.#waiting.set(id, { resolve, reject });
      this.#send({ set: change, id });
      setTimeout(() => this.#settle(id, { message: "the node did not answer" }), REPLY_MS);
    });
  }

  /**
   * Says which streams' pictures are wanted. The node forgets it at the end of a connection, and
   * when its list of streams changes.
   * @param {number[]} indices
   */
  show(indices) {
    this.#send({ show: indices });
  }

  /**
   * Says that a stream's picture is drawn, so that the next may come.
   * @param {number} index
   */
  acknowledge(index) {
    this.#send({ ack: index });
  }

  /**
   * Says which tracks are watched, each as `coded` or `images`; the node forgets it at the end of a
   * connection, and when the list of tracks changes.
   * @param {(string|number)[][]} tracks
   */
  watch(tracks) {
    this.#send({ watch: tracks });
  }

  /** @param {object} message */
  #send(message) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(message));
  }

  /** @param {string|ArrayBuffer} data */
  #receive(data) {
    this.#heard = performance.now();
    if (typeof data !== "string") {
      const view = new DataView(data);
      if (view.getUint16(0) === MOVING) {
        const age = view.getInt32(22);
        this.listener.moving({
          track: view.getUint16(2),
          intra: (view.getUint8(4) & 1) !== 0,
          image: (view.getUint8(4) & 2) !== 0,
          number: view.getUint32(6),
          left: view.getInt32(10),
          present: view.getFloat64(14),
          age: age < 0 ? null : age,
          bytes: new Uint8Array(data, 26),
        });
        return;
      }
      const jpeg = new Blob([data.slice(6)], { type: "image/jpeg" });
      this.listener.picture?.(view.getUint16(0), view.getUint32(2), jpeg);
      return;
    }
    const message = JSON.parse(data);
    if (message.snapshot || message.videos) {
      this.#attempts = 0;
      if (!this.#live) this.listener.link({ kind: "open" });
      this.#live = true;
      const { videos = [], comparison = null, alarms = [] } = message;
      this.listener.tracks(videos);
      if (message.snapshot) this.listener.snapshot?.(message.snapshot, { comparison, alarms });
    } else if (typeof message.reply === "number") {
      this.#settle(message.reply, message.error, message.accepted);
    }
  }

  /**
   * @param {number} id
   * @param {Problem|undefined} problem
   * @param {Record<string, unknown>} [accepted]
   */
  #settle(id, problem, accepted) {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (problem) waiting?.reject(problem);
    else waiting?.resolve(accepted ?? {});
  }

  #watch() {
    const open = this.#socket?.readyState === WebSocket.OPEN;
    if (open && performance.now() - this.#heard > SILENCE_MS) this.#socket?.close(4000, "silent");
  }

  /**
   * @param {WebSocket} socket
   * @param {boolean} opened
   * @param {string} reason
   */
  async #closed(socket, opened, reason) {
    if (this.#socket !== socket) return;
    this.#socket = null;
    this.#live = false;
    for (const id of [...this.#waiting.keys()]) {
      this.#settle(id, { message: "the connection was lost before the node answered" });
    }
    const spread = 0.75 + Math.random() / 2;
    const wait = Math.min(BACKOFF_MOST_MS, BACKOFF_FIRST_MS * 2 ** this.#attempts) * spread;
    this.#attempts += 1;
    const until = performance.now() + wait;
    this.#timer = setTimeout(() => this.open(), wait);
    const why = opened ? reason || "connection lost" : "no connection";
    this.listener.link({ kind: "waiting", until, why });
    if (!opened) {
      const better = await this.#probe();
      if (better && this.#socket === null) this.listener.link({ kind: "waiting", until, why: better });
    }
  }

  /** A failed WebSocket does not say why; a plain request does. */
  async #probe() {
    try {
      const answer = await fetch(new URL(location.pathname, location.href), { method: "HEAD" });
      if (answer.status === 401) return `the node wants its token: open ${location.pathname}?token=TOKEN`;
      if (answer.ok) return "the node takes no more pages";
    } catch {
      // Nothing is there: the plain reason holds.
    }
    return null;
  }
}
