//! The disciplines: each is a key, made when a head frame comes up or its standing changes, so
//! that a decision is a comparison of integers and nothing else.
//!
//! One file each, one line in the table below. A discipline says only its own rank; what all have
//! in common (expiry, rules a and b, earlier arrival first, then the lower index) is elsewhere.

mod drr;
mod dwcs;
mod dwcs98;
mod edf;
mod fifo;
mod flat;
mod fluid;
mod heap;
mod hwfq;
mod mixed;
mod priority;
mod sfq;
mod tag;
mod tree;
mod vds;
mod wfq;

#[cfg(test)]
mod tests;

use core::fmt;

use selvedge_stream::{Contract, Window};
use selvedge_units::{Bytes, Instant, Span};

use crate::tournament::Key;
pub use tree::{Tree, TreeError, TreeNode};

/// What a discipline may look at when it ranks a stream's head frame.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each discipline looks at some of it")]
pub(crate) struct Standing {
    pub(crate) stream: u32,
    pub(crate) deadline: Instant,
    pub(crate) arrival: Instant,
    pub(crate) period: Span,
    /// The current window `x'/y'` that the frame is counted in, `x' <= y'`.
    pub(crate) window: Window,
    pub(crate) priority: i32,
    pub(crate) weight: u32,
}

/// A discipline. Whatever it must remember between decisions (a virtual time, a tag for each
/// stream) lives in `self`.
pub(crate) trait Rule {
    /// The lowest bit of the 64 of the rank that hold a time or a tag. A key has room for 55 of
    /// them, counted from some epoch; beyond that order is found the long way.
    const TIME_AT: u32 = 48;
    /// Whether those bits hold a moment of the scheduler's time, and not a tag that begins at 0.
    const TIMED: bool = true;
    /// Whether of two heads the one with the earlier deadline always goes first: then the next
    /// to expire is the next to go, and no other order need be kept.
    const DEADLINE_FIRST: bool = false;
    /// Whether the methods below `rank` do anything, and `head`: the others are not called then.
    const TOLD: bool = false;
    /// Whether equal ranks go by index alone.
    const TIES_BY_INDEX: bool = false;

    /// Makes room for streams with indexes below `streams`; the only method that allocates.
    fn grow(&mut self, _streams: usize) {}

    /// A stream begins anew at an index.
    fn reset(&mut self, _stream: u32, _contract: &Contract) {}

    /// A stream's windows have changed.
    fn windows(&mut self, _stream: u32, _contract: &Contract) {}

    /// A head may go: when it comes up or, if its stream is not work-conserving, when it is ready.
    /// Called before it is ranked. `fresh`: it was not there when the last frame went, so its
    /// stream's queue was empty in between.
    fn head(&mut self, _head: &Standing, _size: Bytes, _fresh: bool) {}

    /// At most 112 bits; the lower goes first. Equal ranks go by arrival, then by index. The same
    /// as long as neither the standing changes nor another method is called for this stream.
    fn rank(&self, head: &Standing) -> u128;

    /// The head goes out.
    fn served(&mut self, _head: &Standing) {}

    /// The head is lost.
    fn lost(&mut self, _head: &Standing) {}

    /// Whether a stream's head may not go, although it is ready.
    fn waits(&self, _stream: u32) -> bool {
        false
    }

    /// It is `now`; time does not go back.
    fn advance(&mut self, _now: Instant) {}

    /// A stream whose rank, or leave to go, has changed otherwise than by a call for its own head.
    /// Asked after each call above, until there is none.
    fn stale(&mut self) -> Option<u32> {
        None
    }

    /// The next moment after `now` at which there will be such a stream.
    fn next_event(&self, _now: Instant) -> Option<Instant> {
        None
    }
}

/// A rank with its time counted from `epoch` and cut to 55 bits, so that it fits a key. Never out
/// of order: where the time has no room, what follows it in the rank is left out as well, and
/// keys that come out equal are told apart by their whole ranks.
#[inline(always)]
fn compact<R: Rule>(rank: u128, epoch: u64) -> u128 {
    const TIME_BITS: u32 = 55;
    const END: u64 = (1 << TIME_BITS) - 1;
    let below = rank & ((1 << R::TIME_AT) - 1);
    let above = rank >> (R::TIME_AT + 64);
    let time = (rank >> R::TIME_AT) as u64;
    let since = time.wrapping_sub(epoch);
    let (time, below) = if time >= epoch && since < END {
        (since, below)
    } else {
        (if time < epoch { 0 } else { END }, 0)
    };
    above << (R::TIME_AT + TIME_BITS) | u128::from(time) << R::TIME_AT | below
}

