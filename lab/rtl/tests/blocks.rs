//! Block decisions on the simulated hardware against the software scheduler: the same streams, in the
//! same order if the block is sorted, and the same counters.

mod random;

use selvedge_data_sched::replay::{Arrivals, ReplayAction, Trace};
use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex, Verdict};
use selvedge_data_stream::{Kind, Window};
use selvedge_lab_rtl::{Design, Routing, Simulator, SimulatorError, Slots, ToolError};
use selvedge_units::Instant;

fn simulator(design: Design) -> Option<Simulator> {
    match Simulator::of(design) {
        Ok(simulator) => Some(simulator),
        Err(SimulatorError::Tool(ToolError::Absent { tool, package })) => {
            println!("SKIPPED: {tool} is not installed (Debian package {package})");
            None
        }
        Err(error) => panic!("{design}: {error}"),
    }
}

/// The blocks that software makes of a backlogged trace, one every `advance` slots: the streams of
/// each in order. Also the scheduler at the end.
fn blocks(trace: &Trace, advance: u64) -> (Vec<Vec<StreamIndex>>, Scheduler) {
    let mut sched = Scheduler::new(Discipline::Dwcs);
    let head = |deadline| Head { deadline, ..Head::arrived(Instant::ZERO) };
    for stream in &trace.streams {
        let index = sched.add(&stream.contract);
        sched.enqueue_head(index, head(stream.first_deadline));
    }
    let mut made = Vec::new();
    for t in (0..trace.ticks).step_by(advance as usize).map(Instant) {
        while let Some(expiry) = sched.poll_expired(t) {
            if expiry.verdict == Verdict::Dropped {
                sched.enqueue_head(expiry.stream, head(None));
            }
        }
        let mut block = Vec::new();
        while let Some(stream) = sched.choose(t) {
            sched.dequeue(stream);
            block.push(stream);
        }
        for &stream in &block {
            sched.enqueue_head(stream, head(None));
        }
        made.push(block);
    }
    (made, sched)
}

fn agree(design: Design, advance: u8, min_first: bool) {
    let Some(simulator) = simulator(design) else { return };
    let mut compared = 0;
    for seed in 0..200 {
        let mut trace = random::trace(seed, design.slots.count());
        trace.discipline = Discipline::Dwcs;
        trace.arrivals = Arrivals::Backlogged;
        trace.ticks = trace.ticks.min(100);
        let Ok(mut hardware) = simulator.replay_blocks(&trace, advance, min_first) else {
            continue;
        };
        let (expected, sched) = blocks(&trace, u64::from(advance));
        let mut found: Vec<Vec<StreamIndex>> = vec![Vec::new(); expected.len()];
        for event in &mut hardware {
            if let ReplayAction::Send { frame, .. } = event.action {
                found[event.t.0 as usize / usize::from(advance)].push(frame.stream);
            }
        }
        for (mut found, mut expected) in found.into_iter().zip(expected) {
            if min_first {
                expected.reverse();
            }
            if design.routing == Routing::PartialBlock {
                assert_eq!(found.first(), expected.first(), "{design}, seed {seed}\n{trace:?}");
                found.sort();
                expected.sort();
            }
            assert_eq!(found, expected, "{design}, seed {seed}\n{trace:?}");
        }
        for (index, total) in (0..).map(StreamIndex).zip(hardware.totals()) {
            let window: Window = sched.window(index, Kind::Data);
            assert_eq!((total.counters, total.window), (sched.counters(index), window));
        }
        compared += 1;
    }
    println!("{design}, min first {min_first}: {compared} traces the same");
    assert!(compared > 100, "{compared}");
}

#[test]
fn sorted_blocks_of_four_max_first_and_min_first() {
    let design = Design::plain(Slots::S4, Routing::FullSort);
    agree(design, 1, false);
    agree(design, 4, true);
}

#[test]
fn sorted_blocks_of_eight() {
    agree(Design::plain(Slots::S8, Routing::FullSort), 8, false);
}

#[test]
fn partial_blocks_have_the_right_streams_and_the_right_first() {
    let design = Design::plain(Slots::S4, Routing::PartialBlock);
    agree(design, 4, false);
    agree(design, 4, true);
    agree(
        Design { ahead: true, piped: true, ..Design::plain(Slots::S4, Routing::FullSort) },
        2,
        false,
    );
}
