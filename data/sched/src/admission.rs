//! Admission: whether a set of streams fits a link under a discipline, which stream is too much, by how much,
//! and which changes would make it fit.
//!
//! The input is contracts, frame sizes (or service times) and a link rate; the answer goes to `selvedge
//! check` and `selvedge trace admit`. Integers only: a time is scaled by the link's rate, so that neither it
//! nor a frame's service time is rounded, and shares are exact ([`Share`]).
//!
//! | policy | promise | test | source |
//! |---|---|---|---|
//! | `dwcs`, `dwcs98` | no violation | sum (1-x/y) C/T <= 1; holds for frames and periods of one slot, deadlines in phase | West and Poellabauer, RTSS 2000 |
//! | `vds` | no violation | sum m C/(k T) <= 1; holds for frames and periods of one slot | Zhang, West and Qi, RTSS 2004 |
//! | `edf` | no miss | demand in every interval, with the longest frame that may block | Jeffay, Stanat and Martel, RTSS 1991; George, Rivierre and Spuri, 1996 |
//! | `priority` | no miss | response times in the busy period, with blocking | Davis, Burns, Bril and Lukkien, 2007 |
//! | `fifo` | no miss | one frame of every stream at once | Cruz, 1991 |
//! | `wfq` | no miss | C/g + longest frame | Parekh and Gallager, 1993 |
//! | `sfq` | no miss | one frame of every stream | Goyal, Vin and Cheng, 1996 |
//! | `drr` | no miss | C/g + (3F - 2Q) | Stiliadis and Varma, 1998 |
//! | `hwfq` | no miss | that of `wfq` below the link itself; below inner nodes the load and the reserved rate only | Bennett and Zhang, SIGCOMM 1996, state why |
//! | `mixed` | no miss | `edf` and `priority` with the other classes' frames, `sfq` on what they leave | those of the three |
//!
//! The papers claim more for `dwcs` and `vds`: equal periods of any length, and for `vds` unequal ones.
//! Both have counterexamples near the whole link (`tests/guarantee.rs`), so such sets are `Possible`.
//!
//! Where a necessary condition holds but the proof's conditions do not, the verdict is [`Verdict::Possible`],
//! and names the condition that failed. Mok and Wang (RTSS 2001) show why it can't be more: with frames of
//! unequal service times DWCS can fail at arbitrarily low load, and the general problem is NP-hard in the
//! strong sense.

mod bounds;
mod demand;
mod fit;
mod found;
mod mixed;
mod response;
mod set;
mod share;
mod text;
mod verdict;

use alloc::format;
use alloc::string::String;

use selvedge_data_stream::{Contract, Window};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::replay::{Arrivals, Trace, TraceStream};
use crate::{Discipline, Tree};

pub use share::{Ratio, Share};
pub use text::{Clock, Explanation};

selvedge_units::named! {
    /// A discipline with a test.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Policy {
        /// Earliest deadline, then window.
        Dwcs = "dwcs",
        /// Window first.
        Dwcs98 = "dwcs98",
        /// Virtual deadlines.
        Vds = "vds",
        /// Earliest deadline first.
        Edf = "edf",
        /// Static priorities.
        Priority = "priority",
        /// First come, first served.
        Fifo = "fifo",
        /// Weighted fair queueing.
        Wfq = "wfq",
        /// Start-time fair queueing.
        Sfq = "sfq",
        /// Deficit round robin.
        Drr = "drr",
        /// A tree of weights.
        Hwfq = "hwfq",
        /// Deadlines before priorities before fair shares, by each stream's class.
        Mixed = "mixed",
    }
}

impl Policy {
    /// The test for a discipline, if there is one: not every discipline has a published bound.
    #[must_use]
    pub fn of(discipline: Discipline) -> Option<Self> {
        Self::from_name(discipline.name())
    }

    /// Whether the discipline looks at windows, so that it promises that no window is violated. The others
    /// know deadlines only: they promise that none is missed.
    #[must_use]
    pub const fn counts_windows(self) -> bool {
        matches!(self, Self::Dwcs | Self::Dwcs98 | Self::Vds)
    }
}

/// The cost of serving one frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// A time, whatever the link's rate. In unit slots: `Duration(1)`.
    Time(Duration),
    /// The largest frame, 1 byte to 2^48-1, on a link whose rate is known.
    Size(Bytes),
}

/// A stream that requests service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its contract; the deadline is `delay` after the arrival, or one period if it states none.
    pub contract: Contract,
    /// The cost of one of its frames.
    pub service: Service,
}

