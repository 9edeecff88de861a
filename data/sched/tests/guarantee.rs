//! The expectation for windows: with unit service, frames always queued and `sum((1 - x/y) / T) <= 1`, no
//! stream violates its window-constraint. Measured on sets drawn from fixed seeds: `dwcs` keeps nearly all of
//! equal periods, `vds` all of equal periods and nearly all of unequal ones; and here are sets that each does
//! not keep.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use selvedge_data_sched::replay::{Arrivals, Replay, Trace, TraceStream};
use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stream::{Contract, Late, Window, Windows};
use selvedge_units::Duration;

/// A period and a window.
type Asked = (u64, Window);

#[derive(Clone, Copy, Debug)]
struct How {
    discipline: Discipline,
    late: Late,
    work_conserving: bool,
}

const fn how(discipline: Discipline) -> How {
    How { discipline, late: Late::Drop, work_conserving: true }
}

fn violations(how: How, set: &[Asked], ticks: u64) -> Vec<u64> {
    let streams = set.iter().enumerate().map(|(n, &(period, window))| TraceStream {
        id: n.to_string(),
        contract: Contract {
            windows: Windows::Whole(window),
            late: how.late,
            work_conserving: how.work_conserving,
            ..Contract::new(Duration(period), window)
        },
        first_deadline: None,
    });
    let trace = Trace {
        discipline: how.discipline,
        ticks,
        streams: streams.collect(),
        tree: Tree::default(),
        arrivals: Arrivals::Backlogged,
    };
    let mut replay = Replay::new(&trace);
    (&mut replay).for_each(drop);
    replay.totals().map(|(_, counters, _)| counters.violations).collect()
}

fn window() -> impl Strategy<Value = Window> {
    (1..=10_u16).prop_flat_map(|y| (0..=y, Just(y))).prop_map(|(lose, of)| Window { lose, of })
}

const fn window_of(lose: u16, of: u16) -> Window {
    Window { lose, of }
}

/// All of the link, in units that every `y T` of up to 10 times 24 divides.
const WHOLE: u64 = 2520 * 5_354_228_880;

/// A stream's required service, exactly.
fn owed(&(period, window): &Asked) -> u64 {
    let parts = WHOLE / (period * u64::from(window.of));
    assert_eq!(parts * period * u64::from(window.of), WHOLE);
    parts * u64::from(window.of - window.lose)
}

