//! Trace files: any text is read or refused, and an accepted trace replays within its bounds.

use std::collections::HashMap;

use selvedge_data_sched::replay::{Event, FrameRef, Replay, ReplayAction, Trace};
use selvedge_data_sched::trace::{RunError, run};

/// Streams times ticks that are replayed at most.
const WORK_MAX: u64 = 20_000;
const TICKS_MAX: u64 = 2_000;

pub fn fuzz(text: &str) {
    let mut trace = match Trace::parse(text, "fuzz.json") {
        Ok(trace) => trace,
        Err(error) => {
            assert!((1..=text.split('\n').count()).contains(&error.line), "{error}");
            assert!(error.to_string().len() < 4096, "no message grows with its input");
            return;
        }
    };
    let cap = (WORK_MAX / (trace.streams.len() as u64).max(1)).min(TICKS_MAX);
    if trace.ticks <= cap {
        printed(text);
    }
    trace.ticks = trace.ticks.min(cap);
    replayed(&trace);
}

/// Checks that each printed line is a JSON object.
fn printed(text: &str) {
    let mut out = Vec::new();
    match run(text, "fuzz.json", None, &mut out) {
        Ok(()) => {}
        Err(RunError::Trace(error)) => panic!("refused the second time: {error}"),
        Err(RunError::Write(error)) => panic!("memory takes everything: {error}"),
    }
    let out = String::from_utf8(out).expect("the output is text");
    for line in out.lines() {
        let object = serde_json::from_str::<serde_json::Value>(line).expect("each line is JSON");
        assert!(object.is_object(), "{line}");
    }
}

#[derive(Default)]
struct Seen {
    sent: u64,
    late: u64,
    missed: u64,
    dropped: u64,
    last: Option<FrameRef>,
}

fn replayed(trace: &Trace) {
    let mut replay = Replay::new(trace);
    let mut seen: HashMap<u32, Seen> = HashMap::new();
    let (mut events, mut slots) = (0_u64, 0_u64);
    // One decision in each slot; and each stream misses at most one deadline for each tick.
    let events_max = trace.ticks * (1 + trace.streams.len() as u64);
    for Event { t, action: happening } in &mut replay {
        events += 1;
        assert!(events <= events_max, "{events} events");
        assert_eq!(t.0, slots, "each slot is decided before the next");
        let (frame, sent, late, missed, dropped) = match happening {
            ReplayAction::Drop(frame) => (frame, 0, false, 1, 1),
            ReplayAction::Miss(frame) => (frame, 0, false, 1, 0),
            ReplayAction::Send { frame, late } => (frame, 1, late, 0, 0),
            ReplayAction::Idle => {
                slots += 1;
                continue;
            }
        };
        slots += sent;
        let stream = seen.entry(frame.stream.0).or_default();
        stream.sent += sent;
        stream.late += u64::from(late);
        stream.missed += missed;
        stream.dropped += dropped;
        if let Some(last) = stream.last.replace(frame) {
            assert!(last.seq <= frame.seq, "frames of a stream keep their order");
        }
        assert!(missed == 0 || frame.deadline <= t, "a miss is not told before its deadline");
    }
    assert_eq!(slots, trace.ticks);
    for (index, (_, counters, window)) in (0..).zip(replay.totals()) {
        let seen = seen.remove(&index).unwrap_or_default();
        assert_eq!(counters.sent, seen.sent);
        assert_eq!(counters.late, seen.late);
        assert_eq!(counters.missed, seen.missed);
        assert_eq!(counters.dropped, seen.dropped);
        assert!(counters.violations <= counters.missed);
        assert!(window.lose <= window.of);
    }
    assert!(seen.is_empty(), "events of streams that do not exist");
}
