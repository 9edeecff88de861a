// The page's words and numbers, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";
import { cause } from "../../web/static/cause.js";
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

const link = (changes = {}) => ({ name: "up", rate_bps: 1_580_000, used_share: 0.99, late_p99_ms: 4, ...changes });

test("the sentence counts what came since, and gives the cause", () => {
  const say = (now, before) => why(stream(now), before && stream(before), 10.4, () => "The cause.");
  assert.equal(say({}), "Since the start: 40 drops. The cause.");
  assert.equal(say({ dropped: { "group-skipped": 31, expired: 29 } }, {}), "Last 10 s: 20 drops. The cause.");
  assert.equal(say({ dropped: { "group-skipped": 32, expired: 9 } }, {}), "Last 10 s: 1 drop. The cause.");
  assert.equal(say({ frames: 150, sent: 110, on_time: 110 }, {}), "Last 10 s: nothing dropped, 50 frames came.");
  assert.equal(say({ frames: 150, sent: 110, on_time: 109 }, {}), "Last 10 s: nothing dropped, 1 frame late.");
  assert.equal(say({}, {}), "Last 10 s: no frames came.");
});

test("a cause is said with its numbers and a remedy", () => {
  const all = [
    stream({ name: "corridor", priority: 0, weight: 2 }),
    stream({ name: "car-park", priority: 0, weight: 1 }),
    stream({ name: "titles", priority: 0, weight: 2 }),
  ];
  const say = (lost, of = {}, needs = 2_100_000) => cause(all[0], new Map(Object.entries(lost)), link(of), needs, all);
  assert.equal(
    say({ sacrificed: 3 }),
    "up is too small: needs 2.10 Mbit/s, the link carries 1.58 Mbit/s; car-park has the lowest weight. "
      + "Raise its rate if it carries more, or lower the bitrate of a source.",
  );
  all[2].priority = -5;
  assert.match(say({ sacrificed: 3 }), /; titles has the lowest priority\. /);
  for (const each of all) [each.priority, each.weight] = [0, 1];
  assert.match(say({ expired: 1 }), /1\.58 Mbit\/s\. Raise/);
  all[1].window = "1/2";
  assert.match(say({ expired: 1 }), /; car-park may lose most, by its window\. /);
  assert.match(say({ expired: 1 }, {}, 1e6), /^A burst: .* A longer delay/);
  assert.match(say({ expired: 1 }, { used_share: 0.8 }, 1e6), /^The machine wakes up late \(4\.0 ms\)/);
  assert.match(say({ "send-failed": 1 }), /^The system refuses packets/);
  assert.match(say({ full: 1 }), /larger pool and ring/);
  assert.match(say({ unusable: 1 }), /larger pool/);
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
  const links = [{ name: "up", rate_bps: 6e6, offered_bps: 2e6 }];
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

test("history compares with ten seconds ago, and averages what is offered", () => {
  const history = new History();
  for (let tick = 0; tick <= 400; tick++) history.push(node(100 + tick * 0.25, { frames: tick }));
  const { before, seconds } = history.earlier("a", 200_000);
  assert.ok(seconds >= 10 && seconds < 11, String(seconds));
  assert.equal(before.frames, 400 - seconds * 4);
  assert.equal(history.needs.get("up"), 2e6);
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
