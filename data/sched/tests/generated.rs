//! Generated traces: read back as they were, of every kind; and the adversarial ones do what they
//! are for.

use selvedge_sched::Discipline;
use selvedge_sched::replay::{Replay, Trace};
use selvedge_sched::trace::generate::{Kind, Wanted, trace};
use selvedge_stream::Kind as FrameKind;

fn wanted(seed: u64, kind: Kind, discipline: Discipline) -> Trace {
    trace(&Wanted { kind: Some(kind), discipline: Some(discipline), ..Wanted::of(seed) })
}

#[test]
fn every_kind_reads_back_as_it_was() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
        for seed in 0..40 {
            let trace = wanted(seed, kind, Discipline::Dwcs);
            let text = trace.json();
            let back = Trace::parse(&text, "t.json").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(back, trace, "{} {seed}", kind.name());
        }
    }
}

#[test]
fn wishes_are_kept_and_leave_the_rest_as_it_is() {
    let all = Wanted {
        seed: 5,
        discipline: Some(Discipline::Fifo),
        kind: Some(Kind::Arrivals),
        streams: Some(30),
        ticks: Some(9),
    };
    let made = trace(&all);
    assert_eq!((made.discipline, made.streams.len(), made.ticks), (Discipline::Fifo, 30, 9));
    let longer = trace(&Wanted { ticks: Some(10), ..all });
    assert_eq!(made.streams, longer.streams);
    assert_ne!(trace(&Wanted::of(1)), trace(&Wanted::of(2)));
}

/// What the streams need of the link: the sum of `(1 - x/y) / T`.
fn utilisation(trace: &Trace) -> f64 {
    let need = trace.streams.iter().map(|stream| {
        let window = stream.contract.windows.of(FrameKind::Data);
        let kept = 1.0 - f64::from(window.lose) / f64::from(window.of);
        kept / stream.contract.period.0 as f64
    });
    need.sum()
}

#[test]
fn adversarial_sets_need_little_and_fail_all_the_same() {
    for discipline in [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf] {
        for seed in 0..100 {
            let trace = wanted(seed, Kind::Adversarial, discipline);
            let need = utilisation(&trace);
            assert!(need < 0.25, "{discipline} {seed}: {need}");
            let mut replay = Replay::new(&trace);
            (&mut replay).for_each(drop);
            let violations: u64 = replay.totals().map(|(_, counted, _)| counted.violations).sum();
            assert!(violations > 0, "{discipline} {seed}: {trace:?}");
        }
    }
}
