//! The symbols by hand, on the figures of Table 1.

use selvedge_units::{Bytes, Duration};

use super::{
    Cost, Evaluation, Formulas, Interface, Latency, Machine, Overheads, Slaves, Stream, StreamId,
};
use crate::contract::{Contract, Promise, Quality, Traffic};
use crate::elements::{ElementId, ElementSet};
use crate::load::Load;

const US: u64 = 1_000;

fn us(n: u64) -> Duration {
    Duration(n * US)
}

fn table1() -> Overheads {
    Overheads { get: us(20), get_locked: us(38), same: us(4), other: us(21) }
}

fn module(null: u64, kilobyte: u64) -> Cost {
    Cost::plain(us(null), us(kilobyte))
}

/// Remote UI, unreliable with checksum, network, on these elements.
fn stream(every: u64, kilobytes: u64, assigned: [u64; 3]) -> Stream {
    let traffic = Traffic::steady(us(every), Bytes(kilobytes * 1024));
    let quality = Quality { delay: us(400), loss_burst: 0, promise: Promise::Wanted };
    let modules = vec![module(14, 0), module(7, 120), module(45, 0)];
    let mut stream = Stream::new(Contract { traffic, quality }, modules);
    stream.assigned = assigned.map(ElementSet).to_vec();
    stream
}

fn machine() -> Machine {
    Machine::whole(2, table1())
}

const P0: ElementId = ElementId(0);
const P1: ElementId = ElementId(1);
const A: StreamId = StreamId(0);
const B: StreamId = StreamId(1);

#[test]
fn one_stream_on_one_element() {
    let streams = [stream(1000, 1, [1, 1, 1])];
    let machine = machine();
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    // 20 get + 14 + 4 + 7 + 120 + 4 + 45.
    assert_eq!(found.exec(P0, A), us(214));
    assert_eq!(found.exec(P1, A), us(0));
    assert_eq!(found.utilization(P0), Load(214_000_000));
    assert_eq!(found.departure_interval(Latency::Worst, A), us(214));
    assert_eq!(found.lambda(Latency::Worst, A), us(214));
    assert_eq!((found.proc(A), found.share(A).count()), (ElementSet(1), 0));
    assert!(found.fits() && found.meets_rate(Latency::Worst, A));
    assert!(found.meets_delay(Latency::Worst, A));
}

#[test]
fn a_pipeline_pays_for_crossing() {
    let streams = [stream(1000, 1, [1, 1, 2])];
    let machine = machine();
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    // 20 + 14 + 4 + 127 + 21 here, 20 + 45 there.
    assert_eq!((found.exec(P0, A), found.exec(P1, A)), (us(186), us(65)));
    assert_eq!(found.departure_interval(Latency::Worst, A), us(186));
    assert_eq!(found.lambda(Latency::Worst, A), us(251));
}

#[test]
fn message_parallel_divides_and_locks() {
    let streams = [stream(1000, 1, [3, 3, 3])];
    let machine = machine();
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    // (38 + 14 + 127 + 45 + 4 + 4) / 2.
    assert_eq!((found.exec(P0, A), found.exec(P1, A)), (us(116), us(116)));
    assert_eq!(found.departure_interval(Latency::Worst, A), us(116));
    assert_eq!(found.lambda(Latency::Worst, A), us(232));
}

#[test]
fn critical_sections_do_not_divide() {
    let mut streams = [stream(1000, 1, [3, 3, 3])];
    streams[0].modules[1].critical = us(6);
    let machine = machine();
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    assert_eq!(found.exec(P0, A), us(119));
}

#[test]
fn waits_are_for_the_others_work() {
    let streams = [stream(3125, 4, [1, 1, 1]), stream(868, 1, [1, 1, 1])];
    let machine = machine();
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    assert_eq!((found.exec(P0, A), found.exec(P0, B)), (us(574), us(214)));
    assert_eq!(found.wait(Latency::Worst, B, A), us(574));
    // A message of A comes in one of ceil(3125 / 868) = 4 of B's times; one of B in each of A's.
    assert_eq!((found.prob(B, A), found.prob(A, B)), (4, 1));
    assert_eq!(found.wait(Latency::Average, B, A), Duration(143_500));
    assert_eq!(found.departure_interval(Latency::Worst, B), us(788));
    assert_eq!(found.departure_interval(Latency::Average, B), Duration(357_500));

    let printed = Evaluation::new(&machine, &streams, Formulas::Printed);
    assert_eq!(printed.wait(Latency::Worst, B, A), us(214));
    assert_eq!((printed.prob(B, A), printed.prob(A, B)), (1, 4));
    assert_eq!(printed.departure_interval(Latency::Worst, B), us(428));
}

#[test]
fn a_part_of_a_processor_stretches_work() {
    let streams = [stream(1000, 1, [1, 1, 1])];
    let machine = Machine { available: vec![Load::percent(20), Load::WHOLE], ..machine() };
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    assert_eq!(found.exec_star(P0, A), us(1070));
    assert!(!found.fits(), "21.4 % are needed of 20 %");
    assert!(!found.meets_rate(Latency::Worst, A));
}

