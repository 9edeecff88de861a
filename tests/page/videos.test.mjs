// Nine received streams at 25 pictures a second on the page of `selvedge play --page`: no long gap, and a
// stopped tab costs the server no memory. PAGE_SECONDS says for how long (make soak: ten minutes). And what
// both receivers of `selvedge demo` got, beside each other.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { openPage, startBrowser } from "./fake.mjs";
import { encode, ports, selvedge, start } from "./programs.mjs";

const STREAMS = 9;
const SECONDS = Number(process.env.PAGE_SECONDS ?? 8);
const STOPPED = SECONDS >= 60 ? 60 : 5;
/** Asked for in a long run alone, on a machine that is left alone: no short test fails because one is slow. */
const GAP_MS = SECONDS >= 60 ? 200 : Infinity;
const MEMORY_KB = 2048;

const memory = (child) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))[1]);

test("a demo plays what both receivers got, with both figures and the bound", async () => {
  const folder = mkdtempSync(join(tmpdir(), "selvedge-demo-"));
  const browser = await startBrowser();
  let demo;
  try {
    for (const name of ["one.mp4", "two.mp4"]) encode(join(folder, name));
    demo = await start(selvedge(), ["demo", "--seconds", "170", "--no-open", "--listen", "127.0.0.1:0", "--clips", folder]);
    const { page, wrong } = await openPage(browser, demo.url);
    await page.waitForFunction(() => {
      const canvases = [...document.querySelectorAll("#videos canvas")];
      return canvases.length === 4 && canvases.every((each) => Number(each.dataset.pictures) > 10);
    });
    assert.deepEqual(await page.locator("#videos .label").allInnerTexts(),
      ["dwcs, received", "fifo, received", "dwcs, received", "fifo, received"]);
    const figures = () => page.locator("#comparison .big").allInnerTexts();
    await page.waitForFunction(() =>
      [...document.querySelectorAll("#comparison .big")].every((each) => /^\d/.test(each.textContent)));
    const [ours, other, bound] = (await figures()).map(Number);
    assert.ok(ours > other && other > 0 && bound > 50, String([ours, other, bound]));
    const rate = page.getByLabel("rate of both links");
    await rate.fill("300 kbit/s");
    await rate.press("Enter");
    // Figures of before are of no use then.
    await page.waitForFunction(() => /^–/.test(document.querySelector("#comparison .ours .big").textContent));
    await page.waitForFunction(() =>
      /each link carries 300 kbit\/s/.test(document.querySelector("#comparison p").textContent));
    assert.deepEqual(wrong, []);
  } finally {
    await browser.close();
    demo?.child.kill("SIGINT");
    rmSync(folder, { recursive: true });
  }
});

test(`nine received streams for ${SECONDS} s`, { timeout: (SECONDS + STOPPED + 170) * 1000 }, async (context) => {
  const program = selvedge();
  const folder = mkdtempSync(join(tmpdir(), "selvedge-page-"));
  const started = [];
  const browser = await startBrowser();
  try {
    const clip = join(folder, "clip.mp4");
    encode(clip);
    const to = await ports(STREAMS);
    const streams = to.map((port, n) => `[stream.cam${n}]\nsource = "file:${clip}?loop"\nto = "rtp://127.0.0.1:${port}"\n`
      + `delay = "300 ms"\nthumbnail = false\nsdp = "${n}.sdp"\n`);
    writeFileSync(join(folder, "node.toml"),
      `[node]\nlisten = "127.0.0.1:0"\n[link.uplink]\nrate = "20 Mbit/s"\n${streams.join("")}`);
    started.push(await start(program, ["run", join(folder, "node.toml")]));
    // One session of all.
    const of = to.map((_, n) => readFileSync(join(folder, `${n}.sdp`), "utf8"));
    const media = of.map((text) => text.slice(text.indexOf("m=")));
    writeFileSync(join(folder, "all.sdp"), of[0].slice(0, of[0].indexOf("m=")) + media.join(""));
    const receiver = await start(program, ["play", join(folder, "all.sdp"), "--page", "127.0.0.1:0"]);
    started.push(receiver);

    const { page, wrong } = await openPage(browser, receiver.url, { viewport: { width: 1280, height: 1600 } });
    await page.waitForFunction((wanted) => {
      const canvases = [...document.querySelectorAll("#videos canvas")];
      return canvases.filter((each) => Number(each.dataset.pictures) > 60).length === wanted;
    }, STREAMS, { timeout: 60_000 });
    const shown = () => page.locator("#videos canvas").evaluateAll((all) => all.map(({ dataset }) => {
      const seen = { pictures: Number(dataset.pictures), gap: Number(dataset.gap) };
      return seen;
    }));
    const before = await shown();
    await page.waitForTimeout(SECONDS * 1000);
    const after = await shown();
    const rates = after.map(({ pictures }, n) => (pictures - before[n].pictures) / SECONDS);
    const gap = Math.max(...after.map((each) => each.gap));
    context.diagnostic(`longest gap ${gap} ms; pictures a second ${Math.min(...rates).toFixed(1)} to ${Math.max(...rates).toFixed(1)}`);

    const session = await page.context().newCDPSession(page);
    await session.send("Debugger.enable");
    const settled = memory(receiver.child);
    await session.send("Debugger.pause");
    // The tab stands still from the next task on; the time is the server's to fill.
    await new Promise((resolve) => setTimeout(resolve, STOPPED * 1000));
    const grown = memory(receiver.child) - settled;
    context.diagnostic(`memory ${settled} kB, ${grown} kB more after ${STOPPED} s with the tab stopped`);
    await session.send("Debugger.disable");

    assert.ok(grown <= MEMORY_KB, `${grown} kB more`);
    assert.ok(gap <= GAP_MS, `a gap of ${gap} ms`);
    assert.deepEqual(wrong, []);
  } finally {
    await browser.close();
    for (const { child } of started.reverse()) child.kill("SIGINT");
    rmSync(folder, { recursive: true });
  }
});
