// The page of those who only watch: what a far end of a bond hands on, with its age and its sound, past restarts of
// both ends; and what the link with its token opens. PAGE_SECONDS says for how long a page is watched (an hour is
// worth it once): that pictures and sound keep together, and that nothing grows.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openPage, startBrowser, startNode } from "./fake.mjs";
import { encode, ports, selvedge, start } from "./programs.mjs";

/** On a busy machine what is shown waits for what comes late. */
const AGE_MAX_MS = 5000;
const SECONDS = Number(process.env.PAGE_SECONDS ?? 8);
/** What is asked for in a long run alone, on a machine that is left alone. */
const IS_LONG = SECONDS >= 60;
/** Between the ages of what is seen and what is heard: film's own limits are 125 ms and 45 ms (ITU-R BT.1359). */
const APART_MS = IS_LONG ? 125 : 1000;
const GAP_MS = IS_LONG ? 200 : Infinity;
const GROWN_KB = IS_LONG ? 4096 : 20_480;

async function end({ child }) {
  child.kill("SIGINT");
  await once(child, "exit");
}

/** Writes what a node needs that sends a picture and a sound over a bond. */
function writeNear(folder, bond) {
  encode(join(folder, "clip.mp4"));
  writeFileSync(join(folder, "secret"), "5c".repeat(32), { mode: 0o600 });
  writeFileSync(join(folder, "near.toml"), `[node]
listen = "127.0.0.1:0"
[link.uplink]
to = "127.0.0.1:${bond}"
secret = "secret"
[stream.cam]
source = "file:clip.mp4?loop"
delay = "300 ms"
[stream.voice]
source = "launch:audiotestsrc is-live=true wave=ticks ! audio/x-raw,rate=48000,channels=2 ! opusenc"
delay = "300 ms"
`);
}

/** Waits until this many more pictures are drawn. */
async function more(page, pictures) {
  const canvas = page.locator("#videos canvas").first();
  const before = await canvas.evaluate(({ dataset }) => Number(dataset.pictures ?? 0));
  await page.waitForFunction((wanted) => {
    const canvas = document.querySelector("#videos canvas");
    return Number(canvas?.dataset.pictures) >= wanted && !canvas.parentElement.classList.contains("stands");
  }, before + pictures);
}

test("a far end's pictures of other codecs play in the browser's decoder", async () => {
  const program = selvedge();
  const folder = mkdtempSync(join(tmpdir(), "selvedge-codecs-"));
  const browser = await startBrowser();
  const running = {};
  try {
    writeFileSync(join(folder, "secret"), "5c".repeat(32), { mode: 0o600 });
    const encoders = {
      vp8: "vp8enc deadline=1 keyframe-max-dist=10",
      vp9: "vp9enc deadline=1 cpu-used=8 keyframe-max-dist=10 ! vp9parse",
      av1: "av1enc cpu-used=8 usage-profile=realtime keyframe-max-dist=10 ! av1parse",
    };
    const names = Object.keys(encoders);
    const [bond, web, ...to] = await ports(2 + names.length);
    const pattern = "videotestsrc is-live=true ! video/x-raw,width=160,height=120,framerate=10/1";
    writeFileSync(join(folder, "near.toml"), `[node]
listen = "127.0.0.1:0"
[link.uplink]
to = "127.0.0.1:${bond}"
secret = "secret"
${names.map((name) => `[stream.${name}]\nsource = "launch:${pattern} ! ${encoders[name]}"\ndelay = "1 s"\n`).join("")}`);
    running.far = await start(program, ["receive", ...names.map((name, n) => `${name}=rtp://127.0.0.1:${to[n]}`),
      "--secret", join(folder, "secret"), "--listen", `127.0.0.1:${bond}`, "--page", `127.0.0.1:${web}`,
      "--file", join(folder, "far.toml")]);
    running.near = await start(program, ["run", join(folder, "near.toml")]);
    const { page, wrong } = await openPage(browser, `${running.far.url}watch`);
    await page.waitForFunction((count) => {
      const drawn = [...document.querySelectorAll("#videos canvas")].filter(({ dataset }) => Number(dataset.pictures) > 20);
      return drawn.length === count;
    }, names.length);
    const codecs = await page.evaluate(() => [...document.querySelectorAll("#videos figcaption")].map(({ textContent }) => textContent));
    assert.deepEqual(codecs.sort(), names.sort());
    assert.deepEqual(wrong, []);
  } finally {
    for (const each of Object.values(running)) await end(each);
    await browser.close();
    rmSync(folder, { recursive: true, force: true });
  }
});

