// The page in a real browser, against the fake node. PAGE_SHOTS names a folder for screenshots.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { openPage, startBrowser, startNode } from "./fake.mjs";

let browser;
before(async () => {
  browser = await startBrowser();
});
after(() => browser?.close());

/** Every test has its own node and page, and ends with nothing having gone wrong. */
function pageTest(name, options, body) {
  test(name, async (context) => {
    const node = await startNode(options.node);
    try {
      const { page, wrong } = await openPage(browser, node.url, options.page);
      await body(page, node, context);
      assert.deepEqual(wrong, [], "console errors or requests to elsewhere");
      await page.context().close();
    } finally {
      await node.stop();
    }
  });
}

const row = (page, name) => page.locator(`tbody[data-stream="${name}"]`);
const live = (page) => page.locator("#connection[data-kind=open]").waitFor();
const settled = (field) => field.locator("xpath=..");

pageTest("the table fills and its numbers move", {}, async (page) => {
  await live(page);
  assert.equal(await page.title(), "studio – Selvedge");
  assert.equal(await page.locator("tbody.stream").count(), 6);
  const lecture = row(page, "lecture");
  assert.equal(await lecture.locator("strong").innerText(), "lecture");
  assert.equal(await lecture.locator("td.state").innerText(), "running");
  assert.match(await lecture.locator(".path").innerText(), /^file:clips\/lecture\.mp4\?loop → 127\.0\.0\.1:\d+$/);
  await page.waitForFunction(() => {
    const text = document.querySelector('tbody[data-stream="lecture"] td.decodable')?.textContent;
    return /^\d+(\.\d)?$/.test(text ?? "");
  });
  await page.waitForFunction(
    () => Number(document.querySelector('tbody[data-stream="lecture"] td.drops .number')?.textContent) > 0,
  );
  await page.waitForFunction(() =>
    /drops?\. /.test(document.querySelector('tbody[data-stream="lecture"] td.why')?.textContent ?? ""));
  assert.match(await lecture.locator("td.drops").getAttribute("title"), /so that others could be decoded/);
  assert.match(await row(page, "door").locator("td.why").innerText(), /next try in 3 s/);
  assert.match(await page.locator(".link .value").first().innerText(), /^[\d.]+ Mbit\/s$/);
  assert.match(await page.locator(".link").innerText(), /late wake-ups\s+0\.7 ms\s+99\.3 % used/i);
});

pageTest("a comparison has both pictures, both figures, the bound and one knob", { node: { compares: true } }, async (page, node) => {
  await live(page);
  const scores = page.locator("#comparison .score");
  const said = async () => (await scores.allInnerTexts()).map((text) => text.replace(/\s+/g, " ").trim().toLowerCase());
  assert.deepEqual(await said(), ["decodable with dwcs 95.3", "decodable with fifo –", "best possible 95.8"]);
  const note = await page.locator("#comparison p").innerText();
  assert.match(note, /need 2\.12 Mbit\/s, each link carries 7\.00 Mbit\/s\. .* for 00:01:05, .* delay of 1000 ms is used up/);

  // Without a codec that this browser decodes, they come as images.
  assert.deepEqual(await page.locator("#videos .label").allInnerTexts(), ["dwcs, received", "fifo, received", "sent"]);
  await page.waitForFunction(() =>
    [...document.querySelectorAll("#videos canvas")].every((each) => Number(each.dataset.pictures) > 3));
  assert.match(await page.locator("#videos .label").last().getAttribute("title"), /left this node/);

  const rate = page.getByLabel("rate of both links");
  await rate.fill("900 kbit/s");
  await rate.press("Enter");
  await settled(rate).and(page.locator("[data-state=applied]")).waitFor();
  const asked = await (await fetch(new URL("api/v1/node", node.url))).json();
  assert.equal(asked.links[0].rate_bps, 900_000);
});

