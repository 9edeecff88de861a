//! The answer: the first stream that is too much, and the values that would fit in its place.
//!
//! The values are searched for with the test itself, so the two can't disagree: a value is given only if the
//! test no longer refuses it and still refuses the one next to it.

use core::cmp::Ordering;

use selvedge_data_stream::{Contract, Window, Windows};
use selvedge_units::{Bitrate, Duration};

use super::found::{StepBudget, TestResult};
use super::set::{BYTE, RATE_MAX, Set};
use super::share::Share;
use super::verdict::assess;
use super::{Breach, Cause, Fit, Load, Response, Service, Verdict};

/// The steps for all tests after a refusal.
const SEARCH: u64 = 1 << 24;
const PERIOD_MAX: u64 = 1 << 63;
/// The `y` of the window that is offered to a stream without one, or with `0/1`.
const WINDOW_OF: u16 = 10;

pub(super) fn answer(set: &Set<'_>) -> Response {
    let found = assess(set, &mut StepBudget { left: StepBudget::TEST });
    let (verdict, unproved, breach) = match found {
        TestResult::Kept => (Verdict::Guaranteed, None, None),
        TestResult::Unproved(why) => (Verdict::Possible, Some(why), None),
        TestResult::Broken(cause, excess) => {
            (Verdict::Refused, None, Some(breach(set, cause, excess)))
        }
    };
    Response { policy: set.policy, verdict, load: set.share_of_all(), unproved, breach }
}

fn breach(set: &Set<'_>, cause: Cause, excess: Share) -> Breach {
    let mut search = Search { effort: StepBudget { left: SEARCH } };
    // Where the load alone decides, one pass finds the stream; otherwise a deadline may break earlier.
    let stream =
        if set.policy.counts_windows() { first_over(set) } else { search.first_broken(set) };
    let joined = set.first(stream + 1);
    let (cause, excess) = match assess(&joined, &mut search.allowance()) {
        TestResult::Broken(cause, excess) => (cause, excess),
        // The search ran out of steps; the cause is then that of the whole set.
        _ => (cause, excess),
    };
    let fit = Fit {
        window: window(&joined, stream),
        period: search.period(&joined, stream),
        rate: search.rate(set),
    };
    Breach { stream, cause, excess, fit }
}

fn at_most_one(share: Share) -> bool {
    matches!(share.compare_to_one(), Some(Ordering::Less | Ordering::Equal))
}

/// The first stream that takes the load beyond 1. O(N).
fn first_over(set: &Set<'_>) -> usize {
    let mut sum = Share::ZERO;
    let over = set.loads().position(|load| {
        sum = sum.plus(set.share(load));
        !at_most_one(sum)
    });
    over.unwrap_or(set.len() - 1)
}

fn windowed(load: &Load, window: Window) -> Load {
    Load { contract: Contract { windows: Windows::Whole(window), ..load.contract }, ..*load }
}

/// The tightest window with which the stream fits with those before it, where windows count: then the load
/// alone decides. O(N).
fn window(set: &Set<'_>, stream: usize) -> Option<Window> {
    let load = set.load(stream);
    let Windows::Whole(stated) = load.contract.windows else { return None };
    if !set.policy.counts_windows() {
        return None;
    }
    let of = if stated.of < 2 { WINDOW_OF } else { stated.of };
    let before = set.first(stream).share_of_all();
    let fits = |lose: u64| {
        let window = Window { lose: lose as u16, of };
        at_most_one(before.plus(set.share(&windowed(load, window))))
    };
    let least = if stated.of < 2 { 0 } else { u64::from(stated.lose) };
    let lose = least_true(least, u64::from(of), |lose| Some(fits(lose)))?;
    // A stream that may lose every frame is not served.
    (lose < u64::from(of)).then_some(Window { lose: lose as u16, of })
}

/// The least value above `fails` for which `holds` returns true, found by halving: it holds there and not one
/// below. `None` if it does not hold at `most`, or if `holds` returns `None`.
fn least_true(fails: u64, most: u64, mut holds: impl FnMut(u64) -> Option<bool>) -> Option<u64> {
    if most <= fails || !holds(most)? {
        return None;
    }
    let (mut fails, mut found) = (fails, most);
    while found - fails > 1 {
        let middle = fails + (found - fails) / 2;
        if holds(middle)? {
            found = middle;
        } else {
            fails = middle;
        }
    }
    Some(found)
}

