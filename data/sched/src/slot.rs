//! One stream's state in the scheduler: the fields that a decision reads and writes in one cache line, the
//! rest beside it.
//!
//! ShareStreams' register base block (section 4.3) in software.

use selvedge_data_stream::{Contract, Counters, Kind, Late, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant};

use crate::record::Head;
use crate::window::{Progress, WindowSet};

/// The index of a counter in a slot.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Sent,
    Late,
    Missed,
    /// Kept only where it may differ from `Missed`: for a stream that keeps late frames.
    Dropped,
    Violations,
}

const COUNTS: usize = 5;

/// Properties of a stream and its head, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The stream exists.
    pub(crate) const PRESENT: Self = Self(1);
    /// It has a head frame.
    pub(crate) const HEAD: Self = Self(2);
    /// The head has missed a deadline.
    pub(crate) const MISSED: Self = Self(4);
    /// Late frames are dropped.
    pub(crate) const DROPS_LATE: Self = Self(8);
    pub(crate) const WORK_CONSERVING: Self = Self(16);
    /// Its windows are per kind; the slot holds the head's, `Cold` all of them.
    pub(crate) const PER_KIND: Self = Self(32);
    /// A new head must look into `Cold`: the contract has a delay, or has changed.
    pub(crate) const SLOW_HEAD: Self = Self(64);

    const NONE: Self = Self(0);

    #[inline]
    pub(crate) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// A stream with a head that has missed nothing, work-conserving, with one window for all kinds, and a
    /// contract that neither has a delay nor has changed.
    #[inline(always)]
    pub(crate) const fn is_ordinary(self) -> bool {
        const LOOKED_AT: u8 = !Flags::DROPS_LATE.0;
        const EXPECTED: u8 = Flags::PRESENT.0 | Flags::HEAD.0 | Flags::WORK_CONSERVING.0;
        self.0 & LOOKED_AT == EXPECTED
    }

    #[inline]
    pub(crate) const fn with(self, flag: Self) -> Self {
        Self(self.0 | flag.0)
    }

    #[inline]
    pub(crate) const fn without(self, flag: Self) -> Self {
        Self(self.0 & !flag.0)
    }

    #[inline]
    pub(crate) const fn set(&mut self, flag: Self, on: bool) {
        self.0 = if on { self.0 | flag.0 } else { self.0 & !flag.0 };
    }
}

/// The part of a stream that decisions use: one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Slot {
    /// The deadline of the head; if there is none, of the last head. Zero before the first, which does no
    /// harm because the rule takes the later of it and the arrival.
    pub(crate) deadline: Instant,
    pub(crate) arrival: Instant,
    /// The value for the head, or for the next one.
    pub(crate) period: Duration,
    /// The window of the head's kind, if the windows are per kind.
    pub(crate) window: Progress,
    /// The low halves of the counters.
    counts: [u32; COUNTS],
    pub(crate) priority: i32,
    pub(crate) weight: u32,
    pub(crate) kind: Kind,
    pub(crate) flags: Flags,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// The part of a stream that decisions do not use.
#[derive(Clone, Debug)]
pub(crate) struct Cold {
    /// The contract as it holds for the next frame.
    pub(crate) contract: Contract,
    /// The current windows, unless there is one for all kinds; that is in the slot.
    windows: WindowSet,
    /// Whether the next frame must still take over the contract's windows.
    windows_changed: bool,
    /// The value for a head that may not go yet, for a discipline that is notified of it when it may.
    pub(crate) size: Bytes,
    /// The high halves of the counters.
    counts: [u32; COUNTS],
}

impl Slot {
    /// No stream.
    pub(crate) const VACANT: Self = Self {
        deadline: Instant::ZERO,
        arrival: Instant::ZERO,
        period: Duration(1),
        window: Progress::new(Window::NONE),
        counts: [0; COUNTS],
        priority: 0,
        weight: 1,
        kind: Kind::Data,
        flags: Flags::NONE,
    };

    /// "Its ready time is its deadline minus T."
    #[inline]
    pub(crate) fn ready(&self) -> Instant {
        self.deadline - self.period
    }

