//! `mixed`: guarantees to each class hold on the link, refused sets show a miss; and answers worked out by
//! hand.

use proptest::prelude::*;
use selvedge_data_sched::admission::{
    Cause, Load, Pattern, Policy, Request, Response, Service, Unproved, Verdict, check,
};
use selvedge_data_stream::{Class, Contract, Window};
use selvedge_units::{Bytes, Duration};

use crate::deadlines::holds_of;

const fn class(class: Class, cost: u64, period: u64) -> Load {
    let contract = Contract { class, ..Contract::new(Duration(period), Window::NONE) };
    Load { contract, service: Service::Time(Duration(cost)) }
}

const fn edf(cost: u64, period: u64) -> Load {
    class(Class::Edf, cost, period)
}

const fn urgent(cost: u64, period: u64, priority: i32) -> Load {
    let load = class(Class::Priority, cost, period);
    Load { contract: Contract { priority, ..load.contract }, ..load }
}

const fn fair(cost: u64, period: u64, weight: u32) -> Load {
    let load = class(Class::Fair, cost, period);
    Load { contract: Contract { weight, ..load.contract }, ..load }
}

fn ask(policy: Policy, pattern: Pattern, loads: &[Load]) -> Response {
    check(&Request { policy, rate: None, pattern, quantum: Bytes(0), tree: None, loads })
        .expect("in range")
}

fn sporadic(loads: &[Load]) -> Response {
    ask(Policy::Mixed, Pattern::Sporadic, loads)
}

fn stream() -> impl Strategy<Value = Load> {
    let delay = prop_oneof![2 => Just(None), 1 => (1..60_u64).prop_map(Some)];
    let class = prop::sample::select(&Class::ALL[..]);
    (class, 1..5_u64, 4..90_u64, delay, 0..3_i32, 1..5_u32, prop::bool::weighted(0.8)).prop_map(
        |(class, cost, period, delay, priority, weight, work_conserving)| Load {
            contract: Contract {
                class,
                priority,
                weight,
                work_conserving,
                delay: delay.map(|delay| Duration(delay.max(cost))),
                ..Contract::new(Duration(period.max(cost)), Window::NONE)
            },
            service: Service::Time(Duration(cost)),
        },
    )
}

