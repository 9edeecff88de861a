//! The window-constrained disciplines in unit slots: guaranteed sets violate nothing in replay, overloaded
//! ones do, and the suggested values fit.

use proptest::prelude::*;
use selvedge_data_sched::admission::{
    Cause, Load, Pattern, Policy, Request, Response, Service, Unproved, Verdict, check,
};
use selvedge_data_sched::replay::{Arrivals, Replay, Trace, TraceStream};
use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stream::{Contract, Late, Window, Windows};
use selvedge_units::{Bitrate, Bytes, Duration};

fn ask(policy: Policy, loads: &[Load]) -> Response {
    let pattern = Pattern::Backlogged;
    check(&Request { policy, rate: None, pattern, quantum: Bytes(0), tree: None, loads })
        .expect("in range")
}

fn slot(period: u64, window: (u16, u16)) -> Load {
    let window = Window::new(window.0, window.1).expect("a window");
    Load { contract: Contract::new(Duration(period), window), service: Service::Time(Duration(1)) }
}

fn violations(discipline: Discipline, loads: &[Load], ticks: u64) -> u64 {
    let stream = |(n, load): (usize, &Load)| TraceStream {
        id: n.to_string(),
        contract: load.contract,
        first_deadline: None,
    };
    let streams = loads.iter().enumerate().map(stream).collect();
    let trace =
        Trace { discipline, ticks, streams, tree: Tree::default(), arrivals: Arrivals::Backlogged };
    let mut replay = Replay::new(&trace);
    (&mut replay).for_each(drop);
    replay.totals().map(|(_, counters, _)| counters.violations).sum()
}

fn contract() -> impl Strategy<Value = (u16, u16, bool, bool)> {
    (0..=10_u16).prop_flat_map(|y| (0..=y, Just(y), any::<bool>(), any::<bool>()))
}

fn load(period: u64, (x, y, send, work_conserving): (u16, u16, bool, bool)) -> Load {
    let Load { contract, service } = slot(period, (x, y));
    let late = if send { Late::Send } else { Late::Drop };
    Load { contract: Contract { late, work_conserving, ..contract }, service }
}

/// Every window may be left incomplete at the end, and nothing else hides an overload.
fn slots_to_show(loads: &[Load], answer: &Response) -> u64 {
    let frames = |load: &Load| match load.contract.windows {
        Windows::Whole(window) => u64::from(window.of.max(1)) + 1,
        Windows::PerKind(_) => unreachable!("none has"),
    };
    let breach = answer.breach.expect("refused");
    let over = breach.excess.exact().expect("short fractions");
    let slack: u64 = loads.iter().map(frames).sum();
    2 * slack * u64::try_from(over.den.div_ceil(over.num)).expect("not so little") + 10
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]
    #[test]
    fn sets_of_equal_periods_are_kept_or_refused(
        period in prop_oneof![2 => Just(1), 1 => 2..10_u64],
        contracts in prop::collection::vec(contract(), 1..24),
    ) {
        // With longer periods nearly all are kept, which is no promise.
        let (fits, sure) = if period == 1 { (Verdict::Guaranteed, true) } else { (Verdict::Possible, false) };
        let mut loads = Vec::new();
        for contract in contracts {
            loads.push(load(period, contract));
            let answer = ask(Policy::Dwcs, &loads);
            if answer.verdict == Verdict::Refused {
                prop_assert_eq!(answer.breach.expect("why").stream, loads.len() - 1);
                let ticks = slots_to_show(&loads, &answer);
                prop_assert!(violations(Discipline::Dwcs, &loads, ticks) > 0, "{loads:?}");
                loads.pop();
            } else {
                prop_assert_eq!(answer.verdict, fits);
            }
        }
        prop_assert!(!sure || violations(Discipline::Dwcs, &loads, 600) == 0, "{:?}", loads);
        for load in &mut loads {
            load.contract.work_conserving = false;
        }
        if !loads.is_empty() {
            prop_assert_eq!(ask(Policy::Dwcs98, &loads).verdict, fits);
        }
        prop_assert!(!sure || violations(Discipline::Dwcs98, &loads, 600) == 0, "{:?}", loads);
    }
}

