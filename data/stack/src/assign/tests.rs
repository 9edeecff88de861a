//! The heuristic on the connections of Table 2, and on edge cases.

use selvedge_units::{Bytes, Duration};

use super::{Goal, Phase, Refusal, StreamLatency, assign, improve};
use crate::contract::{Contract, Promise, Quality, Traffic};
use crate::elements::{ElementId, ElementSet};
use crate::load::Load;
use crate::model::{Cost, Evaluation, Formulas, Latency, Machine, Overheads, Stream, StreamId};

fn us(n: u64) -> Duration {
    Duration(n * 1_000)
}

fn module(null: u64, kilobyte: u64) -> Cost {
    Cost::plain(us(null), us(kilobyte))
}

fn machine(elements: usize) -> Machine {
    let overheads = Overheads { get: us(20), get_locked: us(38), same: us(4), other: us(21) };
    Machine::whole(elements, overheads)
}

/// A video connection of Table 2: bursts of two messages.
fn video(per_second: u64, kilobytes: u64, delay: u64) -> Stream {
    let average = Duration(1_000_000_000 / per_second);
    let traffic = Traffic {
        average,
        minimum: Duration(average.0 / 16),
        interval: average * 2,
        largest: Bytes(kilobytes * 1024),
    };
    let quality = Quality { delay: us(delay), loss_burst: 0, promise: Promise::Wanted };
    Stream::new(Contract { traffic, quality }, vec![module(14, 0), module(7, 120), module(45, 0)])
}

/// The same without bursts.
fn steady(per_second: u64, kilobytes: u64, delay: u64) -> Stream {
    let mut stream = video(per_second, kilobytes, delay);
    stream.contract.traffic.minimum = stream.contract.traffic.average;
    stream
}

fn places(streams: &[Stream]) -> Vec<String> {
    streams.iter().map(|stream| stream.elements().to_string()).collect()
}

#[test]
fn table_2_is_decided_as_in_the_paper() {
    let machine = machine(2);
    let mut streams = vec![video(320, 4, 700), video(1408, 1, 400)];
    for n in 0..2 {
        streams = assign(&machine, &streams, StreamId(n), &[], Goal::Delay).unwrap().streams;
    }
    assert_eq!(places(&streams), ["PE.0", "PE.1"]);
    streams.push(video(1152, 1, 400));
    let third = assign(&machine, &streams, StreamId(2), &[], Goal::Delay).unwrap();
    assert_eq!(
        (third.phase, places(&third.streams)),
        (Phase::Pipelined, vec!["PE.0".into(), "PE.1".into(), "PE.0".into()])
    );

    // The stream doubles its messages: it is spread over both elements, and the second stream with it.
    streams = third.streams;
    streams[2].contract.traffic.largest = Bytes(2048);
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    assert!(!found.meets_rate(Latency::Worst, StreamId(2)));
    let latencies = [(900, 700), (214, 400), (500, 400)].map(|(experienced, guaranteed)| {
        StreamLatency { experienced: us(experienced), guaranteed: us(guaranteed) }
    });
    let doubled = assign(&machine, &streams, StreamId(2), &latencies, Goal::Delay).unwrap();
    assert_eq!(doubled.phase, Phase::Rebalanced);
    assert_eq!(places(&doubled.streams), ["PE.0", "PE.0,1", "PE.0,1"]);
    assert_eq!(doubled.moved, [StreamId(1), StreamId(2)]);

    // The second stream closes: its share goes to the first.
    streams = doubled.streams;
    streams[1].assign_all(ElementSet::EMPTY);
    let better = improve(&machine, &streams, StreamId(0), &latencies, Goal::Delay).unwrap();
    assert_eq!(places(&better.streams), ["PE.0,1", "-", "PE.0,1"]);
    assert!(
        better.guarantee.latency
            < Evaluation::new(&machine, &streams, Formulas::Corrected)
                .latency(Latency::Worst, StreamId(0))
    );
}

#[test]
fn a_pipeline_continues_where_the_rate_needs_it() {
    // 214 us of work every 190 us: two elements in a row can do it, one can't.
    let stream = steady(5263, 1, 400);
    let found = assign(&machine(2), &[stream], StreamId(0), &[], Goal::Delay).unwrap();
    assert_eq!(found.phase, Phase::Pipelined);
    assert_eq!(found.streams[0].assigned, [ElementSet(1), ElementSet(1), ElementSet(2)]);
}

#[test]
fn more_than_a_pipeline_gives_goes_to_several() {
    let stream = steady(7000, 1, 400);
    let found = assign(&machine(4), &[stream], StreamId(0), &[], Goal::Delay).unwrap();
    assert_eq!((found.phase, found.streams[0].elements()), (Phase::PartlyParallel, ElementSet(3)));
}

#[test]
fn refusals_say_by_how_much() {
    let say = |machine: &Machine, streams: &[Stream]| {
        let who = StreamId(streams.len() - 1);
        assign(machine, streams, who, &[], Goal::Delay).unwrap_err()
    };
    let fast = video(10_000, 1, 400);
    assert_eq!(
        say(&machine(2), std::slice::from_ref(&fast)).to_string(),
        "PE.0 would need 116.0 % of its time and gives 100.0 %; lower the rate or the message \
         size, or give it more elements"
    );
    let mut firm = steady(320, 4, 500);
    firm.contract.quality.promise = Promise::Firm;
    assert_eq!(say(&machine(2), &[firm]), Refusal::Delay { wanted: us(500), offered: us(574) });
    assert_eq!(say(&machine(0), std::slice::from_ref(&fast)), Refusal::NoElements);
    let idle = Machine { available: vec![Load::ZERO; 2], ..machine(2) };
    assert_eq!(say(&idle, &[fast]), Refusal::NoElements);
}

#[test]
fn a_firm_delay_is_not_broken_by_the_next() {
    let machine = machine(1);
    let mut first = steady(320, 4, 600);
    first.contract.quality.promise = Promise::Firm;
    let streams = assign(&machine, &[first], StreamId(0), &[], Goal::Delay).unwrap().streams;
    let both = [streams, vec![video(320, 1, 2000)]].concat();
    let refusal = assign(&machine, &both, StreamId(1), &[], Goal::Delay).unwrap_err();
    assert_eq!(refusal, Refusal::Other(StreamId(0)));
}

#[test]
fn the_goal_chooses_between_what_fits() {
    let stream = video(320, 4, 700);
    let spread = |goal| {
        let found = assign(&machine(4), std::slice::from_ref(&stream), StreamId(0), &[], goal);
        found.unwrap().streams[0].elements()
    };
    assert_eq!(spread(Goal::Delay), ElementSet::only(ElementId(0)));
    // Phase 2 stops at the first configuration that fits: two elements.
    assert_eq!(spread(Goal::Bandwidth), ElementSet(3));
}

#[test]
fn a_stream_without_modules_is_refused_quietly() {
    let mut stream = video(320, 4, 700);
    stream.modules.clear();
    stream.assigned.clear();
    assert!(
        assign(&machine(2), &[stream], StreamId(0), &[], Goal::Delay)
            .is_ok_and(|found| found.moved.is_empty())
    );
}
