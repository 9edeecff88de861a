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

use selvedge_data_stream::{Contract, Window};
use selvedge_units::{Bytes, Duration, Instant};

use crate::record::StreamIndex;
use crate::tournament::LAST_KEY;
pub use tree::{Tree, TreeError, TreeNode};

/// What a discipline may look at when it ranks a stream's head frame.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each discipline looks at some of it")]
pub(crate) struct HeadState {
    pub(crate) stream: u32,
    pub(crate) deadline: Instant,
    pub(crate) arrival: Instant,
    pub(crate) period: Duration,
    /// The current window `x'/y'` that the frame is counted in, `x' <= y'`.
    pub(crate) window: Window,
    pub(crate) priority: i32,
    pub(crate) weight: u32,
}

/// A discipline. Whatever it must remember between decisions (a virtual time, a tag for each
/// stream) lives in `self`.
pub(crate) trait Rule {
    /// Whether of two heads the one with the earlier deadline always goes first: then the next
    /// to expire is the next to go, and no other order need be kept.
    const DEADLINE_FIRST: bool = false;

    /// Whether the methods that tell the rule something do anything, from `head` on: they are not
    /// called otherwise.
    const OBSERVES: bool = false;
    /// Whether equal ranks go by index alone.
    const TIES_BY_INDEX: bool = false;

    /// All that the discipline compares, at most 112 bits; the lower goes first. Equal ranks go
    /// by arrival, then by index. The same as long as neither the standing changes nor another
    /// method is called for this stream.
    fn rank(&self, head: &HeadState) -> u128;

    /// Rank and arrival as far as 64 bits can tell them: of two heads, the one that goes first
    /// never has the higher key. Where keys are equal, ranks and arrivals decide, which takes
    /// longer. At most [`LAST_KEY`]. Times may be counted from `epoch`, not far behind the
    /// present and at most [`EPOCH_MAX`].
    #[inline]
    fn key(&self, head: &HeadState, _epoch: Instant) -> u64 {
        significant(self.rank(head))
    }

    /// Makes room for streams with indexes below `streams`; the only method that allocates.
    fn grow(&mut self, _streams: usize) {}

    /// A stream begins anew at an index.
    fn reset(&mut self, _stream: u32, _contract: &Contract) {}

    /// A stream's windows have changed.
    fn windows(&mut self, _stream: u32, _contract: &Contract) {}

    /// A head may go: when it comes up or, if its stream is not work-conserving, when it is ready.
    /// Called before it is ranked. `fresh`: it was not there when the last frame went, so its
    /// stream's queue was empty in between.
    fn observe_head(&mut self, _head: &HeadState, _size: Bytes, _fresh: bool) {}

    /// The head goes out.
    fn observe_dequeued(&mut self, _head: &HeadState) {}

    /// The head is lost.
    fn observe_dropped(&mut self, _head: &HeadState) {}

    /// Whether a stream's head may not go, although it is ready.
    fn withholds(&self, _stream: u32) -> bool {
        false
    }

    /// Fills `block` with the streams in the order in which their heads would be sent if no other
    /// came; how many there are. `None`: that is the order of their ranks.
    fn block(&mut self, _block: &mut [StreamIndex]) -> Option<usize> {
        None
    }

    /// It is `now`; time does not go back.
    fn advance(&mut self, _now: Instant) {}

    /// A stream whose rank, or leave to go, has changed otherwise than by a call for its own head.
    /// Asked after each call above, until there is none.
    fn next_stale(&mut self) -> Option<u32> {
        None
    }

    /// The next moment after `now` at which there will be such a stream.
    fn next_event(&self, _now: Instant) -> Option<Instant> {
        None
    }
}

/// A rank of at most 112 bits as far as its 57 most significant ones tell it, in 62 bits.
#[inline(always)]
fn significant(rank: u128) -> u64 {
    let excess = (128 - rank.leading_zeros()).saturating_sub(57);
    (u64::from(excess) << 56) + (rank >> excess) as u64
}

/// The last moment from which keys count the time.
pub(crate) const EPOCH_MAX: Instant = Instant(u64::MAX - (1 << 45));

/// A moment in 64 bits of a key; the last moments come out equal.
#[inline(always)]
fn fine(time: Instant) -> u64 {
    time.0.min(LAST_KEY)
}

/// A moment as far as 31 bits can tell it: exact below 2^26, then to 26 significant bits.
#[inline(always)]
fn coarse(time: Instant) -> u64 {
    let excess = (64 - time.0.leading_zeros()).saturating_sub(26);
    (u64::from(excess) << 25) + (time.0 >> excess)
}

macro_rules! disciplines {
    (($d:tt) $($(#[$meta:meta])* $name:ident = $text:literal => $rule:ty;)*) => {
        /// The order in which streams are served.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Discipline {
            $($(#[$meta])* $name,)*
        }

        impl Discipline {
            /// All of them.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];
            /// Their names, in the same order.
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($text),*];

            /// The name in node files, traces and tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            pub(crate) const fn goes_by_deadline(self) -> bool {
                match self {
                    $(Self::$name => <$rule>::DEADLINE_FIRST,)*
                }
            }

            /// Whether the discipline wants to hear what becomes of heads, and of time.
            pub(crate) const fn is_observer(self) -> bool {
                match self {
                    $(Self::$name => <$rule>::OBSERVES,)*
                }
            }

            pub(crate) fn rule(self) -> AnyRule {
                match self {
                    $(Self::$name => AnyRule::$name(<$rule>::default()),)*
                }
            }
        }

        /// Any one of the disciplines, without a call through a pointer. Which one stands in a
        /// byte of its own, that need not be reckoned out of a rule's fields.
        #[derive(Clone, Debug)]
        #[repr(u8)]
        pub(crate) enum AnyRule {
            $($name($rule),)*
        }

        /// Does something with the rule that is in an [`AnyRule`], whichever it is; compiled for
        /// each of them.
        macro_rules! with_rule {
            ($d any:expr, $d rule:ident => $d body:expr) => {
                match $d any {
                    $(crate::discipline::AnyRule::$name($d rule) => $d body,)*
                }
            };
        }
        pub(crate) use with_rule;
    };
}

disciplines! { ($)
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