/// `vds` by its definition, by full search, in unit slots with full queues: how many windows ended short.
fn vds_violations(loads: &[Load], ticks: u64) -> u64 {
    struct Stream {
        period: u64,
        owed: u64,
        of: u64,
        left: u64,
        periods: u64,
        served: bool,
    }
    let mut streams: Vec<_> = loads
        .iter()
        .map(|load| {
            let Windows::Whole(window) = load.contract.windows else { unreachable!() };
            let (owed, of) = if window.is_some() {
                (u64::from(window.of - window.lose), u64::from(window.of))
            } else {
                (1, 1)
            };
            Stream {
                period: load.contract.period.0,
                owed,
                of,
                left: owed,
                periods: of,
                served: false,
            }
        })
        .collect();
    let mut violations = 0;
    for t in 0..ticks {
        for s in &mut streams {
            if t > 0 && t % s.period == 0 {
                s.served = false;
                s.periods -= 1;
                if s.periods == 0 {
                    violations += u64::from(s.left > 0);
                    (s.left, s.periods) = (s.owed, s.of);
                }
            }
        }
        // s + k'T/m' as fractions of m', compared crosswise.
        let due = |s: &Stream| ((t - t % s.period) * s.left + s.periods * s.period, s.left);
        let waiting = streams.iter_mut().filter(|s| !s.served && s.left > 0);
        let chosen = waiting.min_by(|a, b| {
            let ((a, over_a), (b, over_b)) = (due(a), due(b));
            (a * over_b).cmp(&(b * over_a))
        });
        if let Some(s) = chosen {
            s.served = true;
            s.left -= 1;
        }
    }
    violations
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn vds_keeps_what_is_guaranteed(
        streams in prop::collection::vec((1..12_u64, contract()), 1..24),
        of_one_slot in any::<bool>(),
    ) {
        let mut loads = Vec::new();
        for (period, (x, y, ..)) in streams {
            loads.push(slot(if of_one_slot { 1 } else { period }, (x, y)));
            let answer = ask(Policy::Vds, &loads);
            if answer.verdict == Verdict::Refused {
                let ticks = slots_to_show(&loads, &answer).max(4 * 12 * 11) * 12;
                prop_assert!(vds_violations(&loads, ticks.min(200_000)) > 0 || ticks > 200_000);
                loads.pop();
            } else {
                let sure = loads.iter().all(|load| {
                    load.contract.period == Duration(1) && load.contract.windows != Windows::Whole(Window::NONE)
                });
                let fits = if sure { Verdict::Guaranteed } else { Verdict::Possible };
                prop_assert_eq!(answer.verdict, fits);
            }
        }
        if !loads.is_empty() && ask(Policy::Vds, &loads).verdict == Verdict::Guaranteed {
            prop_assert_eq!(vds_violations(&loads, 3000), 0, "{:?}", loads);
        }
    }

    #[test]
    fn what_would_fit_fits_and_a_step_less_does_not(
        policy in prop::sample::select(&[Policy::Dwcs, Policy::Dwcs98, Policy::Vds][..]),
        streams in prop::collection::vec((1..20_000_000_u64, contract(), 1..3000_u64), 1..10),
        rate in 1_000_000..9_000_000_u64,
    ) {
        let loads: Vec<Load> = streams.into_iter().map(|(period, (x, y, ..), size)| Load {
            service: Service::Size(Bytes(size)),
            ..slot(period, (x, y))
        }).collect();
        let refused = |loads: &[Load], rate: u64| {
            let (pattern, quantum) = (Pattern::Sporadic, Bytes(0));
            let rate = Some(Bitrate(rate));
            check(&Request { policy, rate, pattern, quantum, tree: None, loads }).expect("in range")
        };
        let answer = refused(&loads, rate);
        let Some(breach) = answer.breach else { return Ok(()) };
        prop_assert_eq!(breach.cause, Cause::Overload);
        let before = &loads[..breach.stream];
        let joined = |change: &dyn Fn(&mut Contract)| {
            let mut loads = loads[..=breach.stream].to_vec();
            change(&mut loads[breach.stream].contract);
            refused(&loads, rate).verdict == Verdict::Refused
        };
        prop_assert!(before.is_empty() || refused(before, rate).verdict != Verdict::Refused);
        prop_assert!(joined(&|_| ()));
        if let Some(Window { lose, of }) = breach.fit.window {
            let windows = |lose| Windows::Whole(Window { lose, of });
            prop_assert!(!joined(&|contract| contract.windows = windows(lose)));
            prop_assert!(joined(&|contract| contract.windows = windows(lose - 1)));
        }
        if let Some(Duration(period)) = breach.fit.period {
            prop_assert!(!joined(&|contract| contract.period = Duration(period)));
            prop_assert!(joined(&|contract| contract.period = Duration(period - 1)));
        }
        let Bitrate(needed) = breach.fit.rate.expect("some rate always does");
        prop_assert!(refused(&loads, needed).verdict != Verdict::Refused);
        prop_assert!(refused(&loads, needed - 1).verdict == Verdict::Refused);
    }
}

