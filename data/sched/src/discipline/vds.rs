//! `vds`: virtual deadlines (Zhang, West and Qi, "A Virtual Deadline Scheduler for
//! Window-Constrained Service Guarantees", RTSS 2004).
//!
//! A stream must send `m = y - x` frames in each window of `k = y` of its periods. Its periods follow one
//! another without a gap, the first from its first frame's ready time (deadline minus `T`). If a frame
//! becomes head within a period in which nothing was sent, and is ready only after the period began, the
//! period begins at that ready time. With `m'` frames still to send and `k'` periods left, the current one
//! included, which began at `s`, the virtual deadline is `s + k' T / m'`. The lowest goes first, of equal
//! ones the lower index. A stream that was served in this period, or has nothing left to send, waits; if it
//! is work-conserving, it takes the slots that the others leave, in the order of `D`. Each frame sent lowers
//! `m'`; at the window's end both are restored. Counters and `x'/y'` are kept as under every discipline. A
//! stream without a window has no frames that it must send; with windows by kind the strictest applies.
//!
//! No absolute guarantee. With one frame a slot, frames always queued and `sum(m / (k T)) <= 1`, a schedule
//! always exists. It was measured on 10,000 random sets each of unequal periods (to 24 slots, windows to 10).
//! All were kept at up to 90 % of the link, all but 2 at 90 to 99 %, all but 16 at exactly 100 %; `dwcs`
//! broke 7,384, 9,960 and 3,184 of the same. The paper's claim of full utilisation with equal periods has
//! exceptions as well (`tests/guarantee.rs` has one). With `T` slots in each period that is scheduling on `T`
//! processors, where no order by deadlines is optimal and proportional progress is needed (Baruah, Cohen,
//! Plaxton and Varvel, Algorithmica 1996). With frames of unequal length deciding feasibility is NP-hard (Mok
//! and Wang, RTSS 2001).
//!
//! Virtual deadlines saturate at the end of time, where ties go by index. A period's end and a decision cost
//! O(log N) each.

use alloc::vec::Vec;

use selvedge_data_stream::{Contract, Window, Windows};
use selvedge_units::{Bytes, Duration, Instant};

use super::{HeadState, Rule, significant};
use crate::tournament::{LAST_KEY, Tournament};

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Whether there was a first frame.
    known: bool,
    work_conserving: bool,
    /// The beginning of the current period, or of the first one to come.
    start: Instant,
    period: Duration,
    /// `m` and `k`.
    mandatory: u16,
    of: u16,
    /// `m'` and `k'`.
    mandatory_left: u16,
    left: u16,
    /// Whether the stream was served in the current period.
    served: bool,
}

/// Rank: 1 bit, whether no frame must be sent; time 64: the virtual deadline or `D`; its fraction 32.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vds {
    now: Instant,
    streams: Vec<Stream>,
    /// When a period of a stream that has a frame ends, or its first begins.
    ends: Tournament,
}

/// The order of two periods that end together does not matter.
const fn lower(a: u32, b: u32) -> bool {
    a < b
}

impl Stream {
    /// Ends the periods that are over.
    fn end_periods(&mut self, now: Instant) {
        if now < self.start + self.period {
            return;
        }
        let over = now.since(self.start).0 / self.period.0;
        self.start += self.period * over;
        self.served = false;
        let left = u64::from(self.left);
        if over < left {
            self.left -= over as u16;
        } else if self.of > 0 {
            self.left = self.of - ((over - left) % u64::from(self.of)) as u16;
            self.mandatory_left = self.mandatory;
        }
    }

    /// The end of the current period, or the beginning of the first.
    fn next(&self, now: Instant) -> Instant {
        if now < self.start { self.start } else { self.start + self.period }
    }

    fn is_owed(&self, now: Instant) -> bool {
        self.mandatory_left > 0 && !self.served && self.start <= now
    }

    /// `s + k' T / m'`: whole, and the fraction in units of `1 / (2^32 - 1)`. Two fractions with
    /// terms of 16 bits lie further apart than that, so none become equal by rounding.
    fn virtual_deadline(&self) -> (u64, u32) {
        let owed = u128::from(self.mandatory_left);
        let span = u128::from(self.left) * u128::from(self.period.0);
        let whole = u128::from(self.start.0) + span / owed;
        match u64::try_from(whole) {
            Ok(whole) => (whole, (span % owed * u128::from(u32::MAX) / owed) as u32),
            Err(_) => (u64::MAX, 0),
        }
    }