pageTest("pictures move", {}, async (page) => {
  /** A sum over the pixels, once it is another than `last`. */
  const pixels = (last) => {
    const canvas = document.querySelector('tbody[data-stream="lecture"] canvas[data-picture]');
    if (!canvas) return null;
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    let sum = 1;
    for (let n = 0; n < data.length; n += 4) sum = (sum * 31 + data[n] + data[n + 1] + data[n + 2]) >>> 0;
    return sum === last ? null : sum;
  };
  const first = await (await page.waitForFunction(pixels, 0)).jsonValue();
  await page.waitForFunction(pixels, first);
  // A stream without pictures has none.
  assert.equal(await row(page, "voice").locator("canvas[data-picture]").count(), 0);
});

pageTest("plots are drawn in the table's colours", {}, async (page) => {
  await live(page);
  await page.waitForFunction(() => {
    const swatch = document.createElement("canvas").getContext("2d");
    const row = document.querySelector('tbody[data-stream="audience"]');
    if (!row) return false;
    swatch.fillStyle = row.style.getPropertyValue("--stream");
    swatch.fillRect(0, 0, 1, 1);
    const wanted = swatch.getImageData(0, 0, 1, 1).data;
    return [...document.querySelectorAll(".plot canvas")].every((canvas) => {
      const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      for (let n = 0; n < data.length; n += 4) {
        if ([0, 1, 2].every((part) => Math.abs(data[n + part] - wanted[part]) < 12) && data[n + 3] > 200) return true;
      }
      return false;
    });
  });
  // Pointing a stream out in the table names it in the plots.
  await row(page, "audience").locator("button.swatch").click();
  assert.equal(await row(page, "audience").locator("button.swatch").getAttribute("aria-pressed"), "true");
  await page.waitForFunction(() =>
    [...document.querySelectorAll(".readout")].every((each) => each.textContent.startsWith("audience ")));
});

pageTest("a row opens, and the hour and the events come from the node", {}, async (page) => {
  await live(page);
  const lecture = row(page, "lecture");
  await lecture.locator("button.opener").click();
  assert.match(await lecture.locator("dl").innerText(), /Since the start\s+[\d\u202f]+ frames came, /);
  assert.doesNotMatch(await lecture.locator("dl").innerText(), /Encoder/);
  await lecture.locator("button.opener").click();
  assert.equal(await lecture.locator("dl").isVisible(), false);
  const slides = row(page, "slides");
  assert.match(await slides.locator("td.rate").innerText(), /of 2\.10? Mbit\/s/);
  await slides.locator("button.opener").click();
  assert.match(await slides.locator("dl").innerText(), /Encoder\s+aims at 2\.10? Mbit\/s, by the measured rate/);
  await page.locator("#events li", { hasText: "door" }).first().waitFor();
  assert.match(await page.locator("#alarm").innerText(), /^Broken: .*door: retrying/);
  await page.locator("#hour").click();
  assert.equal(await page.locator("#hour").getAttribute("aria-pressed"), "true");
  await page.waitForFunction(() => /\d/.test(document.querySelector(".readout")?.textContent ?? ""));
});

pageTest("a window is edited in place", {}, async (page, node) => {
  const field = row(page, "lecture").locator("td.window input");
  await field.fill("2/7");
  await settled(field).and(page.locator("[data-state=edited]")).waitFor();
  await field.press("Enter");
  await settled(field).and(page.locator("[data-state=applied]")).waitFor();
  const asked = await fetch(new URL("api/v1/streams/lecture", node.url));
  assert.equal((await asked.json()).window, "2/7");
  await settled(field).and(page.locator("[data-state=idle]")).waitFor();
  assert.equal(await field.inputValue(), "2/7");

  await field.fill("3/9");
  await field.press("Escape");
  assert.equal(await field.inputValue(), "2/7");
  assert.equal(await settled(field).getAttribute("data-state"), "idle");
});

pageTest("a priority and a rate are edited in place", {}, async (page, node) => {
  const priority = row(page, "audience").locator("td.priority input");
  await priority.fill("12");
  await priority.press("Enter");
  await settled(priority).and(page.locator("[data-state=applied]")).waitFor();
  const rate = page.locator(".link .field input");
  await rate.fill("4.5 Mbit/s");
  await rate.press("Enter");
  await settled(rate).and(page.locator("[data-state=applied]")).waitFor();
  assert.equal(await rate.inputValue(), "4500 kbit/s");
  const asked = await (await fetch(new URL("api/v1/node", node.url))).json();
  assert.equal(asked.streams[2].priority, 12);
  assert.equal(asked.links[0].rate_bps, 4_500_000);
});

