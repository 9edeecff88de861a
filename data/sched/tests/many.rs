//! Serving a run of frames at once equals serving each and enqueuing the next.

use proptest::prelude::*;
use selvedge_data_sched::{Decision, Discipline, Head, Scheduler, StreamIndex};
use selvedge_data_stream::{Class, Contract, Kind, Late, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant};

const STREAMS: usize = 5;

fn contract() -> impl Strategy<Value = Contract> {
    let window = (0..4_u16).prop_flat_map(|of| (0..=of, Just(of)));
    let windows = prop_oneof![
        8 => window.prop_map(|(lose, of)| Windows::Whole(Window { lose, of })),
        1 => Just(Windows::PerKind([Window { lose: 1, of: 2 }; Kind::COUNT])),
    ];
    let rare = prop::bool::weighted(0.15);
    (windows, 1..9_u64, any::<bool>(), rare, rare, 1..4_u32).prop_map(
        |(windows, period, send, waits, delayed, weight)| Contract {
            windows,
            late: if send { Late::Send } else { Late::Drop },
            work_conserving: !waits,
            delay: delayed.then_some(Duration(3)),
            weight,
            class: Class::Fair,
            ..Contract::new(Duration(period), Window::NONE)
        },
    )
}

/// A frame of a run: how long after the previous one it is due.
type Step = u64;

fn head(now: Instant, due: Instant) -> Head {
    Head { arrival: now, kind: Kind::Data, deadline: Some(due), size: Bytes(100) }
}

/// Decides and serves until nothing is left; returns the decisions in order.
fn drain(mut scheduler: Scheduler, mut now: Instant) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for _ in 0..200 {
        let decision = scheduler.decide(now);
        decisions.push(decision);
        match decision {
            Decision::Send(s) => drop(scheduler.dequeue(s)),
            Decision::Expired(_) => {}
            Decision::Idle => now += Duration(50),
        }
    }
    decisions
}

proptest! {
    #[test]
    fn a_run_is_its_frames(
        which in prop::sample::select(&Discipline::ALL[..]),
        contracts in prop::collection::vec(contract(), STREAMS),
        runs in prop::collection::vec(
            (0..STREAMS, prop::collection::vec(0..20 as Step, 1..9), any::<bool>(), 0..4_u64),
            1..40,
        ),
    ) {
        let mut many = Scheduler::new(which);
        let mut now = Instant(1_000);
        for contract in &contracts {
            let s = many.add(contract);
            many.enqueue_head(s, head(now, now + Duration(40)));
        }
        let mut one = many.clone();
        for (stream, steps, empties, pause) in runs {
            let s = StreamIndex(stream as u32);
            // For both alike: a decision ends the time in which a lost head may be followed.
            loop {
                let decision = many.decide(now);
                prop_assert_eq!(one.decide(now), decision);
                if !matches!(decision, Decision::Expired(_)) {
                    break;
                }
            }
            if many.head_deadline(s).is_none() {
                many.enqueue_head(s, head(now, now + Duration(30)));
                one.enqueue_head(s, head(now, now + Duration(30)));
            }
            // The head is the first of the run; then each of `steps`, and one more behind them.
            let mut due = many.head_deadline(s).unwrap();
            let mut dues = vec![due];
            dues.extend(steps.iter().map(|step| { due += Duration(*step); due }));
            let next = (!empties).then(|| head(now, due + Duration(7)));
            let before = many.clone();
            if many.dequeue_many(s, dues.len() as u32, due, next) {
                for due in &dues[1..] {
                    prop_assert!(!one.dequeue(s).late);
                    one.enqueue_head(s, head(now, *due));
                }
                prop_assert_eq!(one.dequeue(s).deadline, due);
                next.map(|next| one.enqueue_head(s, next));
            } else {
                prop_assert_eq!(drain(many.clone(), now), drain(before, now));
            }
            for n in 0..STREAMS as u32 {
                let n = StreamIndex(n);
                prop_assert_eq!(many.head_deadline(n), one.head_deadline(n));
                prop_assert_eq!(many.counters(n), one.counters(n));
                let windows = |s: &Scheduler| Kind::ALL.map(|kind| s.windows(n).current(kind));
                prop_assert_eq!(windows(&many), windows(&one));
            }
            prop_assert_eq!(drain(many.clone(), now), drain(one.clone(), now));
            now += Duration(pause);
        }
    }
}

#[test]
fn disciplines_that_go_by_deadline_take_runs() {
    for which in [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf, Discipline::Priority] {
        let mut scheduler = Scheduler::new(which);
        let s = scheduler.add(&Contract::new(Duration(10), Window { lose: 1, of: 3 }));
        scheduler.enqueue_head(s, head(Instant(0), Instant(20)));
        assert!(scheduler.dequeue_many(s, 4, Instant(50), None), "{which:?}");
        assert_eq!((scheduler.counters(s).sent, scheduler.head_deadline(s)), (4, None));
    }
}
