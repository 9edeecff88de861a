// The page's words and numbers, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../../web/static/format.js";
import { History, SPAN } from "../../web/static/history.js";
import { why } from "../../web/static/reasons.js";

function stream(changes = {}) {
  return {
    name: "a", link: "up", state: "running", window: "1/5", frames: 100, sent: 60, on_time: 60,
    decodable: 60, missed: 40, violations: 0, dropped: { "group-skipped": 31, expired: 9 },
    sent_bps: 1e6, decodable_share: 0.6, queueing_p99_ms: 12, ...changes,
  };
}

test("the sentence names the main reason, and the next if it matters", () => {
  const say = (now, before = null, seconds = 60) => why(stream(now), before && stream(before), seconds);
  assert.equal(
    say({}),
    "Since the start: 31 of 40 drops: whole groups skipped so that others could be decoded.",
  );
  assert.equal(
    say({ dropped: { expired: 4, full: 3 }, violations: 2 }),
    "Since the start: 4 of 7 drops: their deadlines passed while they waited. "
      + "3 more: the stream's ring or pool, or the link's queue, was full. Window broken 2 times.",
  );
  assert.equal(say({ dropped: { full: 1 } }).slice(0, 32), "Since the start: the only drop: ");
  assert.equal(say({ dropped: { full: 5 } }).slice(0, 30), "Since the start: all 5 drops: ");
  assert.equal(say({ dropped: { "new-reason": 2 } }), "Since the start: all 2 drops: new-reason.");
});

test("the sentence counts what came since", () => {
  const say = (now, before) => why(stream(now), stream(before), 120);
  assert.equal(
    say({ dropped: { "group-skipped": 31, expired: 29 } }, {}),
    "Last 2 min: all 20 drops: their deadlines passed while they waited.",
  );
  assert.equal(say({ frames: 150, sent: 110, on_time: 110 }, {}), "Last 2 min: nothing dropped, 50 frames came.");
  assert.equal(say({ frames: 150, sent: 110, on_time: 109 }, {}), "Last 2 min: nothing dropped, 1 frame late.");
  assert.equal(say({}, {}), "Last 2 min: no frames came.");
});

test("numbers keep their width and never flatter", () => {
  assert.equal(format.percent(0.9999), "99.9");
  assert.equal(format.percent(1), "100");
  assert.equal(format.percent(0.07), "7.0");
  assert.equal(format.percent(null), "–");
  assert.equal(format.rate(1_234_000), "1.23 Mbit/s");
  assert.equal(format.rate(45_600), "46 kbit/s");
  assert.equal(format.rate(2.5e9), "2.50 Gbit/s");
  assert.equal(format.count(1234567), "1\u202f234\u202f567");
  assert.equal(format.uptime(90_061_000), "1 d 01:01:01");
  assert.equal(format.milliseconds(9.96), "10");
  assert.equal(format.bytes(180_000), "180 kB");
});

test("exact rates read as the node writes them", () => {
  for (const [bps, text] of [
    [6_000_000, "6 Mbit/s"], [4_500_000, "4500 kbit/s"], [1e9, "1 Gbit/s"], [17, "17 bit/s"], [0, "0 bit/s"],
  ]) assert.equal(format.rateExact(bps), text);
});

function node(seconds, changes = {}) {
  const links = [{ name: "up", rate_bps: 6e6 }];
  return { name: "n", uptime_ms: seconds * 1000, links, streams: [stream(changes)] };
}

test("history keeps two minutes, and all lines are as long", () => {
  const history = new History();
  for (let tick = 0; tick < 2000; tick++) history.push(node(tick * 0.25, { sent_bps: tick }));
  const lines = history.streams.get("a");
  assert.ok(history.times.length <= SPAN * 2 + 2, `${history.times.length} samples`);
  assert.ok(history.times.at(-1) - history.times[0] >= SPAN - 1);
  for (const line of [...Object.values(lines), ...history.links.values()]) {
    assert.equal(line.length, history.times.length);
  }
  assert.ok(history.marks.length < 30);
  assert.equal(lines.decodable.at(-1), 60);
});

test("history compares only once there is enough", () => {
  const history = new History();
  history.push(node(100));
  assert.equal(history.earlier("a", 104_000).before, null);
  history.push(node(115));
  assert.equal(history.earlier("a", 115_000).before.frames, 100);
  assert.equal(history.earlier("a", 115_000).seconds, 15);
});

test("a pause is a gap, a restart begins anew", () => {
  const history = new History();
  history.push(node(10));
  history.push(node(30));
  assert.deepEqual(history.times, [10, 10.5, 30]);
  assert.deepEqual(history.streams.get("a").rate, [1e6, null, 1e6]);
  history.push(node(1));
  assert.deepEqual(history.times, [1]);
  assert.equal(history.marks.length, 1);
});