pageTest("a bad value says why, beside its field", {}, async (page, node) => {
  const field = row(page, "slides").locator("td.window input");
  await field.fill("9/5");
  await field.press("Enter");
  const error = row(page, "slides").locator("td.window .error");
  await error.waitFor();
  assert.match(await error.innerText(), /9\/5 would lose more frames than it holds; write "x\/y"/);
  assert.equal(await field.getAttribute("aria-invalid"), "true");
  assert.equal(await field.getAttribute("aria-describedby"), await error.getAttribute("id"));
  assert.equal(await field.inputValue(), "9/5", "the text stays to be mended");
  await field.press("Escape");
  await error.waitFor({ state: "hidden" });
  assert.equal(await field.inputValue(), "I 0/1, P 1/8, B 1/2");

  for (const [text, says] of [["high", /not a whole number/], ["5000", /out of range/]]) {
    const priority = row(page, "slides").locator("td.priority input");
    await priority.fill(text);
    await priority.press("Enter");
    await page.waitForFunction(
      ([source]) => new RegExp(source).test(document.querySelector('tbody[data-stream="slides"] td.priority .error').textContent),
      [says.source],
    );
  }
  const asked = await (await fetch(new URL("api/v1/streams/slides", node.url))).json();
  assert.deepEqual([asked.window, asked.priority], ["I 0/1, P 1/8, B 1/2", 0]);
});

pageTest("rows can be ordered, filtered, and reached by keyboard", {}, async (page) => {
  await live(page);
  const names = () => page.locator("tbody.stream:visible strong").allInnerTexts();
  await page.locator("#order").selectOption("name");
  assert.deepEqual(await names(), ["audience", "corridor", "door", "lecture", "slides", "voice"]);
  await page.locator("#filter").fill("retrying");
  assert.deepEqual(await names(), ["door"]);
  await page.locator("#filter").fill("nothing has this");
  assert.equal(await page.locator("#empty").innerText(), "No stream matches the filter.");
  await page.locator("#filter").fill("");
  await page.keyboard.press("Tab");
  const focused = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label"));
  const reached = [];
  for (let n = 0; n < 4; n++) {
    reached.push(await focused());
    await page.keyboard.press("Tab");
  }
  assert.deepEqual(reached, ["point out audience in the plots", "details of audience", "window of audience", "priority of audience"]);
});

pageTest("channels have members, rates, drops by reason and what filters cost", {}, async (page) => {
  await live(page);
  const row = (host) => page.locator("#channels tbody tr", { hasText: host });
  await row("studio/411").waitFor();
  assert.match(await row("studio/411").locator(".filters").innerText(), /^least \(out\): 1.234 ns a call$/);
  assert.match(await row("wall/97").locator(".drops").innerText(), /^expired [\d\u2009\u202f]+, no room 3$/);
  assert.equal(await row("studio/411").locator(".drops").innerText(), "ring full 5");
  const members = row("studio/411").locator(".members");
  assert.equal(await members.innerText(), "1 (1 ring)");
  assert.equal(await members.getAttribute("title"), "wall/97: to it ring, from it zenoh");
  // A hundred a second, of which three quarters arrive.
  await page.waitForFunction(() => {
    const number = (cell) => Number(document.querySelector(`#channels td.${cell}`)?.textContent);
    const wall = document.querySelectorAll("#channels td.delivered")[1]?.textContent;
    return Math.abs(number("sent") - 100) < 10 && Math.abs(Number(wall) - 75) < 10;
  });
  assert.equal(await page.locator("#channels .tools p").innerText(), "1 channel on 2 hosts");
});

