//! The disciplines: each is a key, made when a frame becomes head or its standing changes, so that a decision
//! only compares integers.
//!
//! One file each, one line in the table below. A discipline defines only its own rank; the common rules
//! (expiry, rules a and b, earlier arrival first, then the lower index) are elsewhere.

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

/// The state that a discipline may read when it ranks a stream's head frame.
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

/// A discipline. The state that it keeps between decisions (a virtual time, a tag for each stream) lives in
/// `self`.
pub(crate) trait Rule {
    /// Whether, of two heads, the one with the earlier deadline always goes first. Then the next to expire is
    /// the next to go, and no other order need be kept.
    const DEADLINE_FIRST: bool = false;

    /// Whether the methods that notify the rule, from `observe_head` on, do anything: they are not called
    /// otherwise.
    const OBSERVES: bool = false;
    /// Whether equal ranks go by index alone.
    const TIES_BY_INDEX: bool = false;

    /// All values that the discipline compares, at most 112 bits; the lower rank goes first. Equal ranks go
    /// by arrival, then by index. The rank stays the same until the standing changes or another method is
    /// called for this stream.
    fn rank(&self, head: &HeadState) -> u128;

    /// Rank and arrival as far as 64 bits hold them: of two heads, the one that goes first never has the
    /// higher key. Where keys are equal, ranks and arrivals decide, which takes longer. At most [`LAST_KEY`].
    /// Times may be counted from `epoch`, which is a little before the present and at most [`EPOCH_MAX`].
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

    /// A head may go: when it becomes head or, if its stream is not work-conserving, when it is ready. Called
    /// before it is ranked. `fresh`: it was not queued when the last frame went, so its stream's queue was
    /// empty in between.
    fn observe_head(&mut self, _head: &HeadState, _size: Bytes, _fresh: bool) {}

    /// The head is sent.
    fn observe_dequeued(&mut self, _head: &HeadState) {}

    /// The head is lost.
    fn observe_dropped(&mut self, _head: &HeadState) {}

    /// Whether a stream's head may not go, although it is ready.
    fn withholds(&self, _stream: u32) -> bool {
        false
    }

    /// Fills `block` with the streams in the order in which their heads would be sent if no other arrived;
    /// returns their number. `None`: the order of ranks applies.
    fn block(&mut self, _block: &mut [StreamIndex]) -> Option<usize> {
        None
    }

    /// Advances the time to `now`; time does not go back.
    fn advance(&mut self, _now: Instant) {}

    /// A stream whose rank, or permission to go, has changed other than by a call for its own head. The
    /// scheduler calls this after each method above, until it returns `None`.
    fn next_stale(&mut self) -> Option<u32> {
        None
    }

    /// The next instant after `now` at which there will be such a stream.
    fn next_event(&self, _now: Instant) -> Option<Instant> {
        None
    }
}

/// A rank of at most 112 bits, reduced to its 57 most significant ones, in 62 bits.
#[inline(always)]
fn significant(rank: u128) -> u64 {
    let excess = (128 - rank.leading_zeros()).saturating_sub(57);
    (u64::from(excess) << 56) + (rank >> excess) as u64
}

/// The last instant from which keys count the time.
pub(crate) const EPOCH_MAX: Instant = Instant(u64::MAX - (1 << 45));

/// An instant in 64 bits of a key; the last instants come out equal.
#[inline(always)]
fn fine(time: Instant) -> u64 {
    time.0.min(LAST_KEY)
}

/// An instant as far as 31 bits hold it: exact below 2^26, then to 26 significant bits.
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

            /// Whether the discipline must be notified of heads, services and losses, and of time.
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

        /// Any one of the disciplines, without a call through a pointer. The variant stands in a byte of its
        /// own, so that it need not be computed from a rule's fields.
        #[derive(Clone, Debug)]
        #[repr(u8)]
        pub(crate) enum AnyRule {
            $($name($rule),)*
        }

        /// Uses the rule in an [`AnyRule`]; the expression is compiled for each of them.
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
