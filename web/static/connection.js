// How the conversation with the node is, in the page's corner.

/** @typedef {import("./wire.js").Link} Link */

export class Connection {
  /** @type {Link} */
  #link = { kind: "connecting" };
  #wasOpen = false;

  /** @param {HTMLElement} root with a part for the state and one for the countdown @param {HTMLElement} main */
  constructor(root, main) {
    this.root = root;
    this.main = main;
    setInterval(() => {
      if (this.#link.kind === "waiting") this.#show();
    }, 500);
  }

  /** @param {Link} link */
  update(link) {
    this.#wasOpen ||= link.kind === "open";
    this.#link = link;
    this.#show();
  }

  #show() {
    const { kind, until = 0, why = "not connected" } = this.#link;
    const seconds = Math.max(0, Math.ceil((until - performance.now()) / 1000));
    const connecting = this.#wasOpen ? "Reconnecting" : "Connecting";
    const texts = [
      { open: "Live", connecting, waiting: why }[kind],
      kind === "waiting" ? `next try in ${seconds} s` : "",
    ];
    this.root.dataset.kind = kind;
    texts.forEach((text, n) => {
      const part = this.root.children[n];
      if (part.textContent !== text) part.textContent = text;
    });
    this.main.classList.toggle("stale", kind !== "open" && this.#wasOpen);
  }
}
