//! The disciplines that promise deadlines: guaranteed sets miss none under any tested arrivals, refused ones
//! miss some under the arrivals that the proof of the test names.

use proptest::prelude::*;
use selvedge_data_sched::admission::{
    Cause, Load, Pattern, Policy, Request, Response, Service, Unproved, Verdict, check,
};
use selvedge_data_sched::{Discipline, Tree, TreeNode};
use selvedge_data_stream::{Contract, Window};
use selvedge_units::{Bytes, Duration};

use crate::link::{cost, misses};

fn ask(policy: Policy, pattern: Pattern, loads: &[Load]) -> Response {
    check(&Request { policy, rate: None, pattern, quantum: Bytes(0), tree: None, loads })
        .expect("in range")
}

type Numbers = (u64, u64, Option<u64>, i32, bool);

fn numbers() -> impl Strategy<Value = Numbers> {
    let delay = prop_oneof![Just(None), (1..60_u64).prop_map(Some)];
    (1..6_u64, 4..40_u64, delay, 0..4_i32, prop::bool::weighted(0.8))
}

fn load((cost, period, delay, priority, work_conserving): Numbers) -> Load {
    let contract = Contract {
        priority,
        work_conserving,
        delay: delay.map(|delay| Duration(delay.max(cost))),
        ..Contract::new(Duration(period.max(cost)), Window::NONE)
    };
    Load { contract, service: Service::Time(Duration(cost)) }
}

/// Whether the link can't carry the set for ever. An excess of one part in a hundred thousand shows in a
/// frame only after millions of units of time, too long for a test.
fn overloads(loads: &[Load]) -> bool {
    let parts: u128 = (1..=40_u128).fold(1, |all, next| all / gcd(all, next) * next);
    let needed = |load: &Load| {
        let period = u128::from(load.contract.period.0);
        assert_eq!(parts % period, 0, "a period of at most 40");
        parts / period * u128::from(cost(load))
    };
    loads.iter().map(needed).sum::<u128>() > parts
}

fn gcd(one: u128, other: u128) -> u128 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// Checks that hold for any set: no tested arrivals may contradict the answer.
fn holds(policy: Policy, numbers: &[Numbers], offsets: &[u64]) -> Result<Verdict, TestCaseError> {
    let loads: Vec<Load> = numbers.iter().copied().map(load).collect();
    holds_of(policy, &loads, offsets)
}