/// When frames arrive, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every queue always holds a frame; frame `n` (from 1) of a stream is due at `n T`.
    Backlogged,
    /// Frame `n` of a stream arrives at `(n-1) T`, for all streams from the same instant on.
    Periodic,
    /// A stream's frames arrive at least a period apart, at any instants.
    Sporadic,
    /// Nothing is known: frames may arrive closer than a period, or with less time than the contract states.
    /// Only the load can be computed.
    Any,
}

impl Pattern {
    /// Whether all streams surely start together, so that some worst cases never happen.
    const fn together(self) -> bool {
        matches!(self, Self::Backlogged | Self::Periodic)
    }
}

/// The question.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The discipline.
    pub policy: Policy,
    /// The link's rate, 1 to 2^48-1 bit/s; not needed if all services are times.
    pub rate: Option<Bitrate>,
    /// When frames arrive.
    pub pattern: Pattern,
    /// The bytes that a weight of 1 earns in a round of `drr`; the other disciplines ignore it.
    pub quantum: Bytes,
    /// The tree by which `hwfq` shares; `None`: all streams hang below the link itself. The other disciplines
    /// ignore it.
    pub tree: Option<&'a Tree>,
    /// The streams, in the order in which they are to join.
    pub loads: &'a [Load],
}

selvedge_units::named! {
    /// How certain the answer is.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Verdict {
        /// Proved: the promise holds as long as all streams keep their contracts.
        Guaranteed = "guaranteed",
        /// A necessary condition holds, but there is no proof that it suffices here.
        Possible = "possible",
        /// The promise breaks: always if the load exceeds the link, otherwise for the worst arrivals that the
        /// pattern allows.
        Refused = "refused",
    }
}

/// The condition that the proof needs and the set does not meet. Streams are given by their index in
/// [`Request::loads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unproved {
    /// This stream's period differs from the first's.
    UnequalPeriods(usize),
    /// The service time of this stream's frames differs from the first's.
    UnequalService(usize),
    /// This stream's period is not a whole number of service times.
    SlotsDoNotDivide(usize),
    /// This stream's period holds several service times. That is scheduling on this number of processors,
    /// where orders by deadline occasionally fail at loads near the whole link.
    SeveralSlots(usize),
    /// This stream's deadlines are not one period apart: it states a delay.
    OwnDelay(usize),
    /// This stream has a window for each kind of frame.
    WindowPerKind(usize),
    /// This stream has no window, so `vds` promises it nothing.
    NoWindow(usize),
    /// This stream may be served before its period begins; `dwcs98` then serves it too early.
    EarlyService(usize),
    /// Deadlines need not be in phase, or frames may be ready before their period.
    Arrivals,
    /// This stream's deadline is earlier than the bound that its weight gives it.
    Bound {
        /// The stream.
        stream: usize,
        /// The longest time from a frame's arrival to its end, according to the bound.
        bound: Duration,
    },
    /// This stream needs more than its weight's share of the link.
    Weight(usize),
    /// This stream's quantum is less than its largest frame, or frames are not measured in bytes.
    Quantum(usize),
    /// This stream hangs below an inner node, where `wfq`'s delay adds up over the levels in a way that no
    /// published bound covers.
    Levels(usize),
    /// The tree is shared by its flat approximation.
    Mapped,
    /// A sufficient test fails for this stream's deadline, and the exact test does not apply.
    WorstCase(usize),
    /// The exact test would exceed the allowed work, or numbers of 128 bits.
    Effort,
}

/// Why a stream can't join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// With this stream, the frames that must be served exceed the link.
    Overload,
    /// The load is within 2^-64 of the whole link, and its fraction is too long to decide.
    Undecided,
    /// With this stream, the frames of `stream` may end this much after their deadline.
    Late {
        /// The stream whose deadline breaks: the one that joins or an earlier one.
        stream: usize,
        /// By how much, rounded up.
        by: Duration,
    },
    /// This stream always has a frame and never waits, and leaves the joining stream nothing.
    Starved(usize),
}

/// Values that would fit in place of the requested ones, each by itself: with such a value the set is no
/// longer refused, and with one step less it still is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fit {
    /// The tightest window with the same `y` (10, if that is below 2).
    pub window: Option<Window>,
    /// The shortest period.
    pub period: Option<Duration>,
    /// The lowest rate for all streams of the set.
    pub rate: Option<Bitrate>,
}

