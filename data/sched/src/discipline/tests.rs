//! One suite for every discipline, and the order that each defines.

use core::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use Discipline::{Dwcs, Dwcs98, Edf, Fifo, Priority};

const fn head(deadline: u64, lose: u16, of: u16, priority: i32) -> HeadState {
    HeadState {
        stream: 0,
        deadline: Instant(deadline),
        arrival: Instant::ZERO,
        period: Duration(1),
        window: Window { lose, of },
        priority,
        weight: 1,
    }
}

/// A discipline that was notified of this head.
fn observer(discipline: Discipline, standing: &HeadState) -> AnyRule {
    let mut rule = discipline.rule();
    with_rule!(&mut rule, rule => {
        rule.grow(2);
        rule.reset(standing.stream, &Contract::new(standing.period, standing.window));
        rule.observe_head(standing, Bytes(1000), false);
    });
    rule
}

fn rank(discipline: Discipline, standing: &HeadState) -> u128 {
    with_rule!(&observer(discipline, standing), rule => rule.rank(standing))
}

/// Every head in the list goes strictly before the next.
fn assert_order(discipline: Discipline, heads: &[HeadState]) {
    for pair in heads.windows(2) {
        let ranks = [rank(discipline, &pair[0]), rank(discipline, &pair[1])];
        assert!(ranks[0] < ranks[1], "{discipline}: {pair:?}");
    }
}

#[test]
fn names_are_read_back_and_differ() {
    for discipline in Discipline::ALL {
        assert_eq!(Discipline::from_name(discipline.name()), Some(discipline));
    }
    for name in ["", "DWCS", "dwcs2"] {
        assert_eq!(Discipline::from_name(name), None);
    }
    assert_eq!(Discipline::default(), Dwcs);
}

fn moment() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..4_u64,
        1 => any::<u64>(),
        1 => (0..64_u32, 0..4_u64).prop_map(|(bit, more)| (1_u64 << bit).saturating_add(more)),
        1 => u64::MAX - 3..=u64::MAX,
    ]
}

fn anything() -> impl Strategy<Value = HeadState> {
    let of = prop_oneof![0..4_u16, any::<u16>(), 4090..4100_u16, 250..260_u16];
    let window = of.prop_flat_map(|of| (prop_oneof![0..=of.min(3), 0..=of], Just(of)));
    let priority = prop_oneof![-1..=1, Just(i32::MIN), Just(i32::MAX)];
    (moment(), moment(), window, priority).prop_map(|(deadline, arrival, (lose, of), priority)| {
        HeadState { arrival: Instant(arrival), ..head(deadline, lose, of, priority) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn keys_are_never_out_of_order(a in anything(), b in anything(), epoch in moment()) {
        for discipline in Discipline::ALL {
            let place = |s: &HeadState| (rank(discipline, s), s.arrival);
            let epoch = Instant(epoch).min(EPOCH_MAX);
            let key = |s| with_rule!(&observer(discipline, s), rule => rule.key(s, epoch));
            prop_assert!(key(&a) <= LAST_KEY);
            let (places, keys) = (place(&a).cmp(&place(&b)), key(&a).cmp(&key(&b)));
            prop_assert!(keys == Ordering::Equal || keys == places, "{}: {:?}", discipline, keys);
        }
    }
}

#[test]
fn dwcs_looks_at_the_deadline_then_the_window() {
    assert_order(
        Dwcs,
        &[
            head(4, 65535, 65535, 0), // lower D, whatever the window
            head(5, 0, 9, 0),         // x'/y' = 0: higher y' first
            head(5, 0, 8, 0),
            head(5, 0, 0, 0), // no window is 0 as well, with the lowest y'
            head(5, 1, 65535, 0),
            head(5, 1, 4, 0), // equal fractions: lower x' first
            head(5, 2, 8, 0),
            head(5, 1, 3, 0),
            head(u64::MAX, 0, 9, 0),
        ],
    );
    assert_eq!(rank(Dwcs, &head(5, 1, 4, 7)), rank(Dwcs, &head(5, 1, 4, -7)));
}

#[test]
fn dwcs98_looks_at_the_window_then_the_deadline() {
    assert_order(
        Dwcs98,
        &[
            head(9, 0, 65535, 0), // x'/y' = 0: higher y' first, whatever the deadline
            head(8, 0, 8, 0),
            head(1, 0, 1, 0),
            head(1, 0, 0, 0), // no window: lower D
            head(u64::MAX, 0, 0, 0),
            head(9, 1, 65535, 0),
            head(2, 2, 8, 0), // equal fractions: lower D, then lower x'
            head(3, 1, 4, 0),
            head(3, 2, 8, 0),
            head(1, 1, 1, 0),
        ],
    );
    // "both 0 ... otherwise higher y'": with the same y' the deadline does not count.
    assert_eq!(rank(Dwcs98, &head(1, 0, 4, 0)), rank(Dwcs98, &head(2, 0, 4, 0)));
}

#[test]
fn the_plain_disciplines_look_at_one_thing_each() {
    assert_order(Edf, &[head(0, 1, 2, 0), head(1, 0, 2, 9), head(u64::MAX, 0, 0, 0)]);
    let heads = [head(9, 0, 0, i32::MAX), head(1, 0, 0, 0), head(0, 0, 0, i32::MIN)];
    assert_order(Priority, &heads);
    assert_eq!(rank(Edf, &heads[1]), rank(Edf, &head(1, 1, 1, 5)));
    assert_eq!(rank(Fifo, &heads[0]), rank(Fifo, &heads[2]));
}
