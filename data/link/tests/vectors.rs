//! Every trace of `vectors/` through a whole link, a slot a nanosecond and a byte: the decisions that
//! the engine's thread gets are those of the scheduler alone, with queues, pacing and ledger in
//! between.

#![allow(clippy::disallowed_methods, reason = "the tests read files")]

use std::path::Path;

use selvedge_data_link::{Link, LinkParams, WAITING_MAX};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::replay::{Arrivals, Replay, ReplayAction, Trace};
use selvedge_data_sched::{Discipline, StreamIndex};
use selvedge_data_stream::Counters;
use selvedge_data_stream::{Fate, Frame, Kind, References, Window};
use selvedge_units::{Bitrate, Bytes, Instant};

/// The events: at a slot, a frame of a stream was sent, or dropped.
type Events = Vec<(u64, u32, u64, bool)>;

/// Disciplines whose order does not depend on sizes: a slot is one byte here, whatever the trace
/// states.
const BY_TIME: [Discipline; 5] =
    [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf, Discipline::Priority, Discipline::Fifo];

fn by_scheduler(trace: &Trace) -> (Events, Vec<(Counters, Window)>) {
    let mut replay = Replay::new(trace);
    let mut events = Vec::new();
    for event in &mut replay {
        let (frame, sent) = match event.action {
            ReplayAction::Send { frame, .. } => (frame, true),
            ReplayAction::Drop(frame) => (frame, false),
            ReplayAction::Miss(_) | ReplayAction::Idle => continue,
        };
        events.push((event.t.0, frame.stream.0, frame.seq, sent));
    }
    (events, replay.totals().map(|(_, counters, window)| (counters, window)).collect())
}

/// Arrivals in the order of time, each with its stream; all at 0 for queues that never run dry.
fn arrivals(trace: &Trace, totals: &[(Counters, Window)]) -> Vec<(Instant, u32)> {
    match &trace.arrivals {
        Arrivals::Listed(listed) => {
            let mut listed: Vec<_> = listed.iter().map(|a| (a.at, a.stream.0)).collect();
            listed.sort_by_key(|&(at, _)| at);
            listed
        }
        Arrivals::Backlogged => (0..)
            .zip(totals)
            .flat_map(|(stream, (counters, _))| {
                let need = counters.sent + counters.dropped + 2;
                (0..need).map(move |_| (Instant::ZERO, stream))
            })
            .collect(),
    }
}

fn through_link(trace: &Trace, arrivals: &[(Instant, u32)]) -> (Events, Vec<(Counters, Window)>) {
    let mut link = Link::new(LinkParams {
        discipline: trace.discipline,
        selection: false,
        rate: Bitrate(8_000_000_000),
        burst: Bytes(1),
        catch_up: None,
        mtu: Bytes(1),
        queue: None,
    });
    for stream in &trace.streams {
        link.add_stream(stream.contract);
    }
    let mut seqs = vec![0_u32; trace.streams.len()];
    let mut arrivals = arrivals.iter().peekable();
    let mut events = Events::new();
    for t in 0..trace.ticks {
        let now = Instant(t);
        while let Some(&(at, stream)) = arrivals.next_if(|&&(at, _)| at <= now) {
            let seq = &mut seqs[stream as usize];
            let first = trace.streams[stream as usize].first_deadline.filter(|_| *seq == 0);
            let frame = Frame {
                seq: *seq,
                kind: Kind::Data,
                referenced: false,
                refs: References::NONE,
                packets: 1,
                size: Bytes(1),
                arrival: at,
                deadline: first,
                payload: PayloadSpan::default(),
            };
            *seq += 1;
            link.handle_frame(now, StreamIndex(stream), frame);
        }
        if link.poll_transmit(now).is_some() {
            assert!(link.departure(Bytes(1)) <= now, "the pacer holds back a slot");
            link.sent(now, Bytes(1));
        }
        let mut dropped = Vec::new();
        let mut sent = Vec::new();
        while let Some(settled) = link.poll_settled() {
            let of_whom = (t, settled.stream.0, settled.frame.seq.into());
            match settled.fate {
                Fate::Sent { .. } => sent.push((of_whom.0, of_whom.1, of_whom.2, true)),
                Fate::Dropped(_) => dropped.push((of_whom.0, of_whom.1, of_whom.2, false)),
            }
        }
        // Misses are printed by stream.
        dropped.sort_by_key(|&(_, stream, ..)| stream);
        events.extend(dropped.into_iter().chain(sent));
    }
    let sched = link.scheduler();
    let total = |n: usize| {
        let stream = StreamIndex(n as u32);
        (sched.counters(stream), sched.window(stream, Kind::Data))
    };
    (events, (0..trace.streams.len()).map(total).collect())
}

#[test]
fn the_link_decides_as_the_scheduler_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let name = path.display().to_string();
        let trace = Trace::parse(&std::fs::read_to_string(&path).unwrap(), &name).unwrap();
        if !BY_TIME.contains(&trace.discipline) {
            continue;
        }
        let (expected, totals) = by_scheduler(&trace);
        let arrivals = arrivals(&trace, &totals);
        // The engine leaves more than these in their rings.
        let most = (0..trace.streams.len() as u32)
            .map(|stream| arrivals.iter().filter(|(_, whose)| *whose == stream).count());
        if most.max().unwrap_or(0) >= WAITING_MAX {
            continue;
        }
        let (events, counted) = through_link(&trace, &arrivals);
        for (n, (event, expected)) in events.iter().zip(&expected).enumerate() {
            assert_eq!(event, expected, "{name}, event {n}");
        }
        assert_eq!(events.len(), expected.len(), "{name}");
        assert_eq!(counted, totals, "{name}");
        count += 1;
    }
    assert!(count >= 60, "only {count} vectors");
}