    /// The windows' rules run on the slot's own window. Where there is one for each kind, it is the head's,
    /// and this writes it back.
    #[inline]
    pub(crate) fn write_back(&self, cold: &mut [Cold], s: usize) {
        if self.flags.has(Flags::PER_KIND) {
            cold[s].windows.put(self.kind, self.window);
        }
    }

    /// Moves a kept frame's deadline past `now`; returns how many deadlines were missed. The same as `while
    /// deadline <= now { deadline += period }`, in constant time.
    #[inline]
    pub(crate) fn advance_past(&mut self, now: Instant) -> u64 {
        self.flags.set(Flags::MISSED, true);
        if now < self.deadline + self.period {
            self.deadline += self.period;
            return 1;
        }
        let misses = now.since(self.deadline).0 / self.period.0 + 1;
        self.deadline += self.period * misses;
        misses
    }

    /// Makes a frame the head; returns its deadline.
    #[inline(always)]
    pub(crate) fn set_head(&mut self, head: &Head, delayed: Option<Instant>) -> Instant {
        self.flags = self.flags.with(Flags::HEAD).without(Flags::MISSED);
        self.load_head(head, delayed)
    }

    /// Makes a frame the head directly after another, for a stream without special properties.
    #[inline(always)]
    pub(crate) fn set_next_head(&mut self, head: &Head) {
        debug_assert!(self.flags.is_ordinary(), "something is to be looked at");
        self.load_head(head, None);
    }

    #[inline(always)]
    fn load_head(&mut self, head: &Head, delayed: Option<Instant>) -> Instant {
        let by_contract = self.deadline.max(head.arrival) + self.period;
        self.deadline = head.deadline.or(delayed).unwrap_or(by_contract);
        self.arrival = head.arrival;
        self.kind = head.kind;
        self.deadline
    }

    /// Whether [`dequeue_or_expire`](Self::dequeue_or_expire) can settle its head: the stream has no special
    /// properties and drops late frames, and no counter is about to carry.
    #[inline(always)]
    pub(crate) const fn can_dequeue_or_expire(&self) -> bool {
        let [sent, _, missed, _, violations] = self.counts;
        // If one of them is full, this is; where it is set although none is, the slow path is right too.
        let full = sent | missed | violations;
        self.flags.is_ordinary() && self.flags.has(Flags::DROPS_LATE) && full != u32::MAX
    }

    /// Sends the head, or drops it if its deadline has come: the rules and the counters for either, without a
    /// branch between them. True if that is a violation.
    #[inline(always)]
    pub(crate) fn dequeue_or_expire(&mut self, expired: bool) -> bool {
        let violation = self.window.apply_rules(expired);
        let lost = u32::from(expired);
        let [sent, _, missed, _, violations] = &mut self.counts;
        *sent = sent.wrapping_add(1 - lost);
        *missed = missed.wrapping_add(lost);
        *violations = violations.wrapping_add(u32::from(violation));
        violation
    }

    /// Whether `frames` more frames sent would overflow the low half of their counter.
    #[inline(always)]
    pub(crate) const fn counter_near_carry(&self, frames: u32) -> bool {
        self.counts[Count::Sent as usize] > u32::MAX - frames
    }

    /// Counts frames sent, where the low half of the counter has room.
    #[inline(always)]
    pub(crate) const fn count_sent(&mut self, frames: u32) {
        self.counts[Count::Sent as usize] = self.counts[Count::Sent as usize].wrapping_add(frames);
    }

    /// Adds to a counter.
    #[inline]
    pub(crate) fn count(&mut self, cold: &mut [Cold], s: usize, which: Count, add: u64) {
        let low = &mut self.counts[which as usize];
        match u32::try_from(add).ok().and_then(|add| low.checked_add(add)) {
            Some(sum) => *low = sum,
            None => carry(low, &mut cold[s].counts[which as usize], add),
        }
    }

