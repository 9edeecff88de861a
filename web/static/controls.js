// A value that can be edited in place. Enter applies, Escape reverts; the field shows whether the
// edit is unsent, under way, in force or refused, and why.

/** @typedef {import("./wire.js").Problem} Problem */

/** How long a tick stays, and how long an accepted value may take to show in a snapshot. */
const APPLIED_MS = 2000;
const SEEN_MS = 3000;

let made = 0;

export class Field {
  #current = "";
  /** The value that was accepted and is to show up. @type {string|null} */
  #expected = null;
  /** @type {number|undefined} */
  #timer;

  /**
   * @param {object} options
   * @param {string} options.label for those who can't see where it stands
   * @param {string} options.title what may be written
   * @param {number} options.size in characters
   * @param {(text: string) => Promise<string>} options.apply gives the value as the node reads it
   */
  constructor({ label, title, size, apply }) {
    this.apply = apply;
    this.title = title;
    this.root = document.createElement("span");
    this.root.className = "field";
    this.input = document.createElement("input");
    this.input.type = "text";
    this.input.size = size;
    this.input.autocomplete = "off";
    this.input.spellcheck = false;
    this.input.enterKeyHint = "done";
    this.input.title = title;
    this.input.setAttribute("aria-label", label);
    this.error = document.createElement("span");
    this.error.className = "error";
    this.error.id = `error-${++made}`;
    this.error.setAttribute("role", "alert");
    this.root.append(this.input, this.error);
    this.#state("idle");

    this.input.addEventListener("focus", () => this.input.select());
    this.input.addEventListener("input", () => this.#edited());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) this.submit();
      else if (event.key === "Escape") this.revert();
    });
  }

  /**
   * The value in the newest snapshot. What somebody is editing stays.
   * @param {string} value
   */
  update(value) {
    if (value === this.#current && this.#expected === null) return;
    this.#current = value;
    // Windows for each kind are longer than the field.
    this.input.title = `${value}\n${this.title}`;
    if (this.#expected !== null && value === this.#expected) this.#applied();
    else if (this.root.dataset.state === "idle" || this.root.dataset.state === "applied") {
      this.input.value = value;
    }
  }

  revert() {
    this.#expected = null;
    this.input.value = this.#current;
    this.#state("idle");
    this.input.select();
  }

  async submit() {
    const text = this.input.value.trim();
    if (text === this.#current) return this.revert();
    this.#state("pending");
    try {
      const accepted = await this.apply(text);
      if (this.root.dataset.state !== "pending") return;
      this.#expected = accepted;
      if (accepted === this.#current) return this.#applied();
      this.#timer = setTimeout(() => {
        this.#expected = null;
        this.#refused({ message: `accepted, but the node still shows ${this.#current}` });
      }, SEEN_MS);
    } catch (problem) {
      if (this.root.dataset.state === "pending") this.#refused(/** @type {Problem} */ (problem));
    }
  }

  #edited() {
    this.#expected = null;
    this.#state(this.input.value.trim() === this.#current ? "idle" : "edited");
  }

  #applied() {
    this.#expected = null;
    this.input.value = this.#current;
    this.#state("applied");
    this.#timer = setTimeout(() => this.#state("idle"), APPLIED_MS);
  }

  /** @param {Problem} problem */
  #refused({ message, remedy }) {
    this.#state("refused", remedy ? `${message}; ${remedy}` : message);
  }

  /**
   * @param {"idle"|"edited"|"pending"|"applied"|"refused"} state
   * @param {string} [error]
   */
  #state(state, error = "") {
    clearTimeout(this.#timer);
    this.root.dataset.state = state;
    this.error.textContent = error;
    this.input.readOnly = state === "pending";
    this.input.setAttribute("aria-invalid", String(state === "refused"));
    this.input.setAttribute("aria-busy", String(state === "pending"));
    if (error) this.input.setAttribute("aria-describedby", this.error.id);
    else this.input.removeAttribute("aria-describedby");
  }
}
