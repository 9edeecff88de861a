// Runs the fake node and a browser for the tests, and ends both.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = fileURLToPath(new URL("../../", import.meta.url));
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Builds the fake node once; the path of its program. */
function build() {
  const arguments_ = ["build", "-p", "selvedge-web", "--example", "fake_node", "--message-format=json"];
  const cargo = spawnSync("cargo", arguments_, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 });
  if (cargo.status !== 0) throw new Error(cargo.stderr);
  const messages = cargo.stdout.trim().split("\n").map((line) => JSON.parse(line));
  return messages.find((message) => message.target?.name === "fake_node" && message.executable).executable;
}

const program = build();

/** A fake node: `url`, and `stop()`, which returns once it has gone. */
export async function startNode({ listen = "127.0.0.1:0", streams = 6, token = null, watchToken = null, compares = false } = {}) {
  const more = [...(token === null ? [] : ["--token", token]), ...(watchToken === null ? [] : ["--watch-token", watchToken]),
    ...(compares ? ["--compares"] : [])];
  const child = spawn(program, [listen, "--streams", String(streams), ...more], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  // Also when a test runs out of time.
  process.on("exit", () => child.kill());
  const gone = once(child, "exit");
  const [line] = await Promise.race([
    once(child.stdout, "data"),
    gone.then(() => Promise.reject(new Error("the fake node ended at once"))),
  ]);
  return {
    url: String(line).trim(),
    async stop() {
      child.kill();
      await gone;
    },
  };
}

export function startBrowser(executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium", more = []) {
  return chromium.launch({ executablePath, args: [...FLAGS, ...more] });
}

/**
 * A page, and what went wrong on it: console errors, exceptions, requests to anywhere but the host of `url`.
 */
export async function openPage(browser, url, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, ...options });
  const wrong = [];
  page.on("console", (message) => {
    // Reading pixels back is the tests' own doing.
    const ours = message.text().startsWith("Canvas2D: Multiple readback");
    if (["error", "warning"].includes(message.type()) && !ours) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error)));
  const { origin } = new URL(url);
  const outside = (address) => !address.replace(/^ws/, "http").startsWith(origin) && !address.startsWith("blob:");
  page.on("request", (request) => {
    if (outside(request.url())) wrong.push(`request to ${request.url()}`);
  });
  page.on("websocket", (socket) => {
    if (outside(socket.url())) wrong.push(`socket to ${socket.url()}`);
  });
  await page.goto(url);
  return { page, wrong };
}