    /// The counters as they are now.
    pub(crate) fn counters(&self, cold: &Cold) -> Counters {
        let whole = |which: Count| {
            u64::from(cold.counts[which as usize]) << 32 | u64::from(self.counts[which as usize])
        };
        let drops = self.flags.has(Flags::DROPS_LATE);
        Counters {
            sent: whole(Count::Sent),
            late: whole(Count::Late),
            missed: whole(Count::Missed),
            dropped: whole(if drops { Count::Missed } else { Count::Dropped }),
            violations: whole(Count::Violations),
        }
    }

    /// All its windows in their current state.
    pub(crate) fn windows(&self, cold: &Cold) -> WindowSet {
        let mut windows = cold.windows.clone();
        if !windows.per_kind() {
            windows.put(self.kind, self.window);
        }
        windows
    }
}

/// Adds across both halves of a counter, which saturates.
#[cold]
#[inline(never)]
fn carry(low: &mut u32, high: &mut u32, add: u64) {
    let whole = (u64::from(*high) << 32 | u64::from(*low)).saturating_add(add);
    *low = whole as u32;
    *high = (whole >> 32) as u32;
}

impl Cold {
    /// Both parts of a new stream.
    pub(crate) fn begin(contract: &Contract) -> (Slot, Self) {
        let contract = Contract {
            period: at_least_one(contract.period),
            windows: within_bounds(&contract.windows),
            ..*contract
        };
        let mut slot = Slot::VACANT;
        slot.flags.set(Flags::PRESENT, true);
        slot.flags.set(Flags::DROPS_LATE, contract.late == Late::Drop);
        slot.flags.set(Flags::WORK_CONSERVING, contract.work_conserving);
        let windows = WindowSet::new(&contract.windows);
        let (size, counts) = (Bytes(0), [0; COUNTS]);
        let mut cold = Self { contract, windows, windows_changed: false, size, counts };
        cold.load(&mut slot);
        (slot, cold)
    }

    /// Writes the contract's values into a slot without a head, for the next head.
    fn load(&mut self, slot: &mut Slot) {
        slot.period = self.contract.period;
        slot.priority = self.contract.priority;
        slot.weight = self.contract.weight;
        slot.window = *self.windows.of(slot.kind);
        slot.flags.set(Flags::PER_KIND, self.windows.per_kind());
        slot.flags.set(Flags::SLOW_HEAD, self.windows.per_kind() || self.contract.delay.is_some());
    }

    /// Notes that the contract has changed, from the next frame on.
    pub(crate) fn mark_changed(&mut self, slot: &mut Slot, windows: bool) {
        let wait = slot.flags.has(Flags::HEAD) || (self.windows_changed && !windows);
        self.windows_changed |= windows;
        if wait {
            slot.flags.set(Flags::SLOW_HEAD, true);
        } else {
            self.apply_changes(slot);
        }
    }

    /// Applies the changes to a slot without a head.
    fn apply_changes(&mut self, slot: &mut Slot) {
        if core::mem::take(&mut self.windows_changed) {
            self.windows = slot.windows(self);
            self.windows.change(&self.contract.windows);
        } else if !self.windows.per_kind() {
            self.windows.put(slot.kind, slot.window);
        }
        self.load(slot);
    }

    /// For a new head, the slow path: applies the changes, and loads the window of its kind. Returns the
    /// deadline by the contract's delay, if it has one.
    #[cold]
    #[inline(never)]
    pub(crate) fn load_contract(&mut self, slot: &mut Slot, head: &Head) -> Option<Instant> {
        slot.kind = head.kind;
        if slot.flags.has(Flags::PER_KIND) {
            slot.window = *self.windows.of(head.kind);
        }
        self.apply_changes(slot);
        self.contract.delay.map(|delay| head.arrival + delay)
    }
}

/// A period of zero would let a kept frame expire for ever.
pub(crate) fn at_least_one(period: Duration) -> Duration {
    period.max(Duration(1))
}

/// Windows with `x <= y`, which the rules preserve and fractions require.
pub(crate) fn within_bounds(windows: &Windows) -> Windows {
    let bound = |w: Window| Window { lose: w.lose.min(w.of), of: w.of };
    match windows {
        Windows::Whole(window) => Windows::Whole(bound(*window)),
        Windows::PerKind(windows) => Windows::PerKind(windows.map(bound)),
    }
}