macro_rules! disciplines {
    ($($(#[$meta:meta])* $name:ident = $text:literal => $rule:ty;)*) => {
        /// The order in which streams are served.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Discipline {
            $($(#[$meta])* $name,)*
        }

        impl Discipline {
            /// All of them.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            /// The name in node files, traces and tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            pub(crate) fn rule(self) -> AnyRule {
                match self {
                    $(Self::$name => AnyRule::$name(<$rule>::default()),)*
                }
            }
        }

        /// Any one of the disciplines, without a call through a pointer.
        #[derive(Clone, Debug)]
        pub(crate) enum AnyRule {
            $($name($rule),)*
        }

        impl AnyRule {
            pub(crate) const fn timed(&self) -> bool {
                match self {
                    $(Self::$name(_) => <$rule>::TIMED,)*
                }
            }

            pub(crate) const fn deadline_first(&self) -> bool {
                match self {
                    $(Self::$name(_) => <$rule>::DEADLINE_FIRST,)*
                }
            }

            pub(crate) const fn told(&self) -> bool {
                match self {
                    $(Self::$name(_) => <$rule>::TOLD,)*
                }
            }

            pub(crate) fn grow(&mut self, streams: usize) {
                match self {
                    $(Self::$name(rule) => rule.grow(streams),)*
                }
            }

            pub(crate) fn reset(&mut self, stream: u32, contract: &Contract) {
                match self {
                    $(Self::$name(rule) => rule.reset(stream, contract),)*
                }
            }

            pub(crate) fn windows(&mut self, stream: u32, contract: &Contract) {
                match self {
                    $(Self::$name(rule) => rule.windows(stream, contract),)*
                }
            }

            pub(crate) fn head(&mut self, head: &Standing, size: Bytes, fresh: bool) {
                match self {
                    $(Self::$name(rule) => rule.head(head, size, fresh),)*
                }
            }

            pub(crate) fn waits(&self, stream: u32) -> bool {
                match self {
                    $(Self::$name(rule) => rule.waits(stream),)*
                }
            }

            pub(crate) fn advance(&mut self, now: Instant) {
                match self {
                    $(Self::$name(rule) => rule.advance(now),)*
                }
            }

            pub(crate) fn stale(&mut self) -> Option<u32> {
                match self {
                    $(Self::$name(rule) => rule.stale(),)*
                }
            }

            pub(crate) fn next_event(&self, now: Instant) -> Option<Instant> {
                match self {
                    $(Self::$name(rule) => rule.next_event(now),)*
                }
            }

            /// Whether one head goes before another, by all that breaks ties.
            #[inline]
            pub(crate) fn before(&self, a: &Standing, b: &Standing) -> bool {
                match self {
                    $(Self::$name(rule) => {
                        let [first, second] = [rule.rank(a), rule.rank(b)];
                        if first != second {
                            return first < second;
                        }
                        if a.arrival != b.arrival && !<$rule>::TIES_BY_INDEX {
                            return a.arrival < b.arrival;
                        }
                        a.stream < b.stream
                    })*
                }
            }

            #[cfg(test)]
            pub(crate) fn rank(&self, head: &Standing) -> u128 {
                match self {
                    $(Self::$name(rule) => rule.rank(head),)*
                }
            }

            #[inline]
            pub(crate) fn served(&mut self, head: &Standing) {
                match self {
                    $(Self::$name(rule) => rule.served(head),)*
                }
            }

            #[inline]
            pub(crate) fn lost(&mut self, head: &Standing) {
                match self {
                    $(Self::$name(rule) => rule.lost(head),)*
                }
            }

            /// The rank of a head as a key.
            #[inline]
            pub(crate) fn key(&self, head: &Standing, epoch: u64) -> Key {
                let rank = match self {
                    $(Self::$name(rule) => compact::<$rule>(rule.rank(head), epoch),)*
                };
                Key::new(rank, head.stream)
            }
        }
    };
}

disciplines! {
    /// Earliest deadline first, then window (ShareStreams Table 2, Q-Fabric Table 1).
    #[default]
    Dwcs = "dwcs" => dwcs::Dwcs;
    /// Window first, then deadline: the original order (NI coprocessors).
    Dwcs98 = "dwcs98" => dwcs98::Dwcs98;
    /// Earliest deadline first.
    Edf = "edf" => edf::Edf;
    /// Highest priority first.
    Priority = "priority" => priority::Priority;
    /// First come, first served.
    Fifo = "fifo" => fifo::Fifo;
    /// Virtual deadlines: windows with unequal periods (Zhang, West and Qi).
    Vds = "vds" => vds::Vds;
    /// Weighted fair queueing by the virtual time of the fluid system (GPS).
    Wfq = "wfq" => wfq::Wfq;
    /// Start-time fair queueing.
    Sfq = "sfq" => sfq::Sfq;
    /// Deficit round robin; a stream's weight is its quantum in bytes.
    Drr = "drr" => drr::Drr;
    /// Hierarchical weighted fair queueing: a tree of weights.
    Hwfq = "hwfq" => hwfq::Hwfq;
    /// Deadlines, then priorities, then fair shares, by each stream's class.
    Mixed = "mixed" => mixed::Mixed;
}

impl AnyRule {
    pub(crate) fn with_tree(tree: &Tree) -> Self {
        Self::Hwfq(hwfq::Hwfq::new(tree))
    }
}

impl Discipline {
    /// The discipline of this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|discipline| discipline.name() == name)
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
