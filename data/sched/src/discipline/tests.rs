//! One suite for every discipline, and the order that each adds.

use super::*;
use Discipline::{Dwcs, Dwcs98, Edf, Fifo, Priority};

const fn head(deadline: u64, lose: u16, of: u16, priority: i32) -> Standing {
    Standing {
        stream: 0,
        deadline: Instant(deadline),
        arrival: Instant::ZERO,
        period: Span(1),
        window: Window { lose, of },
        priority,
        weight: 1,
    }
}

fn rank(discipline: Discipline, standing: &Standing) -> u128 {
    let mut rule = discipline.rule();
    rule.grow(1);
    rule.reset(0, &Contract::new(standing.period, standing.window));
    rule.head(standing, Bytes(1000), false);
    rule.rank(standing)
}

/// Every head in the list goes strictly before the next.
fn assert_order(discipline: Discipline, heads: &[Standing]) {
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

#[test]
fn a_rank_never_has_all_bits_set_and_does_not_change_by_itself() {
    let extremes = [0, 1, u16::MAX];
    for discipline in Discipline::ALL {
        for of in extremes {
            for lose in extremes.into_iter().filter(|&lose| lose <= of) {
                for deadline in [0, u64::MAX] {
                    for priority in [i32::MIN, 0, i32::MAX] {
                        let standing = head(deadline, lose, of, priority);
                        let first = rank(discipline, &standing);
                        assert_ne!(first, u128::MAX, "{discipline} {standing:?}");
                        assert_eq!(first, rank(discipline, &standing));
                    }
                }
            }
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
