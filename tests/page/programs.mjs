// Runs the real command for the tests, and makes what it needs.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createSocket } from "node:dgram";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../../", import.meta.url));

function run(program, args) {
  const done = spawnSync(program, args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 });
  assert.equal(done.status, 0, `${program}: ${done.stderr}`);
  return done.stdout;
}

export function selvedge() {
  if (process.env.SELVEDGE) return process.env.SELVEDGE;
  const args = ["build", "-p", "selvedge", "--message-format=json"];
  if (process.env.PAGE_PROFILE) args.push("--profile", process.env.PAGE_PROFILE);
  const messages = run("cargo", args).trim().split("\n").map((line) => JSON.parse(line));
  return messages.find((each) => each.target?.name === "selvedge" && each.executable).executable;
}

/** Ports that were free a moment ago. */
export async function ports(count) {
  const sockets = [];
  for (let n = 0; n < count; n++) {
    const socket = createSocket("udp4");
    socket.bind(0, "127.0.0.1");
    await once(socket, "listening");
    sockets.push(socket);
  }
  const all = sockets.map((socket) => socket.address().port);
  for (const socket of sockets) socket.close();
  return all;
}

/** Starts it, and waits for the address of its page. */
export async function start(program, args) {
  const child = spawn(program, args, { stdio: ["ignore", "ignore", "pipe"] });
  process.on("exit", () => child.kill());
  let said = "";
  for await (const text of child.stderr.iterator({ destroyOnReturn: false })) {
    said += text;
    const url = /page: (http:\S+)\n/.exec(said)?.[1];
    if (url) {
      child.stderr.resume();
      return { child, url };
    }
  }
  throw new Error(`${args[0]} ended: ${said}`);
}

/** Ten seconds with B pictures. */
export function encode(clip) {
  run("ffmpeg", ["-v", "error", "-f", "lavfi", "-i", "testsrc2=size=640x360:rate=25", "-t", "10", "-c:v", "libx264",
    "-preset", "veryfast", "-bf", "2", "-g", "50", "-b:v", "350k", "-pix_fmt", "yuv420p", clip]);
}
