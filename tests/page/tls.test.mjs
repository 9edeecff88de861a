// The page by TLS, in a browser on another host: two network namespaces, a node in one and Chromium in the
// other. What needs a secure context, WebCodecs, works there. Needs root.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { X509Certificate, createHash, randomBytes } from "node:crypto";
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startBrowser } from "./fake.mjs";

const isRoot = process.getuid() === 0;
const ADDRESS = "10.78.0.1";
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const token = randomBytes(16).toString("hex");
const viewToken = randomBytes(16).toString("hex");

function run(...command) {
  const done = spawnSync(command[0], command.slice(1), { encoding: "utf8", maxBuffer: 1 << 26 });
  assert.equal(done.status, 0, `${command.join(" ")}: ${done.stderr}`);
  return done.stdout;
}

/** Two hosts with a cable between them; `remove()` takes them away. */
function makeHosts() {
  const [node, viewer] = ["node", "viewer"].map((name) => `selvedge-page-${process.pid}-${name}`);
  const remove = () => [node, viewer].forEach((name) => spawnSync("ip", ["netns", "del", name]));
  process.on("exit", remove);
  run("ip", "netns", "add", node);
  run("ip", "netns", "add", viewer);
  run("ip", "-n", node, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", viewer);
  for (const [name, address] of [[node, ADDRESS], [viewer, "10.78.0.2"]]) {
    // An IPv6 address that is ready some seconds later is a change of the network to Chromium, which then drops what it loads.
    run("ip", "-n", name, "link", "set", "eth0", "addrgenmode", "none");
    run("ip", "-n", name, "address", "add", `${address}/24`, "dev", "eth0");
    run("ip", "-n", name, "link", "set", "eth0", "up");
    run("ip", "-n", name, "link", "set", "lo", "up");
  }
  return { node, viewer, remove };
}

/** A node in that namespace; `said` is all that it printed until its page was there. */
async function startNode(namespace, folder, tls) {
  writeFileSync(join(folder, "node.toml"), `[node]
listen = "${ADDRESS}:0"
token = "${token}"
view_token = "${viewToken}"
${tls}
[link.uplink]
rate = "6 Mbit/s"
[stream.lecture]
source = "file:clip.mp4?loop"
to = "rtp://127.0.0.1:9"
`);
  const args = ["netns", "exec", namespace, process.env.SELVEDGE, "run", join(folder, "node.toml")];
  const env = { ...process.env, XDG_STATE_HOME: folder };
  const child = spawn("ip", args, { stdio: ["ignore", "ignore", "pipe"], env });
  process.on("exit", () => child.kill());
  let said = "";
  for await (const text of child.stderr.iterator({ destroyOnReturn: false })) {
    said += text;
    const url = /page: (https?:\S+)\n/.exec(said)?.[1];
    if (url && (url.startsWith("http:") || said.includes("kept in"))) {
      child.stderr.resume();
      return { child, url, said };
    }
  }
  throw new Error(`the node ended: ${said}`);
}

/** Logs in, and counts what is decoded by WebCodecs. */
async function openPage(browser, url, shown) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.addInitScript(() => {
    window.decoded = 0;
    if (typeof VideoDecoder !== "function") return;
    const decode = VideoDecoder.prototype.decode;
    VideoDecoder.prototype.decode = function (chunk) {
      window.decoded += 1;
      return decode.call(this, chunk);
    };
  });
  assert.equal((await page.goto(url)).status(), 401);
  await page.getByLabel("Token").fill(shown);
  await page.getByRole("button", { name: "Open" }).click();
  await page.locator("#connection[data-kind=open]").waitFor();
  return page;
}

test("the page comes by TLS to another host", { skip: !isRoot && "needs root" }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "selvedge-page-tls-"));
  const hosts = makeHosts();
  const ends = [];
  try {
    run("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25", "-t", "5", "-c:v", "libx264",
      "-preset", "veryfast", "-g", "25", "-pix_fmt", "yuv420p", join(folder, "clip.mp4"));
    const node = await startNode(hosts.node, folder, "");
    ends.push(() => node.child.kill());
    const kept = join(folder, "selvedge/page.pem");
    const certificate = new X509Certificate(readFileSync(kept));
    assert.equal(statSync(kept).mode & 0o777, 0o600);
    assert.ok(node.said.includes(`certificate: SHA-256 ${certificate.fingerprint256}\n`), node.said);

    // Chromium takes this key and no other.
    const spki = certificate.publicKey.export({ type: "spki", format: "der" });
    const pin = createHash("sha256").update(spki).digest("base64");
    const inside = join(folder, "chromium");
    writeFileSync(inside, `#!/bin/sh\nexec ip netns exec ${hosts.viewer} ${CHROMIUM} "$@"\n`);
    chmodSync(inside, 0o755);
    const browser = await startBrowser(inside, [`--ignore-certificate-errors-spki-list=${pin}`]);
    ends.push(() => browser.close());
    const stranger = await startBrowser(inside);
    ends.push(() => stranger.close());
    const refused = (await stranger.newPage()).goto(node.url);
    await assert.rejects(refused, /ERR_CERT_AUTHORITY_INVALID/);

    const page = await openPage(browser, node.url, token);
    assert.equal(await page.evaluate(() => isSecureContext && typeof VideoDecoder), "function");
    await page.waitForFunction(() => window.decoded > 25);
    await page.waitForFunction(() => Number(document.querySelector("#videos canvas")?.dataset.pictures) > 10);
    assert.equal(await page.locator("#videos .label").innerText(), "sent");
    const cookies = await page.context().cookies();
    assert.equal(cookies.length, 1);
    const [{ name, value, secure, httpOnly, sameSite, expires }] = cookies;
    assert.ok(secure && httpOnly && sameSite === "Strict" && name.startsWith("__Host-"), name);
    assert.ok(!value.includes(token) && expires < Date.now() / 1000 + 43_300, value);
    const asked = (path, options) => page.evaluate(async ([path, options]) => {
      const answer = await fetch(path, options);
      return [answer.status, await answer.text()];
    }, [path, options]);
    assert.match((await asked("/metrics"))[1], /selvedge_stream_sent_total\{/);
    assert.equal(JSON.parse((await asked("/api/v1/node"))[1]).streams[0].name, "lecture");
    const change = { method: "PATCH", body: '{"window": "2/7"}' };
    assert.deepEqual(await asked("/api/v1/streams/lecture", change), [200, '{"window":"2/7"}']);

    // Plain HTTP leads to the page all the same.
    const plain = await page.context().newPage();
    await plain.goto(node.url.replace("https:", "http:"));
    assert.equal(plain.url(), node.url);

    // Who may only look sees the same, and changes nothing.
    const viewer = await openPage(browser, node.url, viewToken);
    const window = viewer.locator('tbody[data-stream="lecture"] td.window input');
    await window.fill("3/9");
    await window.press("Enter");
    await viewer.locator("td.window .error", { hasText: "lets you see" }).waitFor();
    node.child.kill();

    // Without TLS the same address is no secure context: this is what TLS is for.
    const open = await startNode(hosts.node, folder, 'tls = "off"');
    ends.push(() => open.child.kill());
    const insecure = await openPage(browser, open.url, token);
    assert.equal(await insecure.evaluate(() => isSecureContext || typeof VideoDecoder), "undefined");
  } finally {
    for (const end of ends.reverse()) await end();
    hosts.remove();
    rmSync(folder, { recursive: true });
  }
});