pub(crate) fn holds_of(
    policy: Policy,
    loads: &[Load],
    offsets: &[u64],
) -> Result<Verdict, TestCaseError> {
    let discipline = Discipline::from_name(policy.name()).expect("built in");
    let sporadic = ask(policy, Pattern::Sporadic, loads);
    let together = vec![0; loads.len()];
    // A frame of one stream has just begun when all others arrive.
    let begun = |blocker: usize| (0..loads.len()).map(|n| u64::from(n != blocker)).collect();
    let mut tried: Vec<Vec<u64>> = (0..loads.len()).map(begun).collect();
    // For `fifo`: frames of lower-ranked streams arrive one unit earlier.
    tried.extend((0..loads.len()).map(|n| (0..loads.len()).map(|m| u64::from(m <= n)).collect()));
    tried.push(together.clone());
    tried.push(offsets[..loads.len()].to_vec());
    let late = |offsets: &Vec<u64>, until| misses(discipline, loads, offsets, until);
    match sporadic.verdict {
        Verdict::Guaranteed => {
            for offsets in &tried {
                prop_assert!(!late(offsets, 1500), "{:?} {:?}", loads, offsets);
            }
        }
        Verdict::Refused => {
            // Streams that wait past their arrival compete at other instants than this.
            let plain = loads.iter().all(|load| {
                let Contract { work_conserving, delay, period, .. } = load.contract;
                work_conserving || delay.is_none_or(|delay| delay <= period)
            });
            let shown = tried.iter().any(|offsets| late(offsets, 60_000));
            prop_assert!(shown || !plain || overloads(loads), "{sporadic:?} {loads:?}");
        }
        Verdict::Possible => {}
    }
    let periodic = ask(policy, Pattern::Periodic, loads);
    match periodic.verdict {
        Verdict::Guaranteed => prop_assert!(!late(&together, 1500), "{loads:?}"),
        Verdict::Refused if loads.iter().all(|load| load.contract.work_conserving) => {
            prop_assert!(late(&together, 60_000) || overloads(loads), "{periodic:?} {loads:?}");
        }
        _ => {}
    }
    Ok(sporadic.verdict)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn answers_hold_on_the_link(
        policy in prop::sample::select(&[Policy::Edf, Policy::Priority, Policy::Fifo][..]),
        numbers in prop::collection::vec(numbers(), 1..7),
        offsets in prop::collection::vec(0..40_u64, 7),
    ) {
        holds(policy, &numbers, &offsets)?;
    }

    #[test]
    fn edf_in_unit_slots_is_exactly_the_load(
        periods in prop::collection::vec(1..12_u64, 1..12),
        offsets in prop::collection::vec(0..12_u64, 12),
    ) {
        let numbers: Vec<Numbers> = periods.iter().map(|&t| (1, t, None, 0, true)).collect();
        let verdict = holds(Policy::Edf, &numbers, &offsets)?;
        let needed: u64 = periods.iter().map(|t| 27_720 / t).sum();
        let expected = if needed <= 27_720 { Verdict::Guaranteed } else { Verdict::Refused };
        prop_assert_eq!(verdict, expected);
    }

    #[test]
    fn what_would_fit_fits_and_a_step_less_does_not(
        policy in prop::sample::select(&[Policy::Edf, Policy::Priority, Policy::Fifo][..]),
        numbers in prop::collection::vec(numbers(), 1..7),
    ) {
        let loads: Vec<Load> = numbers.into_iter().map(load).collect();
        let Some(breach) = ask(policy, Pattern::Sporadic, &loads).breach else { return Ok(()) };
        let refused = |loads: &[Load]| {
            ask(policy, Pattern::Sporadic, loads).verdict == Verdict::Refused
        };
        prop_assert!(breach.stream == 0 || !refused(&loads[..breach.stream]));
        prop_assert!(refused(&loads[..=breach.stream]));
        if let Some(Duration(period)) = breach.fit.period {
            let mut joined = loads[..=breach.stream].to_vec();
            joined[breach.stream].contract.period = Duration(period);
            prop_assert!(!refused(&joined));
            joined[breach.stream].contract.period = Duration(period - 1);
            prop_assert!(refused(&joined));
        }
    }

    /// The bounds of fair queueing, as far as the scheduler has the disciplines: all frames take
    /// one slot and are of one size.
    #[test]
    fn fair_bounds_hold_on_the_link(
        streams in prop::collection::vec((8..60_u64, 1..9_u32), 1..7),
        offsets in prop::collection::vec(0..60_u64, 7),
    ) {
        for policy in [Policy::Wfq, Policy::Sfq] {
            let loads: Vec<Load> = streams.iter().map(|&(period, weight)| Load {
                contract: Contract { weight, ..Contract::new(Duration(period), Window::NONE) },
                service: Service::Time(Duration(1)),
            }).collect();
            let answer = ask(policy, Pattern::Sporadic, &loads);
            let Some(discipline) = Discipline::from_name(policy.name()) else { continue };
            if answer.verdict == Verdict::Guaranteed {
                for offsets in [&[0; 7], &offsets[..]] {
                    let late = misses(discipline, &loads, &offsets[..loads.len()], 3000);
                    prop_assert!(!late, "{loads:?} {offsets:?}");
                }
            }
        }
    }
}

#[test]
fn a_long_frame_blocks_a_short_deadline() {
    // Half of the link in all, yet the second stream's frame takes longer than the first can wait.
    let loads = [load((1, 4, None, 1, true)), load((5, 20, None, 0, true))];
    for policy in [Policy::Edf, Policy::Priority] {
        let answer = ask(policy, Pattern::Sporadic, &loads);
        assert_eq!(answer.load.to_string(), "1/2 (50.00 %)");
        let breach = answer.breach.expect("5 - 1 + 1 > 4");
        assert_eq!(breach.stream, 1);
        assert_eq!(breach.cause, Cause::Late { stream: 0, by: Duration(1) });
        assert_eq!(breach.excess.to_string(), "1/4 (25.00 %)");
    }
    // Started together, the long frame surely never goes first at the wrong time.
    let periodic = ask(Policy::Edf, Pattern::Periodic, &loads);
    assert_eq!(periodic.verdict, Verdict::Possible);
    assert!(matches!(periodic.unproved, Some(Unproved::WorstCase(0))));
    let fifo = ask(Policy::Fifo, Pattern::Sporadic, &loads);
    assert_eq!(fifo.breach.expect("6 - 1 > 4").cause, Cause::Late { stream: 0, by: Duration(1) });
}

#[test]
fn a_backlog_that_never_waits_starves_the_rest() {
    let loads = [load((1, 4, None, 0, true)), load((1, 4, None, 5, true))];
    let breach = ask(Policy::Priority, Pattern::Backlogged, &loads).breach.expect("starved");
    assert_eq!((breach.stream, breach.cause), (1, Cause::Starved(1)));
    let breach = ask(Policy::Fifo, Pattern::Backlogged, &loads).breach.expect("starved");
    assert_eq!((breach.stream, breach.cause), (1, Cause::Starved(0)));
}

