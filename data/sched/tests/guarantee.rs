//! What `dwcs` promises: unit service, equal periods, `sum((1 - x/y) / T) <= 1`, frames always
//! queued; then no stream ever violates its window-constraint.

use proptest::prelude::*;
use selvedge_sched::Discipline;
use selvedge_sched::replay::{Arrivals, Replay, Trace, TraceStream};
use selvedge_stream::{Contract, Late, Window, Windows};
use selvedge_units::Span;

fn violations(period: u64, windows: &[Window], late: Late) -> Vec<u64> {
    let streams = windows.iter().enumerate().map(|(n, &window)| TraceStream {
        id: n.to_string(),
        contract: Contract {
            windows: Windows::Whole(window),
            late,
            ..Contract::new(Span(period), window)
        },
        first_deadline: None,
    });
    let trace = Trace {
        discipline: Discipline::Dwcs,
        ticks: 2000,
        streams: streams.collect(),
        arrivals: Arrivals::Backlogged,
    };
    let mut replay = Replay::new(&trace);
    (&mut replay).for_each(drop);
    replay.totals().map(|(_, counters, _)| counters.violations).collect()
}

fn window() -> impl Strategy<Value = Window> {
    (1..=10_u16).prop_flat_map(|y| (0..=y, Just(y))).prop_map(|(lose, of)| Window { lose, of })
}

/// As many of the windows, from the front, as fit into the period. Exact: everything is counted
/// in units of 1/2520, which 1 to 10 all divide.
fn that_fit(period: u64, windows: Vec<Window>) -> Vec<Window> {
    let mut left = 2520 * period;
    let owed = |w: &Window| 2520 / u64::from(w.of) * u64::from(w.of - w.lose);
    windows
        .into_iter()
        .filter(|window| match left.checked_sub(owed(window)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .collect()
}

proptest! {
    #[test]
    fn a_set_of_equal_periods_that_fits_has_no_violations(
        period in 1..10_u64,
        windows in prop::collection::vec(window(), 1..40),
        late in prop::sample::select(&[Late::Drop, Late::Send][..]),
    ) {
        let windows = that_fit(period, windows);
        let violations = violations(period, &windows, late);
        prop_assert!(violations.iter().all(|&n| n == 0), "{windows:?}: {violations:?}");
    }
}

#[test]
fn a_full_link_is_enough_and_one_frame_more_is_not() {
    let half = Window { lose: 1, of: 2 };
    assert_eq!(violations(2, &[half; 4], Late::Drop), [0; 4]);
    assert!(violations(2, &[half; 5], Late::Drop).iter().any(|&n| n > 0));
}