#[test]
fn bursts_wait_behind_themselves() {
    let mut streams = [stream(1000, 1, [1, 1, 1])];
    streams[0].contract.traffic.interval = us(8000);
    streams[0].contract.traffic.minimum = us(100);
    streams[0].contract.quality.loss_burst = 9;
    let machine = machine();
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    assert_eq!(found.beta(A), 8);
    assert_eq!(found.omega(Latency::Worst, A, 5), us(4 * 114));
    assert_eq!(
        (found.omega(Latency::Worst, A, 1), found.omega(Latency::Worst, A, 0)),
        (us(0), us(0))
    );
    // 8 in a burst, 9 / 3 may be dropped here: the fifth message is the last that counts.
    assert_eq!(found.latency(Latency::Worst, A), us(214 + 4 * 114));
    let mut lossy = streams.clone();
    lossy[0].contract.quality.loss_burst = 300;
    let found = Evaluation::new(&machine, &lossy, Formulas::Corrected);
    assert_eq!(found.latency(Latency::Worst, A), us(214));
}

#[test]
fn the_interface_is_a_processor_too() {
    let streams = [stream(1000, 8, [1, 1, 2])];
    let interface = Interface { null: us(10), kilobyte: us(120), available: Load::percent(97) };
    let machine = Machine { interface: Some(interface), ..machine() };
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    assert_eq!(found.interface(), Some((Load(970_000_000), Load::percent(97))));
    assert!(!found.fits(), "as much as it gives is too much");
}

#[test]
fn nothing_is_evaluated_on_nothing() {
    let streams = [stream(1000, 1, [1, 1, 1])];
    let machine = Machine::default();
    let found = Evaluation::new(&machine, &streams, Formulas::Corrected);
    assert_eq!((found.exec(P0, A), found.proc(A)), (Duration::ZERO, ElementSet::EMPTY));
    assert!(found.fits());
    assert_eq!(found.latency(Latency::Worst, A), Duration::ZERO);
}

#[test]
fn slaves_shorten_what_a_large_message_takes_and_no_more_than_there_are() {
    let slaves = Slaves { count: 3, part: Bytes(16 << 10), call: us(2) };
    let encrypt = Cost { shared: true, ..module(10, 1) };
    let of = |size, helpers| encrypt.among(Bytes(size), false, &slaves, helpers);
    // 64 kB are four parts: 10 + 64 alone; among two, two parts each; among four, one each.
    assert_eq!(of(64 << 10, 0), [us(74), us(0)]);
    assert_eq!(of(64 << 10, 1), [us(10 + 2 + 32), us(32)]);
    assert_eq!(of(64 << 10, 3), [us(10 + 6 + 16), us(48)]);
    // Five parts for four threads: one of them has two.
    assert_eq!(of(80 << 10, 3), [us(10 + 6 + 32), us(48)]);
    // A message of one part, and a module that can't share, get no help.
    assert_eq!(of(16 << 10, 3), [us(26), us(0)]);
    assert_eq!(module(10, 1).among(Bytes(64 << 10), false, &slaves, 3), [us(74), us(0)]);

    let machine = Machine { slaves, ..Machine::whole(2, Overheads::default()) };
    let stream = |every, elements| {
        let traffic = Traffic::steady(us(every), Bytes(64 << 10));
        let quality = Quality { delay: us(1000), loss_burst: 0, promise: Promise::Wanted };
        let mut stream = Stream::new(Contract { traffic, quality }, vec![encrypt]);
        stream.assign_all(elements);
        stream
    };
    let (p, i) = (ElementId(0), StreamId(0));
    let alone = [stream(100, ElementSet::only(p))];
    let found = Evaluation::new(&machine, &alone, Formulas::Corrected);
    assert_eq!((found.exec(p, i), found.departure_interval(Latency::Worst, i)), (us(32), us(32)));
    // 48 us of work for worker threads each 100 us.
    assert_eq!(found.slaves(), Some((Load::percent(48), Load::percent(300))));
    assert!(found.fits());
    // Two masters have one worker thread each; on two elements one stream has two masters.
    let both = [stream(100, ElementSet::only(p)), stream(100, ElementSet::only(ElementId(1)))];
    let found = Evaluation::new(&machine, &both, Formulas::Corrected);
    assert_eq!(found.exec(p, i), us(10 + 2 + 32));
    let parallel = [stream(100, ElementSet::first(2))];
    let found = Evaluation::new(&machine, &parallel, Formulas::Corrected);
    assert_eq!(found.exec(p, i), us(22));
    // More than the worker threads give is no valid configuration: 48 us of work each 15 us is 3.2 of 3.
    let fast = [stream(15, ElementSet::only(p))];
    let found = Evaluation::new(&machine, &fast, Formulas::Corrected);
    assert!(!found.fits());
}

#[test]
fn the_heuristic_counts_on_slaves() {
    let encrypt = Cost { shared: true, ..module(10, 1) };
    let traffic = Traffic::steady(us(60), Bytes(64 << 10));
    let quality = Quality { delay: us(1000), loss_burst: 0, promise: Promise::Wanted };
    let streams = [Stream::new(Contract { traffic, quality }, vec![encrypt])];
    let without = Machine::whole(1, Overheads::default());
    let slaves = Slaves { count: 1, part: Bytes(16 << 10), call: us(2) };
    let with = Machine { slaves, ..without.clone() };
    let goal = crate::assign::Goal::Delay;
    let decide =
        |machine: &Machine| crate::assign::assign(machine, &streams, StreamId(0), &[], goal);
    // 74 us of work each 60 us; with a worker thread 44.
    assert!(decide(&without).is_err());
    assert_eq!(decide(&with).unwrap().guarantee.departure_interval, us(44));
    let never = Machine {
        slaves: Slaves { count: 1, part: Bytes(1 << 10), call: us(2) },
        ..without.clone()
    };
    assert_eq!(
        decide(&never).unwrap().guarantee.departure_interval,
        us(44),
        "smaller parts, the same halves"
    );
}