/// The first stream in order that the set can't accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Its index in [`Request::loads`].
    pub stream: usize,
    /// Why.
    pub cause: Cause,
    /// By how much: of the link under [`Cause::Overload`], of that stream's deadline under
    /// [`Cause::Late`].
    pub excess: Share,
    /// Values that would fit.
    pub fit: Fit,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The discipline.
    pub policy: Policy,
    /// How certain the answer is.
    pub verdict: Verdict,
    /// The service that the set needs, as a share of the link. Frames that windows allow to be lost are left
    /// out where the discipline counts windows.
    pub load: Share,
    /// The condition of the proof that is not met, if the verdict is [`Verdict::Possible`].
    pub unproved: Option<Unproved>,
    /// The promise that breaks, if the verdict is [`Verdict::Refused`].
    pub breach: Option<Breach>,
}

/// Why a question can't be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// A frame has a size, but no rate is stated, or one of 0 or from 2^48 bit/s on.
    #[error("{}", rate_text(*.0))]
    Rate(Option<Bitrate>),
    /// A stream's service time or frame size is 0, or its size 2^48 or more.
    #[error("stream {0}: a frame must take some time, and less than 2^63 ns or 2^48 bytes")]
    Service(usize),
    /// A stream's period or delay is 0 or above 2^63 ns.
    #[error("stream {0}: period and delay must be 1 to 2^63 ns; state others")]
    Time(usize),
    /// A stream's window may lose more frames than it holds.
    #[error("stream {0}: its window loses more than it holds; x is at most y")]
    Window(usize),
    /// A stream's weight is 0.
    #[error("stream {0}: a weight of 0 is no share; state 1 or more")]
    Weight(usize),
    /// There are 2^32 streams or more.
    #[error("{0} streams; at most 2^32-1 are tested together")]
    Streams(usize),
}

fn rate_text(rate: Option<Bitrate>) -> String {
    match rate {
        None => "frames have sizes; state the link's rate".into(),
        Some(rate) => format!("a link of {rate} is out of range; state 1 to 2^48-1 bit/s"),
    }
}

/// Whether the streams fit. O(N) for utilisation tests of N streams. The tests of `edf` and `priority` are
/// pseudo-polynomial and stop after 2^22 steps ([`Unproved::Effort`]). The search for values that fit takes
/// up to 128 tests of a refused set, and 2^24 steps altogether. Nothing is allocated except, under `hwfq`, a
/// sum for each node of the tree.
///
/// # Errors
/// [`RequestError`] for numbers outside of the stated ranges.
pub fn check(ask: &Request<'_>) -> Result<Response, RequestError> {
    let set = set::Set::new(ask)?;
    Ok(fit::answer(&set))
}

/// The service that the streams need, as a share of the link. Every discipline needs it first; values that
/// would fit are not searched for. O(N).
///
/// # Errors
/// [`RequestError`] for numbers outside of the stated ranges.
pub fn load(ask: &Request<'_>) -> Result<Share, RequestError> {
    Ok(set::Set::new(ask)?.share_of_all())
}

/// When the frames of a trace arrive. In a request in unit slots, each frame takes one slot. O(A + N) for A
/// arrivals of N streams.
#[must_use]
pub fn pattern_of(trace: &Trace) -> Pattern {
    let usual = |stream: &TraceStream| {
        let first = Instant::ZERO + stream.contract.period;
        stream.first_deadline.is_none_or(|deadline| deadline == first)
    };
    if !trace.streams.iter().all(usual) {
        return Pattern::Any;
    }
    let Arrivals::Listed(listed) = &trace.arrivals else { return Pattern::Backlogged };
    // The number of arrivals of each stream, and the latest.
    let mut came = alloc::vec![(0_u64, Instant::ZERO); trace.streams.len()];
    let mut periodic = true;
    for arrival in listed {
        let period = trace.streams[arrival.stream.0 as usize].contract.period;
        let (count, latest) = &mut came[arrival.stream.0 as usize];
        if *count > 0 && arrival.at.since(*latest) < period {
            return Pattern::Any;
        }
        periodic &= count.checked_mul(period.0) == Some(arrival.at.0);
        (*count, *latest) = (*count + 1, arrival.at);
    }
    // Every frame that should arrive before the last slot must be there.
    periodic &= trace.streams.iter().zip(&came).all(|(stream, (count, _))| {
        *count >= trace.ticks.div_ceil(stream.contract.period.0.max(1))
    });
    if periodic { Pattern::Periodic } else { Pattern::Sporadic }
}
