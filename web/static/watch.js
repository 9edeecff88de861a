// The page of those who only watch: the pictures and the sound of the node's streams, and nothing else.

import { Connection } from "./connection.js";
import { Videos } from "./videos.js";
import { Wire } from "./wire.js";

const part = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));

// The token has become a cookie; keep it out of the history and of what people copy.
if (location.search !== "") history.replaceState(null, "", location.pathname);

const address = new URL("/watch/ws", location.href);
address.protocol = location.protocol === "https:" ? "wss:" : "ws:";

const connection = new Connection(part("connection"), part("main"));
const wire = new Wire(address, {
  tracks(list) {
    videos.update(list);
    part("none").hidden = list.length > 0;
  },
  moving: (picture) => videos.draw(picture),
  link(now) {
    if (now.kind === "open") videos.again();
    connection.update(now);
  },
});
const videos = new Videos(part("videos"), wire);

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) wire.retry();
});
wire.open();
