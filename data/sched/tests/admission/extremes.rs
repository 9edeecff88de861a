//! Numbers at the ends of their ranges: exact, or refused with the reason.

use selvedge_data_sched::admission::{
    Cause, Load, Pattern, Policy, Request, RequestError, Service, Verdict, check,
};
use selvedge_data_stream::{Contract, Window, Windows};
use selvedge_units::{Bitrate, Bytes, Duration};

const LONGEST: u64 = 1 << 63;

fn load(period: u64, lose: u16, of: u16, service: Service) -> Load {
    Load { contract: Contract::new(Duration(period), Window { lose, of }), service }
}

fn ask<'a>(policy: Policy, rate: Option<u64>, loads: &'a [Load]) -> Request<'a> {
    let pattern = Pattern::Sporadic;
    Request { policy, rate: rate.map(Bitrate), pattern, quantum: Bytes(1500), tree: None, loads }
}

#[test]
fn the_ends_of_all_ranges_are_answered_by_every_test() {
    let slot = Service::Time(Duration(1));
    let sets: [&[Load]; 7] = [
        &[],
        &[load(1, 0, 1, slot)],
        &[load(1, 0, 1, slot), load(LONGEST, 65_534, 65_535, slot)],
        &[load(1, 65_535, 65_535, slot); 2],
        &[load(LONGEST, 0, 1, Service::Time(Duration(LONGEST)))],
        &[load(LONGEST, 0, 0, Service::Time(Duration(LONGEST))), load(1, 0, 0, slot)],
        &[load(LONGEST, 1, 65_535, slot), load(3, 1, 65_534, slot), load(LONGEST - 1, 1, 3, slot)],
    ];
    for policy in Policy::ALL {
        let verdicts = sets.map(|set| check(&ask(policy, None, set)).expect("in range").verdict);
        let full = if policy.counts_windows() { Verdict::Possible } else { Verdict::Refused };
        assert_ne!(verdicts[0], Verdict::Refused, "{policy:?}");
        assert_ne!(verdicts[1], Verdict::Refused, "{policy:?}");
        assert_eq!(verdicts[2], Verdict::Refused, "{policy:?}: by 2^-63 / 65535");
        // May lose all: no load where windows count, twice the link where they do not.
        assert_eq!(verdicts[3], full, "{policy:?}");
        assert_ne!(verdicts[4], Verdict::Refused, "{policy:?}");
        assert_eq!(verdicts[5], Verdict::Refused, "{policy:?}");
        assert_ne!(verdicts[6], Verdict::Refused, "{policy:?}");
    }
    let fast = (1 << 48) - 1;
    let huge = load(LONGEST, 0, 1, Service::Size(Bytes(fast)));
    let answer = check(&ask(Policy::Edf, Some(fast), &[huge])).expect("in range");
    assert_eq!(answer.verdict, Verdict::Guaranteed);
    let answer = check(&ask(Policy::Edf, Some(1), &[huge; 4097])).expect("in range");
    assert_eq!(answer.verdict, Verdict::Refused);
}

#[test]
fn what_is_out_of_range_is_refused_by_name() {
    let slot = Service::Time(Duration(1));
    let sized = Service::Size(Bytes(1));
    let error = |rate, load: Load| check(&ask(Policy::Dwcs, rate, &[load])).unwrap_err();
    assert_eq!(error(None, load(1, 0, 1, sized)), RequestError::Rate(None));
    assert_eq!(error(Some(0), load(1, 0, 1, sized)), RequestError::Rate(Some(Bitrate(0))));
    assert_eq!(
        error(Some(1 << 48), load(1, 0, 1, slot)),
        RequestError::Rate(Some(Bitrate(1 << 48)))
    );
    assert_eq!(error(None, load(0, 0, 1, slot)), RequestError::Time(0));
    assert_eq!(error(None, load(LONGEST + 1, 0, 1, slot)), RequestError::Time(0));
    assert_eq!(error(None, load(1, 0, 1, Service::Time(Duration(0)))), RequestError::Service(0));
    assert_eq!(
        error(Some(1), load(1, 0, 1, Service::Size(Bytes(1 << 48)))),
        RequestError::Service(0)
    );
    assert_eq!(error(None, load(1, 2, 1, slot)), RequestError::Window(0));
    let mut weightless = load(1, 0, 1, slot);
    weightless.contract.weight = 0;
    assert_eq!(error(None, weightless), RequestError::Weight(0));
}

#[test]
fn a_million_streams_are_answered() {
    const MANY: usize = 1 << 20;
    let exactly = vec![load(MANY as u64, 0, 1, Service::Time(Duration(1))); MANY];
    let answer = check(&ask(Policy::Dwcs, None, &exactly)).expect("in range");
    assert_eq!(answer.load.to_string(), "1/1 (100.00 %)");
    assert_eq!(answer.verdict, Verdict::Possible);
    // Tests that are exact for few streams stop in time for many.
    for policy in [Policy::Edf, Policy::Priority, Policy::Wfq] {
        let answer = check(&ask(policy, None, &exactly[..1 << 16])).expect("in range");
        assert_ne!(answer.verdict, Verdict::Refused, "{policy:?}");
    }
}

#[test]
fn sums_that_no_fraction_holds_are_decided_by_their_bounds() {
    // Periods without a common measure.
    let mut wild: Vec<Load> = (0..1 << 16)
        .map(|n| load(1_000_000_007 + 2 * n, 0, 1, Service::Size(Bytes(100))))
        .collect();
    let rate = Some(1 << 36);
    let answer = check(&ask(Policy::Dwcs, rate, &wild)).expect("in range");
    assert!(answer.verdict == Verdict::Possible && answer.load.exact().is_none());
    wild.push(load(1_000, 0, 1, Service::Size(Bytes(1 << 20))));
    let breach = check(&ask(Policy::Dwcs, rate, &wild)).expect("in range").breach.expect("full");
    assert_eq!((breach.stream, breach.cause), (1 << 16, Cause::Overload));
    assert!(breach.fit.rate > Some(Bitrate(1 << 36)) && breach.fit.period.is_some());
}

#[test]
fn windows_for_each_kind_refuse_only_what_no_mixture_could_do() {
    let mut stream = load(2, 0, 1, Service::Time(Duration(1)));
    stream.contract.windows =
        Windows::PerKind(core::array::from_fn(|kind| Window { lose: u16::from(kind > 0), of: 2 }));
    let verdict = |n| check(&ask(Policy::Dwcs, None, &[stream; 5][..n])).expect("in range").verdict;
    assert_eq!(verdict(4), Verdict::Possible);
    assert_eq!(verdict(5), Verdict::Refused);
}