test("a far end's pictures and sound play, with their age, past restarts of both ends", async (context) => {
  const program = selvedge();
  const folder = mkdtempSync(join(tmpdir(), "selvedge-watch-"));
  const browser = await startBrowser();
  const running = {};
  try {
    const [bond, web, ...to] = await ports(4);
    writeNear(folder, bond);
    const near = async () => { running.near = await start(program, ["run", join(folder, "near.toml")]); };
    const far = async () => {
      running.far = await start(program, ["receive", `cam=rtp://127.0.0.1:${to[0]}`, `voice=rtp://127.0.0.1:${to[1]}`,
        "--secret", join(folder, "secret"), "--listen", `127.0.0.1:${bond}`, "--page", `127.0.0.1:${web}`,
        "--file", join(folder, "far.toml")]);
    };
    await far();
    await near();
    const { page, wrong } = await openPage(browser, `${running.far.url}watch`);
    await page.locator("#videos canvas").waitFor();
    await more(page, 50);
    const ages = () => page.locator("#videos .age").allInnerTexts();
    const [shown] = await ages();
    assert.match(shown, /^\d\.\d\d s old$/);
    const age = await page.locator("#videos canvas").evaluate(({ dataset }) => Number(dataset.age));
    context.diagnostic(`pictures are ${age} ms old`);
    assert.ok(age > 0 && age <= AGE_MAX_MS, `${age} ms`);

    // Nothing sounds before it is asked for.
    const pieces = () => page.locator("#videos .sound").evaluate(({ dataset }) => Number(dataset.pieces ?? 0));
    assert.equal(await pieces(), 0);
    const sound = page.getByRole("button", { name: "Sound" });
    await sound.click();
    assert.equal(await sound.getAttribute("aria-pressed"), "true");
    await page.waitForFunction(() => Number(document.querySelector("#videos .sound").dataset.pieces) > 50);
    assert.match((await ages())[1], /^\d\.\d\d s old$/);
    assert.deepEqual(wrong, []);

    await end(running.near);
    await page.locator("#videos .side:has(canvas) .note", { hasText: "stands for" }).waitFor();
    await near();
    await more(page, 50);
    await end(running.far);
    await page.locator("#connection[data-kind=waiting]").waitFor();
    await far();
    await page.locator("#connection[data-kind=open]").waitFor();
    await page.locator("#videos canvas").waitFor();
    await more(page, 50);
    const before = await pieces();
    await page.waitForFunction((before) => Number(document.querySelector("#videos .sound").dataset.pieces) > before + 50, before);
    const expected = (text) => /WebSocket|Failed to load resource/.test(text);
    assert.deepEqual(wrong.filter((text) => !expected(text)), []);
  } finally {
    await browser.close();
    for (const { child } of Object.values(running)) child.kill("SIGINT");
    rmSync(folder, { recursive: true });
  }
});