    fn set_window(&mut self, contract: &Contract) {
        let window = strictest(&contract.windows);
        let (owes, of) = (window.of - window.lose, window.of);
        if (owes, of) != (self.mandatory, self.of) {
            (self.mandatory, self.of, self.mandatory_left, self.left) = (owes, of, owes, of);
        }
    }
}

/// The window that requires the most frames; of equal ones the shortest.
fn strictest(windows: &Windows) -> Window {
    let of_one = |window: &Window| Window { lose: window.lose.min(window.of), of: window.of };
    let asks_more = |a: &Window, b: &Window| {
        let [mine, other] =
            [(a, b), (b, a)].map(|(w, v)| u32::from(w.of - w.lose) * u32::from(v.of));
        mine > other || (mine == other && a.of < b.of)
    };
    match windows {
        Windows::Whole(window) => of_one(window),
        Windows::PerKind(windows) => {
            let asking = windows.iter().map(of_one).filter(|window| window.is_some());
            asking.reduce(|a, b| if asks_more(&b, &a) { b } else { a }).unwrap_or(Window::NONE)
        }
    }
}

impl Rule for Vds {
    const OBSERVES: bool = true;
    const TIES_BY_INDEX: bool = true;

    fn grow(&mut self, streams: usize) {
        self.streams.resize(streams.max(self.streams.len()), Stream::default());
        self.ends.grow(streams, lower);
    }

    fn reset(&mut self, stream: u32, contract: &Contract) {
        self.ends.remove(stream, lower);
        let state = &mut self.streams[stream as usize];
        *state = Stream { work_conserving: contract.work_conserving, ..Stream::default() };
        state.set_window(contract);
    }

    fn windows(&mut self, stream: u32, contract: &Contract) {
        self.streams[stream as usize].set_window(contract);
    }

    fn observe_head(&mut self, head: &HeadState, _: Bytes, _: bool) {
        let state = &mut self.streams[head.stream as usize];
        let ready = head.deadline - head.period;
        state.period = head.period;
        if !state.known {
            (state.known, state.start) = (true, ready);
        }
        let now = self.now.max(head.arrival);
        state.end_periods(now);
        if !state.served && ready > state.start && ready < state.start + state.period {
            state.start = ready;
        }
        let next = state.next(self.now);
        self.ends.insert(head.stream, next.0.min(LAST_KEY), lower);
    }

    fn rank(&self, head: &HeadState) -> u128 {
        let state = &self.streams[head.stream as usize];
        if state.is_owed(self.now) {
            let (whole, fraction) = state.virtual_deadline();
            u128::from(whole) << 32 | u128::from(fraction)
        } else {
            1 << 96 | u128::from(head.deadline.0) << 32
        }
    }

    /// Streams with frames that they must send come first; then 62 bits of the deadline.
    fn key(&self, head: &HeadState, _: Instant) -> u64 {
        let rank = self.rank(head);
        ((rank >> 96) as u64) << 62 | significant(rank & ((1 << 96) - 1))
    }

    fn withholds(&self, stream: u32) -> bool {
        let state = &self.streams[stream as usize];
        !state.work_conserving && !state.is_owed(self.now)
    }

    fn observe_dequeued(&mut self, head: &HeadState) {
        let state = &mut self.streams[head.stream as usize];
        state.mandatory_left = state.mandatory_left.saturating_sub(1);
        state.served = true;
        self.ends.remove(head.stream, lower);
    }

    fn observe_dropped(&mut self, head: &HeadState) {
        self.ends.remove(head.stream, lower);
    }

    fn advance(&mut self, now: Instant) {
        self.now = self.now.max(now);
    }

    fn next_stale(&mut self) -> Option<u32> {
        let first = self.ends.winner(lower)?;
        if first.key > self.now.0 {
            return None;
        }
        let stream = first.leaf;
        let state = &mut self.streams[stream as usize];
        state.end_periods(self.now);
        let next = state.next(self.now);
        if next > self.now && next.0 < LAST_KEY {
            self.ends.insert(stream, next.0, lower);
        } else {
            // At the end of time there is no other period.
            self.ends.remove(stream, lower);
        }
        Some(stream)
    }

    fn next_event(&self, now: Instant) -> Option<Instant> {
        let mut next = None;
        self.ends.search(|entry, _| {
            let at = Instant(entry.key);
            if at > now && next.is_none_or(|next| at < next) {
                next = Some(at);
            }
            at <= now
        });
        next
    }
}