pageTest("stacks have connections, modules, who serves them, and rates", {}, async (page) => {
  await live(page);
  const row = page.locator("#stacks tbody tr", { hasText: "192.0.2.7:5004" });
  await row.waitFor();
  const modules = await row.locator(".module").allInnerTexts();
  assert.deepEqual(modules, [
    "ui ↓0 ↑1",
    "encrypt(chacha20) ↓0,1 ↑1 3 wait",
    "unreliable ↓0 ↑1",
    "net ↓0 ↑1",
  ]);
  assert.equal(await row.locator("td").nth(4).innerText(), "250 µs");
  assert.match(await row.locator(".drops").innerText(), /^no room 2$/);
  await page.waitForFunction(() => {
    const sent = Number(document.querySelector("#stacks td.sent")?.textContent);
    return Math.abs(sent - 50) < 6;
  });
  assert.equal(
    await page.locator("#stacks .tools p").innerText(),
    "1 connection on 2 elements, re-assigned 1 time, not encrypted",
  );
});

pageTest("only rows that can be seen have pictures, and nothing moves", { node: { streams: 200 } }, async (page) => {
  await live(page);
  assert.equal(await page.locator("tbody.stream").count(), 200);
  await page.locator("canvas[data-picture]").first().waitFor();
  const places = () => page.locator("tbody.stream").evaluateAll((rows) => rows.map((each) => each.offsetTop));
  const first = await places();
  await page.waitForFunction(() => Number(document.querySelector("canvas[data-picture]")?.dataset.picture) > 8);
  assert.deepEqual(await places(), first, "rows stay where they are");
  const pictures = await page.locator("canvas[data-picture]").count();
  assert.ok(pictures > 2 && pictures < 40, `${pictures} of 200 rows have pictures`);
  const last = page.locator("tbody.stream").last();
  await last.scrollIntoViewIfNeeded();
  const name = await last.getAttribute("data-stream");
  await page.waitForFunction(
    (name) => /\d/.test(document.querySelector(`tbody[data-stream="${name}"] td.why`)?.textContent ?? ""),
    name,
  );
});

test("the page finds a restarted node again", async () => {
  let node = await startNode();
  const { page } = await openPage(browser, node.url);
  await live(page);
  await page.locator("canvas[data-picture]").first().waitFor();
  const before = await row(page, "lecture").locator("canvas").getAttribute("data-picture");
  await node.stop();
  await page.locator("#connection[data-kind=waiting]").waitFor();
  await page.waitForFunction(() => /next try in \d+ s/.test(document.querySelector("#countdown").textContent));
  const field = row(page, "lecture").locator("td.window input");
  await field.fill("1/3");
  await field.press("Enter");
  await row(page, "lecture").locator("td.window .error", { hasText: "not connected" }).waitFor();
  await field.press("Escape");

  node = await startNode({ listen: new URL(node.url).host });
  try {
    await live(page);
    await page.waitForFunction((before) => {
      const now = document.querySelector('tbody[data-stream="lecture"] canvas')?.dataset.picture;
      return Number(now) > 0 && now !== before;
    }, before);
  } finally {
    await page.context().close();
    await node.stop();
  }
});

test("a token opens the page, and is not left in its address", async () => {
  const node = await startNode({ token: "correct-horse-battery" });
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    assert.equal((await page.goto(node.url)).status(), 401);
    await page.getByLabel("Token").fill("correct-horse-battery");
    await page.getByRole("button", { name: "Open" }).click();
    await live(page);
    assert.equal(page.url(), node.url);
    await page.reload();
    await live(page);
  } finally {
    await context.close();
    await node.stop();
  }
});

const SHOTS = [
  ["wide", { viewport: { width: 1280, height: 800 } }],
  ["dark", { viewport: { width: 1280, height: 800 }, colorScheme: "dark" }],
  ["phone", { viewport: { width: 400, height: 800 } }],
];
for (const [name, options] of SHOTS) {
  pageTest(`nothing runs out of the page: ${name}`, { page: options }, async (page) => {
    await live(page);
    await page.locator("canvas[data-picture]").first().waitFor();
    const [wide, view] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= view, `${wide} px of content in ${view}`);
    if (process.env.PAGE_SHOTS) {
      // With something to see in the plots.
      await page.waitForFunction(() =>
        /^Last/.test(document.querySelector('tbody[data-stream="lecture"] td.why')?.textContent ?? ""));
      await mkdir(process.env.PAGE_SHOTS, { recursive: true });
      await page.screenshot({ path: join(process.env.PAGE_SHOTS, `page-${name}.png`) });
    }
  });
}