test(`a page is watched for ${SECONDS} s`, { timeout: (SECONDS + 170) * 1000 }, async (context) => {
  const program = selvedge();
  const folder = mkdtempSync(join(tmpdir(), "selvedge-watched-"));
  const browser = await startBrowser();
  const running = [];
  try {
    const [bond, ...to] = await ports(3);
    writeNear(folder, bond);
    running.push(await start(program, ["receive", `cam=rtp://127.0.0.1:${to[0]}`, `voice=rtp://127.0.0.1:${to[1]}`,
      "--secret", join(folder, "secret"), "--listen", `127.0.0.1:${bond}`, "--page", "127.0.0.1:0",
      "--file", join(folder, "far.toml")]));
    running.push(await start(program, ["run", join(folder, "near.toml")]));
    const { page, wrong } = await openPage(browser, `${running[0].url}watch`);
    await page.locator("#videos canvas").waitFor();
    await page.getByRole("button", { name: "Sound" }).click();
    await more(page, 60);
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable");
    const memory = async () => {
      await session.send("HeapProfiler.collectGarbage");
      const { metrics } = await session.send("Performance.getMetrics");
      const heap = metrics.find(({ name }) => name === "JSHeapUsedSize").value;
      return [heap / 1024, ...running.map(({ child }) =>
        Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))[1]))];
    };
    // Pictures that others refer to are sent ahead of their time. The youngest were taken in when they are due, as sound is.
    await page.evaluate(() => {
      const canvas = document.querySelector("#videos canvas");
      globalThis.youngest = Infinity;
      new MutationObserver(() => { globalThis.youngest = Math.min(globalThis.youngest, Number(canvas.dataset.age)); })
        .observe(canvas, { attributeFilter: ["data-age"] });
    });
    const sample = () => page.evaluate(() => {
      const { pictures, gap } = document.querySelector("#videos canvas").dataset;
      const [seen, text] = [globalThis.youngest, document.querySelectorAll("#videos .age")[1].textContent];
      globalThis.youngest = Infinity;
      return { pictures: Number(pictures), gap: Number(gap), seen, heard: Number.parseFloat(text) * 1000,
        pieces: Number(document.querySelector("#videos .sound").dataset.pieces) };
    });
    await page.waitForFunction(() => Number(document.querySelector("#videos .sound").dataset.pieces) > 50);
    const [first, apart, seen, memories] = [await sample(), [], [], []];
    const began = performance.now();
    for (let second = 0; second < SECONDS; second++) {
      await page.waitForTimeout(Math.max(0, began + 1000 * (second + 1) - performance.now()));
      const now = await sample();
      apart.push(now.heard - now.seen);
      seen.push(now.seen);
      if (second % 60 === 0) memories.push(await memory());
    }
    const last = await sample();
    memories.push(await memory());
    const of = (all, share) => all.toSorted((a, b) => a - b)[Math.floor((all.length - 1) * share)];
    // Pools and caches have grown by half time.
    const grown = memories.at(-1).map((kb, n) => Math.round(kb - memories[Math.floor((memories.length - 1) / 2)][n]));
    const each = (last.pictures - first.pictures) / SECONDS;
    context.diagnostic(`${each.toFixed(2)} pictures a second, ${of(seen, 0.5)} ms old (${of(seen, 0)} to ${of(seen, 1)}), longest gap ${last.gap} ms`);
    context.diagnostic(`${last.pieces - first.pieces} pieces of sound, older by ${of(apart, 0.5)} ms (${of(apart, 0)} to ${of(apart, 1)})`);
    context.diagnostic(`grown by ${grown.join(", ")} kB since half time: the tab's heap, the far end, the near end`);
    assert.ok(of(seen, 1) <= AGE_MAX_MS && last.gap <= GAP_MS, `${of(seen, 1)} ms old, a gap of ${last.gap} ms`);
    assert.ok(each >= (IS_LONG ? 24.8 : 5), `${each} pictures a second`);
    assert.ok(apart.every((ms) => Math.abs(ms) <= APART_MS), `sound is older by ${of(apart, 0)} to ${of(apart, 1)} ms`);
    assert.ok(grown.every((kb) => kb <= GROWN_KB), `grown by ${grown} kB`);
    assert.deepEqual(wrong, []);
  } finally {
    await browser.close();
    for (const { child } of running.reverse()) child.kill("SIGINT");
    rmSync(folder, { recursive: true });
  }
});

test("the watch link opens the pictures and nothing else", async () => {
  const [token, watchToken] = ["all-that-the-node-has", "only-the-pictures"];
  const node = await startNode({ token, watchToken, compares: true });
  const browser = await startBrowser();
  try {
    const { page } = await openPage(browser, `${node.url}watch`);
    await page.getByLabel("Token").fill(watchToken);
    await page.getByRole("button", { name: "Open" }).click();
    await more(page, 5);
    assert.equal(page.url(), `${node.url}watch`, "the token leaves the address");
    assert.deepEqual(await page.locator("figcaption").allInnerTexts(), ["lecture", "slides"]);
    const status = (path) => page.evaluate(async (path) => (await fetch(path)).status, path);
    assert.deepEqual(await Promise.all(["watch", "main.js", "api/v1/node", "metrics", ""].map((path) => status(`/${path}`))),
      [200, 403, 403, 403, 403]);
    await page.locator("#videos canvas").first().dblclick();
    await page.waitForFunction(() => document.fullscreenElement?.querySelector("canvas"));
    await page.getByRole("button", { name: "lecture in full screen" }).first().click();
    await page.waitForFunction(() => document.fullscreenElement === null);
  } finally {
    await browser.close();
    await node.stop();
  }
});
