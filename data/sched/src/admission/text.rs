//! The answer in words, for people: one sentence, with the caller's names and unit of time.

use core::fmt;

use selvedge_units::{Bitrate, Duration};

use super::{Breach, Cause, Policy, Response, Unproved, Verdict};

/// The unit in which spans are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Nanoseconds, as everywhere except in traces.
    Nanoseconds,
    /// The slots of a trace.
    Slots,
}

/// An answer as a sentence; see [`Response::explain`].
pub struct Explanation<'a, N> {
    answer: &'a Response,
    name: N,
    clock: Clock,
}

impl Response {
    /// The answer as a sentence in which `name` names the streams.
    pub const fn explain<'a, N, S>(&'a self, clock: Clock, name: N) -> Explanation<'a, N>
    where
        N: Fn(usize) -> S,
        S: fmt::Display,
    {
        Explanation { answer: self, name, clock }
    }
}

/// The next number with at most three digits before its zeros, which people read more easily: a longer period
/// and a faster link fit as well.
fn three_digits(n: u64) -> u64 {
    let mut unit = 1;
    while n / unit >= 1000 {
        unit *= 10;
    }
    n.div_ceil(unit).saturating_mul(unit)
}

struct Time(Duration, Clock);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Clock::Nanoseconds => Duration(three_digits(self.0.0)).fmt(f),
            Clock::Slots if self.0 == Duration(1) => write!(f, "1 slot"),
            Clock::Slots => write!(f, "{} slots", self.0.0),
        }
    }
}

impl<N: Fn(usize) -> S, S: fmt::Display> fmt::Display for Explanation<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Response { policy, verdict, load, unproved, breach } = self.answer;
        let promise = match (verdict, policy.counts_windows()) {
            (Verdict::Guaranteed, true) => "no window is violated",
            (Verdict::Guaranteed, false) => "no deadline is missed",
            (Verdict::Possible, _) => "the load fits, no proof that it suffices",
            (Verdict::Refused, _) => "does not fit",
        };
        write!(f, "{}: {promise}; it needs {load} of the link", verdict.name())?;
        if let Some(why) = unproved {
            write!(f, "; ")?;
            self.unproved(f, *policy, *why)?;
        }
        if let Some(breach) = breach {
            write!(f, "; ")?;
            self.breach(f, breach)?;
        }
        Ok(())
    }
}

impl<N: Fn(usize) -> S, S: fmt::Display> Explanation<'_, N> {
    fn unproved(&self, f: &mut fmt::Formatter<'_>, policy: Policy, why: Unproved) -> fmt::Result {
        let policy = policy.name();
        match why {
            Unproved::UnequalPeriods(s) => {
                write!(f, "{policy} is proved for equal periods, {} has another", (self.name)(s))
            }
            Unproved::UnequalService(s) => write!(
                f,
                "{policy} is proved for frames that take the same time, those of {} take another",
                (self.name)(s)
            ),
            Unproved::SlotsDoNotDivide(s) => write!(
                f,
                "{policy} is proved for periods of whole service times, that of {} is not one",
                (self.name)(s)
            ),
            Unproved::SeveralSlots(s) => write!(
                f,
                "{policy} is sure for periods of one service time, that of {} holds several: it \
                 keeps nearly all such sets, not all",
                (self.name)(s)
            ),
            Unproved::OwnDelay(s) => write!(
                f,
                "{policy} is proved for deadlines one period apart, {} states a delay",
                (self.name)(s)
            ),
            Unproved::WindowPerKind(s) => write!(
                f,
                "{} has a window for each kind, and how many frames are of which is not known",
                (self.name)(s)
            ),
            Unproved::NoWindow(s) => {
                write!(f, "vds owes nothing to a stream without a window, as {} is", (self.name)(s))
            }
            Unproved::EarlyService(s) => write!(
                f,
                "dwcs98 is proved for streams that wait for their period, {} is work-conserving",
                (self.name)(s)
            ),
            Unproved::Arrivals => {
                write!(f, "the proof needs other arrivals: deadlines in phase, none ahead of time")
            }
            Unproved::Bound { stream, bound } => write!(
                f,
                "{} may wait up to {}, more than its deadline",
                (self.name)(stream),
                Time(bound, self.clock)
            ),
            Unproved::Weight(s) => {
                write!(f, "the weight of {} reserves less than it needs", (self.name)(s))
            }
            Unproved::Quantum(s) => write!(
                f,
                "the bound needs a quantum of at least the largest frame of {}",
                (self.name)(s)
            ),
            Unproved::Levels(s) => write!(
                f,
                "no bound is known for streams below a node of a tree, as {} is; its weights \
                 reserve what it needs",
                (self.name)(s)
            ),
            Unproved::Mapped => write!(f, "no bound is known for the flat approximation of a tree"),
            Unproved::WorstCase(s) => {
                write!(f, "the worst arrivals would make {} late, these may not", (self.name)(s))
            }
            Unproved::Effort => write!(f, "the exact test would take too long"),
        }
    }

    fn breach(&self, f: &mut fmt::Formatter<'_>, breach: &Breach) -> fmt::Result {
        let Breach { stream, cause, excess, fit } = breach;
        let name = &self.name;
        match cause {
            Cause::Overload => {
                write!(f, "with {} the link is exceeded by {excess}", name(*stream))?;
            }
            Cause::Undecided => {
                write!(f, "with {} the link is full to within 2^-64", name(*stream))?;
            }
            Cause::Late { stream: victim, by } => write!(
                f,
                "with {} a frame of {} may be late by {}, {excess} of its deadline",
                name(*stream),
                name(*victim),
                Time(*by, self.clock)
            )?,
            Cause::Starved(by) => write!(
                f,
                "with {}: {} always has a frame and takes every slot; let it wait for its period",
                name(*stream),
                name(*by)
            )?,
        }
        let mut offers = 0;
        let mut offer = |f: &mut fmt::Formatter<'_>, what: fmt::Arguments<'_>| {
            offers += 1;
            write!(f, "{} {what}", if offers == 1 { "; what would fit:" } else { ", or" })
        };
        if let Some(window) = fit.window {
            offer(f, format_args!("its window {window}"))?;
        }
        if let Some(period) = fit.period {
            offer(f, format_args!("its period {}", Time(period, self.clock)))?;
        }
        if let Some(rate) = fit.rate {
            offer(f, format_args!("a link of {}", Bitrate(three_digits(rate.0))))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn numbers_are_rounded_up_to_what_people_read() {
        let shown = |ns| Time(Duration(ns), Clock::Nanoseconds).to_string();
        assert_eq!(shown(178_556_800), "179 ms");
        assert_eq!(shown(40_000_001), "40100 us");
        assert_eq!((shown(999), shown(1001)), ("999 ns".to_string(), "1010 ns".to_string()));
        assert_eq!(three_digits(u64::MAX), u64::MAX);
    }
}