#[test]
fn fair_bounds_on_paper() {
    let stream = |period, weight| Load {
        contract: Contract { weight, ..Contract::new(Duration(period), Window::NONE) },
        service: Service::Time(Duration(1)),
    };
    // g = 1/4, 3/4: C/g + L = 5, 7/3 rounded up to 3.
    let answer = |periods: (u64, u64)| {
        ask(Policy::Wfq, Pattern::Sporadic, &[stream(periods.0, 1), stream(periods.1, 3)])
    };
    assert_eq!(answer((5, 3)).verdict, Verdict::Guaranteed);
    let short = answer((4, 3));
    assert_eq!(short.unproved, Some(Unproved::Bound { stream: 0, bound: Duration(5) }));
    assert_eq!(answer((5, 2)).unproved, Some(Unproved::Bound { stream: 1, bound: Duration(3) }));
    assert_eq!(answer((3, 9)).unproved, Some(Unproved::Weight(0)));
    let sfq = ask(Policy::Sfq, Pattern::Sporadic, &[stream(4, 1), stream(2, 3)]);
    assert_eq!(sfq.verdict, Verdict::Guaranteed);
    let sized =
        [1, 1, 2].map(|weight| Load { service: Service::Size(Bytes(125)), ..stream(0, weight) });
    // 1 kbit frames at 1 Mbit/s take 1 ms: C/g = 4 and 2 ms, 3F - 2Q = 10 and 8 ms.
    let drr = |millis: [u64; 3]| {
        let mut loads = sized;
        for (load, millis) in loads.iter_mut().zip(millis) {
            load.contract.period = Duration::from_millis(millis);
        }
        let (policy, pattern, quantum) = (Policy::Drr, Pattern::Sporadic, Bytes(125));
        let rate = Some(selvedge_units::Bitrate::from_mbps(1));
        check(&Request { policy, rate, pattern, quantum, tree: None, loads: &loads })
            .expect("in range")
    };
    assert_eq!(drr([14, 14, 10]).verdict, Verdict::Guaranteed);
    let bound =
        |stream, millis| Some(Unproved::Bound { stream, bound: Duration::from_millis(millis) });
    assert_eq!(drr([14, 13, 10]).unproved, bound(1, 14));
    assert_eq!(drr([14, 14, 9]).unproved, bound(2, 10));
    assert_eq!(cost(&stream(3, 1)), 1);
}

/// The link is shared by two nodes, 3:1, the first by two streams, 1:2; a stream of weight 2 hangs below the
/// link itself, and a node without streams does not count.
#[test]
fn a_tree_reserves_by_all_its_levels() {
    let node = |parent, weight| TreeNode { parent, weight };
    let nodes = vec![node(0, 3), node(0, 1), node(1, 50)];
    let stream = |period, weight, parent| Load {
        contract: Contract { weight, parent, ..Contract::new(Duration(period), Window::NONE) },
        service: Service::Time(Duration(1)),
    };
    // Of six parts: 3 * 1/3, 3 * 2/3, 1 * 9/9, 2.
    let loads = |periods: [u64; 4]| {
        let [a, b, c, d] = periods;
        [stream(a, 1, 1), stream(b, 2, 1), stream(c, 9, 2), stream(d, 2, 0)]
    };
    let answer = |tree: Option<&Tree>, loads: &[Load]| {
        let (policy, pattern) = (Policy::Hwfq, Pattern::Sporadic);
        check(&Request { policy, rate: None, pattern, quantum: Bytes(0), tree, loads })
            .expect("in range")
    };
    let tree = Tree::new(nodes.clone(), None).expect("a tree");
    let found = |periods| answer(Some(&tree), &loads(periods)).unproved;
    assert_eq!(found([6, 3, 6, 4]), Some(Unproved::Levels(0)));
    // One slot less is more than the reserved rate.
    assert_eq!(found([5, 3, 6, 4]), Some(Unproved::Weight(0)));
    assert_eq!(found([6, 2, 7, 9]), Some(Unproved::Weight(1)));
    assert_eq!(found([6, 3, 5, 4]), Some(Unproved::Weight(2)));
    // Below the link itself it is `wfq`: 3 slots at its rate, and the longest frame.
    assert_eq!(found([6, 3, 6, 3]), Some(Unproved::Bound { stream: 3, bound: Duration(4) }));
    let below_link = [stream(9, 1, 0), stream(4, 2, 0)];
    assert_eq!(answer(Some(&tree), &below_link).verdict, Verdict::Guaranteed);
    assert_eq!(answer(None, &loads([15, 8, 3, 8])).verdict, Verdict::Guaranteed, "no tree");
    let flat = Tree::new(nodes, Some(Duration(5))).expect("a tree");
    assert_eq!(answer(Some(&flat), &below_link).unproved, Some(Unproved::Mapped));
    assert_eq!(answer(Some(&flat), &loads([6, 3, 6, 4])).unproved, Some(Unproved::Levels(0)));
    // A load above the link exceeds any tree.
    assert_eq!(answer(Some(&tree), &loads([2, 3, 6, 4])).verdict, Verdict::Refused);
    // Long chains of the largest weights: exact, or no answer, never a wrong one.
    let chain = (0..64).map(|n| node(n, u32::MAX)).collect();
    let deep = Tree::new(chain, None).expect("a tree");
    let one = answer(Some(&deep), &[stream(1, u32::MAX, 64)]);
    assert_eq!((one.verdict, one.unproved), (Verdict::Possible, Some(Unproved::Levels(0))));
}