/// A load that the link takes, so that the classes' own tests decide.
fn light() -> impl Strategy<Value = Vec<Load>> {
    prop::collection::vec(stream(), 1..7).prop_map(|mut loads| {
        let need = |loads: &[Load]| ask(Policy::Fifo, Pattern::Any, loads).load.basis_points();
        while need(&loads) > 10_000 {
            loads.iter_mut().for_each(|load| load.contract.period.0 *= 2);
        }
        loads
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn answers_hold_on_the_link(
        loads in prop_oneof![light(), prop::collection::vec(stream(), 1..7)],
        offsets in prop::collection::vec(0..40_u64, 7),
    ) {
        holds_of(Policy::Mixed, &loads, &offsets)?;
    }

    /// A set of one class is that class's discipline.
    #[test]
    fn one_class_alone_is_its_own_discipline(loads in light(), backlogged in any::<bool>()) {
        let pattern = if backlogged { Pattern::Backlogged } else { Pattern::Sporadic };
        for (class, policy) in
            [(Class::Edf, Policy::Edf), (Class::Priority, Policy::Priority), (Class::Fair, Policy::Sfq)]
        {
            let mut loads = loads.clone();
            loads.iter_mut().for_each(|load| load.contract.class = class);
            let (mixed, alone) = (ask(Policy::Mixed, pattern, &loads), ask(policy, pattern, &loads));
            prop_assert_eq!((mixed.verdict, mixed.breach), (alone.verdict, alone.breach));
        }
    }

    /// Streams of other classes can only take service away.
    #[test]
    fn who_is_refused_alone_is_refused_in_company(loads in light(), more in stream()) {
        let refused = |loads: &[Load]| sporadic(loads).verdict == Verdict::Refused;
        if refused(&loads) {
            let mut joined = loads.clone();
            joined.push(more);
            prop_assert!(refused(&joined), "{joined:?}");
        }
    }

    #[test]
    fn what_would_fit_fits_and_a_step_less_does_not(
        loads in prop::collection::vec(stream(), 1..7),
    ) {
        let Some(breach) = sporadic(&loads).breach else { return Ok(()) };
        let refused = |loads: &[Load]| sporadic(loads).verdict == Verdict::Refused;
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
}

#[test]
fn unit_slots_on_paper() {
    // The deadlines take 3/4 of the link, the weights share the rest 1:3: 16 and 16/3 slots a frame.
    let set =
        |first: u64, second: u64| [edf(1, 2), edf(1, 4), fair(1, first, 1), fair(1, second, 3)];
    // (4 frames + 1) / (1/4).
    assert_eq!(sporadic(&set(20, 20)).verdict, Verdict::Guaranteed);
    let short = sporadic(&set(20, 19));
    assert_eq!(short.unproved, Some(Unproved::Bound { stream: 3, bound: Duration(20) }));
    assert_eq!(sporadic(&set(15, 20)).unproved, Some(Unproved::Weight(2)));
    assert_eq!(short.load.to_string(), "162/190 (85.26 %)".replace("162/190", "81/95"));
}

#[test]
fn the_last_stream_is_named_with_what_it_exceeds_by() {
    let loads = [edf(1, 2), urgent(1, 4, 0), fair(1, 4, 1), fair(1, 10, 1)];
    let answer = sporadic(&loads);
    let breach = answer.breach.expect("11/10");
    assert_eq!((breach.stream, breach.cause), (3, Cause::Overload));
    assert_eq!(breach.excess.to_string(), "1/10 (10.00 %)");
    assert_eq!((breach.fit.window, breach.fit.period), (None, None), "the others fill the link");
}

#[test]
fn a_later_class_blocks_a_short_deadline() {
    // The fair frame takes four units; the deadline leaves room for three.
    let breach = sporadic(&[edf(1, 4), fair(5, 50, 1)]).breach.expect("5 - 1 + 1 > 4");
    assert_eq!((breach.stream, breach.cause), (1, Cause::Late { stream: 0, by: Duration(1) }));
    let breach = sporadic(&[urgent(1, 4, 9), fair(5, 50, 1)]).breach.expect("5 - 1 + 1 > 4");
    assert_eq!(breach.cause, Cause::Late { stream: 0, by: Duration(1) });
    // A stream by deadline goes before any priority: three frames, and one that blocks.
    let breach = sporadic(&[urgent(2, 5, 9), edf(2, 10), fair(3, 30, 1)]).breach.expect("6 > 5");
    assert_eq!((breach.stream, breach.cause), (2, Cause::Late { stream: 0, by: Duration(1) }));
}

#[test]
fn a_backlog_that_never_waits_starves_the_later_classes() {
    let backlogged = |loads: &[Load]| ask(Policy::Mixed, Pattern::Backlogged, loads);
    let paced = |mut load: Load| {
        load.contract.work_conserving = false;
        load
    };
    let breach = backlogged(&[edf(1, 4), fair(1, 4, 1)]).breach.expect("starved");
    assert_eq!((breach.stream, breach.cause), (1, Cause::Starved(0)));
    assert_eq!(backlogged(&[paced(edf(1, 4)), fair(1, 4, 1)]).verdict, Verdict::Guaranteed);
    let breach = backlogged(&[urgent(1, 4, 1), urgent(1, 4, 2)]).breach.expect("starved");
    assert_eq!((breach.stream, breach.cause), (1, Cause::Starved(1)));
    assert_eq!(backlogged(&[edf(1, 4), edf(1, 2)]).verdict, Verdict::Guaranteed);
}
