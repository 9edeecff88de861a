//! Disciplines with a memory: any calls in any order, with values at the ends of their ranges. Each keeps its
//! state consistent, and while a work-conserving stream has a head, some stream is chosen.

use proptest::prelude::*;
use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex, Tree, TreeNode, Verdict};
use selvedge_data_stream::{Class, Contract, Kind, Late, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant};

#[derive(Clone, Debug)]
enum Call {
    Add(Contract),
    Remove(usize),
    Push(usize, u64, u64),
    Poll(u64),
    Decide(u64),
    Serve(usize),
    DropHead(usize),
    SetWeight(usize, u32),
    SetPeriod(usize, u64),
    SetWindow(usize, Window),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..3000_u64, 1 => Just(u64::MAX), 1 => (1_u64 << 39)..(1 << 41)]
}

fn weight() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 1..9_u32, 1 => Just(0), 1 => Just(u32::MAX), 1 => Just(1500)]
}

fn window() -> impl Strategy<Value = Window> {
    let small = (0..=4_u16).prop_flat_map(|y| (0..=y, Just(y)));
    prop_oneof![small, Just((0, 65535)), Just((65534, 65535))]
        .prop_map(|(lose, of)| Window { lose, of })
}

fn contract() -> impl Strategy<Value = Contract> {
    let period = prop_oneof![5 => 1..9_u64, 1 => Just(0), 1 => Just(u64::MAX)];
    let class = prop::sample::select(&Class::ALL[..]);
    let windows = prop_oneof![
        window().prop_map(Windows::Whole),
        prop::array::uniform6(window()).prop_map(Windows::PerKind),
    ];
    let flags = (any::<bool>(), prop::bool::weighted(0.8));
    (period, windows, flags, weight(), class, 0..7_u32, -2..3_i32).prop_map(
        |(period, windows, (send, work_conserving), weight, class, parent, priority)| Contract {
            windows,
            late: if send { Late::Send } else { Late::Drop },
            work_conserving,
            weight,
            class,
            parent,
            priority,
            ..Contract::new(Duration(period), Window::NONE)
        },
    )
}

fn call() -> impl Strategy<Value = Call> {
    let who = any::<usize>;
    prop_oneof![
        2 => contract().prop_map(Call::Add),
        1 => who().prop_map(Call::Remove),
        14 => (who(), 0..5_u64, number()).prop_map(|(s, age, size)| Call::Push(s, age, size)),
        5 => (0..4_u64).prop_map(Call::Poll),
        1 => number().prop_map(Call::Poll),
        12 => (0..3_u64).prop_map(Call::Decide),
        1 => who().prop_map(Call::Serve),
        1 => who().prop_map(Call::DropHead),
        1 => (who(), weight()).prop_map(|(s, weight)| Call::SetWeight(s, weight)),
        1 => (who(), 0..9_u64).prop_map(|(s, period)| Call::SetPeriod(s, period)),
        1 => (who(), window()).prop_map(|(s, window)| Call::SetWindow(s, window)),
    ]
}

fn scheduler(which: usize) -> Scheduler {
    let tree = |update| {
        let nodes = [(0, 3), (0, u32::MAX), (1, 2), (3, 1)];
        let nodes = nodes.map(|(parent, weight)| TreeNode { parent, weight });
        Scheduler::with_tree(&Tree::new(nodes.to_vec(), update).unwrap())
    };
    match which {
        0 => tree(None),
        1 => tree(Some(Duration(3))),
        2 => tree(Some(Duration(u64::MAX))),
        n => Scheduler::new(Discipline::ALL[n - 3]),
    }
}

/// The existing streams, whether they have a head, and whether they are work-conserving.
type Known = Vec<(StreamIndex, bool, bool)>;

fn make(sched: &mut Scheduler, known: &mut Known, clock: &mut u64, call: &Call) {
    let pick = |known: &Known, n: usize, head: Option<bool>| {
        let fit: Vec<usize> =
            (0..known.len()).filter(|&at| head.is_none_or(|head| known[at].1 == head)).collect();
        fit.get(n.checked_rem(fit.len())?).copied()
    };
    match *call {
        Call::Add(ref contract) => {
            known.push((sched.add(contract), false, contract.work_conserving));
        }
        Call::Remove(n) => {
            if let Some(at) = pick(known, n, None) {
                sched.remove(known.swap_remove(at).0);
            }
        }
        Call::Push(n, age, size) => {
            if let Some(at) = pick(known, n, Some(false)) {
                let arrival = Instant(clock.saturating_add(2).saturating_sub(age));
                let size = Bytes(size);
                let head = Head { size, kind: Kind::Audio, ..Head::arrived(arrival) };
                sched.enqueue_head(known[at].0, head);
                known[at].1 = true;
            }
        }
        Call::Poll(step) => {
            *clock = clock.saturating_add(step);
            while let Some(expiry) = sched.poll_expired(Instant(*clock)) {
                if expiry.verdict == Verdict::Dropped {
                    known.iter_mut().find(|k| k.0 == expiry.stream).unwrap().1 = false;
                }
            }
        }
        Call::Decide(ahead) => {
            let now = Instant(clock.saturating_add(ahead));
            let must = known.iter().any(|k| k.1 && k.2);
            let chosen = sched.choose(now);
            assert!(chosen.is_some() || !must);
            if let Some(s) = chosen {
                let it = known.iter_mut().find(|k| k.0 == s).unwrap();
                assert!(core::mem::take(&mut it.1), "chosen without a head");
                sched.dequeue(s);
            }
        }
        Call::Serve(n) | Call::DropHead(n) => {
            if let Some(at) = pick(known, n, Some(true)) {
                known[at].1 = false;
                if matches!(call, Call::Serve(_)) {
                    sched.dequeue(known[at].0);
                } else {
                    sched.drop_head(known[at].0);
                }
            }
        }
        Call::SetWeight(n, weight) => {
            pick(known, n, None).into_iter().for_each(|at| sched.set_weight(known[at].0, weight));
        }
        Call::SetPeriod(n, period) => {
            let period = Duration(period);
            pick(known, n, None).into_iter().for_each(|at| sched.set_period(known[at].0, period));
        }
        Call::SetWindow(n, window) => {
            let windows = Windows::Whole(window);
            pick(known, n, None).into_iter().for_each(|at| sched.set_windows(known[at].0, windows));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_calls_make_sense(
        which in 0..Discipline::ALL.len() + 3,
        start in prop_oneof![Just(0), Just(u64::MAX - 40), any::<u64>()],
        calls in prop::collection::vec(call(), 1..150),
    ) {
        let (mut sched, mut known, mut clock) = (scheduler(which), Known::new(), start);
        assert_eq!(sched.poll_expired(Instant(clock)), None);
        for call in &calls {
            make(&mut sched, &mut known, &mut clock, call);
            for &(s, head, _) in &known {
                assert_eq!(sched.head_deadline(s).is_some(), head);
            }
            let next = sched.next_event(Instant(clock));
            assert!(next.is_none_or(|next| next.0 > clock));
        }
    }
}