/// The longest prefix of the set that fits.
fn that_fit(set: Vec<Asked>) -> Vec<Asked> {
    let mut left = WHOLE;
    set.into_iter()
        .filter(|asked| match left.checked_sub(owed(asked)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .collect()
}

/// Adds streams until the whole link is required, as far as small terms allow.
fn filled(set: Vec<Asked>) -> Vec<Asked> {
    let mut set = that_fit(set);
    let mut left = WHOLE - set.iter().map(owed).sum::<u64>();
    for period in 1..=24 {
        for of in 1..=10_u16 {
            let one = (period, window_of(of - 1, of));
            let times = (left / owed(&one)).min(u64::from(of));
            if times > 0 {
                let asked = (period, window_of(of - times as u16, of));
                left -= owed(&asked);
                set.push(asked);
            }
        }
    }
    set
}

fn set(period: impl Strategy<Value = u64>) -> impl Strategy<Value = Vec<Asked>> {
    prop::collection::vec((period, window()), 1..30)
}

/// The first sets that satisfy a condition, the same in each run.
fn sets(
    count: usize,
    sets: impl Strategy<Value = Vec<Asked>>,
    condition: impl Fn(&[Asked]) -> bool,
) -> Vec<Vec<Asked>> {
    let mut runner = TestRunner::deterministic();
    let drawn = core::iter::repeat_with(|| sets.new_tree(&mut runner).unwrap().current());
    drawn.filter(|set| condition(set)).take(count).collect()
}

/// The required share of the link, in parts per thousand, rounded down.
fn load(set: &[Asked]) -> u64 {
    set.iter().map(owed).sum::<u64>() / (WHOLE / 1000)
}

/// The number of sets that are not kept.
fn broken(how: How, sets: &[Vec<Asked>]) -> usize {
    sets.iter().filter(|set| violations(how, set, 1200).iter().any(|&n| n > 0)).count()
}

fn equal_periods() -> impl Strategy<Value = Vec<Asked>> {
    (set(1..=24_u64), 1..=24_u64).prop_map(|(set, period)| {
        that_fit(set.into_iter().map(|(_, window)| (period, window)).collect())
    })
}

const BOTH_WAYS: [(Late, bool); 2] = [(Late::Drop, true), (Late::Send, false)];
const SETS: usize = 320;

#[test]
fn vds_keeps_nearly_all_sets_of_equal_periods() {
    let sets = sets(SETS, equal_periods(), |_| true);
    for (late, work_conserving) in BOTH_WAYS {
        let how = How { discipline: Discipline::Vds, late, work_conserving };
        assert_eq!(broken(how, &sets), 0, "{how:?}");
    }
}

#[test]
fn vds_keeps_unequal_periods_up_to_nearly_all_of_the_link() {
    let drawn = set(1..=24_u64).prop_map(that_fit);
    let sets = sets(SETS, drawn, |set| (500..1000).contains(&load(set)));
    assert!(sets.iter().filter(|set| load(set) >= 980).count() > 60, "many are tight");
    for (late, work_conserving) in BOTH_WAYS {
        let how = How { discipline: Discipline::Vds, late, work_conserving };
        assert_eq!(broken(how, &sets), 0, "{how:?}");
    }
    assert!(broken(how(Discipline::Dwcs), &sets) > SETS / 2, "which dwcs does not");
}

#[test]
fn vds_keeps_nearly_all_sets_that_ask_for_all_of_the_link() {
    let sets = sets(SETS, set(1..=24_u64).prop_map(filled), |set| load(set) == 1000);
    assert!(broken(how(Discipline::Vds), &sets) <= 4);
}

#[test]
fn dwcs_keeps_nearly_all_sets_of_equal_periods() {
    let sets = sets(SETS, equal_periods(), |set| load(set) >= 900);
    assert!(broken(how(Discipline::Dwcs), &sets) <= 4);
}

/// A set that requires the whole link. With equal periods of `T` slots each period is a time step of `T`
/// processors, and the streams are periodic tasks that run on one of them at a time. No rule that looks at
/// deadlines or laxities alone is optimal there, only proportional ones are (Baruah, Cohen, Plaxton and
/// Varvel, Algorithmica 1996). Found by random search.
#[test]
fn a_set_of_equal_periods_that_neither_keeps() {
    let windows = [
        (1, 6),
        (1, 3),
        (1, 4),
        (3, 4),
        (2, 4),
        (2, 4),
        (3, 4),
        (1, 5),
        (0, 2),
        (7, 10),
        (2, 8),
        (0, 2),
        (6, 10),
    ];
    let set = windows.map(|(lose, of)| (8, window_of(lose, of)));
    assert_eq!(load(&set), 1000);
    assert_eq!(violations(how(Discipline::Dwcs), &set, 2000).iter().sum::<u64>(), 1);
    assert!(violations(how(Discipline::Vds), &set, 2000).iter().sum::<u64>() > 0);
}

/// The same with unequal periods.
#[test]
fn a_set_of_unequal_periods_that_vds_breaks() {
    let set = [(18, 1, 5), (5, 4, 4), (1, 2, 10), (5, 2, 9), (15, 5, 5), (15, 7, 7)];
    let set = set.map(|(period, lose, of)| (period, window_of(lose, of)));
    assert_eq!(load(&set), 1000);
    assert!(violations(how(Discipline::Vds), &set, 2000)[3] > 0);
}

#[test]
fn a_full_link_is_enough_and_one_frame_more_is_not() {
    let half = (2, window_of(1, 2));
    for discipline in [Discipline::Dwcs, Discipline::Vds] {
        assert_eq!(violations(how(discipline), &[half; 4], 2000), [0; 4]);
        assert!(violations(how(discipline), &[half; 5], 2000).iter().any(|&n| n > 0));
    }
}
