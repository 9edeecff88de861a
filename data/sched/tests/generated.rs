//! Generated traces of every kind are read back unchanged; the adversarial ones have their intended effect.

use std::collections::BTreeSet;

use selvedge_data_sched::replay::{Replay, Trace};
use selvedge_data_sched::trace::generate::{GenerateOptions, Kind, trace};
use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stream::{Class, Contract, Kind as FrameKind};
use selvedge_units::Duration;

fn wanted(seed: u64, kind: Kind, discipline: Discipline) -> Trace {
    trace(&GenerateOptions {
        kind: Some(kind),
        discipline: Some(discipline),
        ..GenerateOptions::of(seed)
    })
}

#[test]
fn every_kind_reads_back_as_it_was() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
        for (seed, discipline) in (0..44).zip(Discipline::ALL.into_iter().cycle()) {
            let trace = wanted(seed, kind, discipline);
            let text = trace.json();
            let back = Trace::parse(&text, "t.json").unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(back, trace, "{} {seed}", kind.name());
        }
    }
}

#[test]
fn wishes_are_kept_and_leave_the_rest_as_it_is() {
    let all = GenerateOptions {
        discipline: Some(Discipline::Fifo),
        kind: Some(Kind::Arrivals),
        streams: Some(30),
        ticks: Some(9),
        ..GenerateOptions::of(5)
    };
    let made = trace(&all);
    assert_eq!((made.discipline, made.streams.len(), made.ticks), (Discipline::Fifo, 30, 9));
    let longer = trace(&GenerateOptions { ticks: Some(10), ..all });
    assert_eq!(made.streams, longer.streams);
    assert_ne!(trace(&GenerateOptions::of(1)), trace(&GenerateOptions::of(2)));
}

#[test]
fn weights_classes_and_trees_are_as_wished_whatever_the_discipline() {
    let all = GenerateOptions {
        discipline: Some(Discipline::Dwcs),
        streams: Some(300),
        ..GenerateOptions::of(5)
    };
    let plain = trace(&all);
    let mut wish = GenerateOptions { weight_max: Some(3), ..all };
    let weighted = trace(&wish);
    let weights: BTreeSet<u32> = weighted.streams.iter().map(|s| s.contract.weight).collect();
    assert_eq!(weights, BTreeSet::from([1, 2, 3]));
    wish.classes = vec![Class::Edf, Class::Fair];
    let of_class = |trace: &Trace, class| {
        trace.streams.iter().filter(|stream| stream.contract.class == class).count()
    };
    let classed = trace(&wish);
    assert_eq!(of_class(&classed, Class::Priority), 0);
    assert!(of_class(&classed, Class::Edf) > 100 && of_class(&classed, Class::Fair) > 100);
    (wish.nodes, wish.remap) = (Some(40), Some(7));
    let planted = trace(&wish);
    assert_eq!((planted.tree.nodes().len(), planted.tree.update()), (40, Some(Duration(7))));
    assert!(planted.tree.nodes().iter().all(|node| (1..=3).contains(&node.weight)));
    let text = planted.json();
    assert_eq!(Trace::parse(&text, "t.json").unwrap_or_else(|error| panic!("{error}")), planted);
    // Fields that were not requested stay: later requests do not change earlier fields.
    for (stream, before) in planted.streams.iter().zip(&classed.streams) {
        let parent = stream.contract.parent;
        assert!(parent <= 40);
        assert_eq!(stream.contract, Contract { parent, ..before.contract });
    }
    assert_eq!((&planted.arrivals, planted.ticks), (&plain.arrivals, plain.ticks));
    // A request may also remove a feature of the seed.
    for seed in 0..20 {
        let hwfq =
            GenerateOptions { discipline: Some(Discipline::Hwfq), ..GenerateOptions::of(seed) };
        assert!(!trace(&hwfq).tree.nodes().is_empty());
        let flat = trace(&GenerateOptions { nodes: Some(0), remap: Some(0), ..hwfq });
        assert_eq!(flat.tree, Tree::default());
        assert!(flat.streams.iter().all(|stream| stream.contract.parent == 0));
    }
}

/// The share of the link that the streams need: the sum of `(1 - x/y) / T`.
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