struct Search {
    effort: StepBudget,
}

impl Search {
    /// The steps that the next test may take.
    fn allowance(&self) -> StepBudget {
        StepBudget { left: self.effort.left.min(StepBudget::TEST) }
    }

    /// Whether the set is not refused; `None` if the steps do not suffice to decide.
    fn admits(&mut self, set: &Set<'_>) -> Option<bool> {
        self.effort.spend(set.len())?;
        let given = self.allowance();
        let mut effort = given;
        let found = assess(set, &mut effort);
        self.effort.spend((given.left - effort.left) as usize)?;
        match found {
            TestResult::Unproved(super::Unproved::Effort) => None,
            found => Some(!found.is_broken()),
        }
    }

    /// The last stream of the shortest refused part, from the front, of a refused set. Another stream never
    /// makes room, so halving finds it.
    fn first_broken(&mut self, set: &Set<'_>) -> usize {
        let (mut sound, mut broken) = (0, set.len());
        while broken - sound > 1 {
            let middle = sound + (broken - sound) / 2;
            if self.admits(&set.first(middle)) == Some(false) {
                broken = middle;
            } else {
                sound = middle;
            }
        }
        broken - 1
    }

    /// The shortest period with which the stream fits with those before it.
    fn period(&mut self, set: &Set<'_>, stream: usize) -> Option<Duration> {
        let load = *set.load(stream);
        let paced = |period: u64| Load {
            contract: Contract { period: Duration(period), ..load.contract },
            ..load
        };
        let before = set.first(stream).share_of_all();
        let bears = |period: u64| at_most_one(before.plus(set.share(&paced(period))));
        let stated = load.contract.period.0;
        // The load alone first, which is quick and needed under every discipline.
        let bearable = if bears(stated) {
            stated
        } else {
            least_true(stated, PERIOD_MAX, |period| Some(bears(period)))?
        };
        if set.policy.counts_windows() {
            return (bearable > stated).then_some(Duration(bearable));
        }
        let mut admits = |period: u64| self.admits(&set.with(stream, paced(period)));
        if bearable > stated && admits(bearable)? {
            return Some(Duration(bearable));
        }
        // Doubling first: tests with long periods take long.
        let (mut fails, mut most) = (bearable, bearable.saturating_mul(2).min(PERIOD_MAX));
        while !admits(most)? {
            if most == PERIOD_MAX {
                return None;
            }
            (fails, most) = (most, most.saturating_mul(2).min(PERIOD_MAX));
        }
        least_true(fails, most, admits).map(Duration)
    }

    /// The lowest rate at which the whole set is not refused.
    fn rate(&mut self, set: &Set<'_>) -> Option<Bitrate> {
        let (low, high) = rate_bounds(set)?;
        let fails = low.max(set.rate);
        let most = if set.policy.counts_windows() { high.max(fails + 1) } else { RATE_MAX };
        least_true(fails, most.min(RATE_MAX), |rate| self.admits(&set.at_rate(rate))).map(Bitrate)
    }
}

/// A rate that the load surely exceeds (or 0), and one that it does not: the sum of `(y-x)/y size/T`, rounded
/// down and up. `None` if a service is a time, which no rate changes. O(N).
fn rate_bounds(set: &Set<'_>) -> Option<(u64, u64)> {
    const POINT: u32 = 24;
    let mut sum = 0_u128;
    for load in set.loads() {
        let Service::Size(size) = load.service else { return None };
        let (serve, of) = set.required_frames(load);
        // Below 2^(48 + 33 + 16 + 24), and 2^79.
        let bits = (u128::from(size.0) * BYTE * serve) << POINT;
        sum = sum.checked_add(bits / (u128::from(load.contract.period.0) * of))?;
    }
    let clamp = |rate: u128| u64::try_from(rate).unwrap_or(u64::MAX).min(RATE_MAX);
    let ceiling = (sum + set.len() as u128).div_ceil(1 << POINT);
    let below = sum.div_ceil(1 << POINT).saturating_sub(1);
    Some((clamp(below), clamp(ceiling)))
}