#[test]
fn the_answer_names_the_stream_the_excess_and_what_fits() {
    // Shares 1/2, 1/2 and 4/5 x 1/4 of the link.
    let loads = [slot(2, (0, 1)), slot(4, (0, 2)), slot(4, (1, 5)), slot(4, (1, 5))];
    let answer = ask(Policy::Vds, &loads);
    let breach = answer.breach.expect("21/20 and more");
    assert_eq!((breach.stream, breach.cause), (3, Cause::Overload));
    assert_eq!(answer.load.to_string(), "23/20 (115.00 %)");
    assert_eq!(breach.excess.to_string(), "3/20 (15.00 %)");
    assert_eq!(breach.fit.window, Some(Window { lose: 4, of: 5 }));
    assert_eq!(breach.fit.period, Some(Duration(16)));
    assert_eq!(breach.fit.rate, None, "no rate changes a slot");
    // With equal rights the link of the node file's kind: 1000 bytes each 40 ms are 200 kbit/s.
    let sized = loads.map(|load| Load {
        contract: Contract { period: Duration::from_millis(40), ..load.contract },
        service: Service::Size(Bytes(1000)),
    });
    let rate = Some(Bitrate::from_kbps(600));
    let (policy, pattern, quantum) = (Policy::Dwcs, Pattern::Sporadic, Bytes(0));
    let question = Request { policy, rate, pattern, quantum, tree: None, loads: &sized };
    let fit = check(&question).expect("in range").breach.expect("720 kbit/s").fit;
    assert_eq!(fit.rate, Some(Bitrate::from_kbps(720)));
    assert_eq!(fit.window, Some(Window { lose: 4, of: 5 }));
}

#[test]
fn a_missing_condition_is_named() {
    let why = |policy, loads: &[Load]| ask(policy, loads).unproved;
    assert_eq!(
        why(Policy::Dwcs, &[slot(2, (1, 2)), slot(3, (1, 2))]),
        Some(Unproved::UnequalPeriods(1))
    );
    assert_eq!(
        why(Policy::Vds, &[slot(2, (1, 2)), slot(3, (1, 2))]),
        Some(Unproved::SeveralSlots(0))
    );
    assert_eq!(why(Policy::Vds, &[slot(1, (1, 2)), slot(1, (1, 2))]), None);
    assert_eq!(why(Policy::Vds, &[slot(1, (0, 0))]), Some(Unproved::NoWindow(0)));
    assert_eq!(why(Policy::Dwcs98, &[slot(2, (1, 2))]), Some(Unproved::EarlyService(0)));
    let mut long = slot(4, (3, 4));
    long.service = Service::Time(Duration(2));
    assert_eq!(why(Policy::Dwcs, &[slot(4, (1, 2)), long]), Some(Unproved::UnequalService(1)));
    let mut odd = [slot(5, (3, 4)); 2];
    odd[0].service = Service::Time(Duration(2));
    odd[1].service = Service::Time(Duration(2));
    assert_eq!(why(Policy::Dwcs, &odd), Some(Unproved::SlotsDoNotDivide(0)));
    let mut delayed = slot(4, (3, 4));
    delayed.contract.delay = Some(Duration(9));
    assert_eq!(why(Policy::Dwcs, &[delayed]), Some(Unproved::OwnDelay(0)));
}

#[test]
fn the_arrivals_of_a_trace_are_recognised() {
    use selvedge_data_sched::StreamIndex;
    use selvedge_data_sched::admission::pattern_of;
    use selvedge_data_sched::replay::Arrival;
    use selvedge_units::Instant;

    let stream =
        TraceStream { id: "a".into(), contract: slot(3, (1, 2)).contract, first_deadline: None };
    let trace = |at: &[u64], first_deadline: Option<u64>| {
        let first_deadline = first_deadline.map(Instant);
        let arrival = |&at| Arrival { at: Instant(at), stream: StreamIndex(0), size: Bytes(1000) };
        pattern_of(&Trace {
            discipline: Discipline::Dwcs,
            ticks: 9,
            streams: vec![TraceStream { first_deadline, ..stream.clone() }],
            tree: Tree::default(),
            arrivals: Arrivals::Listed(at.iter().map(arrival).collect()),
        })
    };
    assert_eq!(trace(&[0, 3, 6], None), Pattern::Periodic);
    assert_eq!(trace(&[0, 3, 6, 9], Some(3)), Pattern::Periodic);
    assert_eq!(trace(&[0, 3], None), Pattern::Sporadic, "one is missing at 6");
    assert_eq!(trace(&[0, 4, 7], None), Pattern::Sporadic);
    assert_eq!(trace(&[0, 2, 6], None), Pattern::Any);
    assert_eq!(trace(&[0, 3, 6], Some(2)), Pattern::Any);
    let any = Request {
        policy: Policy::Edf,
        rate: None,
        pattern: Pattern::Any,
        quantum: Bytes(0),
        tree: None,
        loads: &[slot(3, (0, 1))],
    };
    assert_eq!(check(&any).expect("in range").unproved, Some(Unproved::Arrivals));
}
