//! Frame selection: which of the waiting frames not to send, so that the receiver can decode the
//! most frames that matter on time.
//!
//! A scheduler that only orders heads sends useless frames: pictures whose reference was lost, and
//! big intra pictures that finish after their deadline. Here all waiting frames must fit: if some
//! frame would be late when they are sent in the order of deadlines, frames are given up at once,
//! while the others can still profit. This is Moore and Hodgson's rule for the fewest late jobs,
//! generalised. The unit that is given up is a *cut*: a frame with all that depends on it (for an
//! intra picture its whole group, the part still to come included). The cut is chosen that loses
//! least worth for each byte it frees. Bytes beyond those needed, now and by the forecast of the
//! next seconds, count only in part, and the more the longer the cut lasts: a short overload costs
//! a B picture and a lasting one costs whole groups. Worth is a stream's weight, raised when its
//! window has nothing left to lose, and by its recent losses; streams of lower priority are cut
//! first.

use selvedge_data_sched::WindowSet;
use selvedge_data_stream::{Contract, DropReason, Kind, Late, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use super::queue::StreamQueue;

/// Worth of a frame of weight 1 that its stream may lose.
const TOLERATED: u64 = 8;
/// Worth of one whose loss would be a violation.
const VIOLATION: u64 = TOLERATED + TOLERATED / 2;

/// A frame with all that depends on it, as a candidate for being given up.
#[derive(Clone, Copy, Debug)]
struct DropSet {
    stream: usize,
    at: usize,
    priority: i32,
    worth: u128,
    /// Bytes freed that count.
    useful: u64,
}

impl DropSet {
    /// Whether giving up this one loses less: by priority, then by worth for each useful byte.
    fn costs_less_than(&self, other: &Self) -> bool {
        let loss = self.worth * u128::from(other.useful);
        let other_loss = other.worth * u128::from(self.useful);
        self.priority.cmp(&other.priority).then(loss.cmp(&other_loss)).is_lt()
    }
}

/// The totals of a frame and its dependents.
#[derive(Clone, Copy, Debug, Default)]
struct Dependents {
    frames: u64,
    worth: u64,
    bytes: u64,
    /// Those of the bytes that are due by the deadline in question.
    useful: u64,
    /// Frames among them that are still to come.
    rest: u64,
    /// How many frames the stream's window may still lose when this frame's turn comes.
    may_lose: u16,
}

impl Dependents {
    fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.worth += other.worth;
        self.bytes += other.bytes;
        self.useful += other.useful;
        self.rest += other.rest;
    }
}

/// A kept frame in the order of deadlines.
type Ordered = (Instant, u32, u32);

/// Scratch space of the selection, kept so that nothing is allocated once running.
#[derive(Clone, Debug, Default)]
pub(super) struct Selection {
    order: Vec<Ordered>,
    carried: Vec<Dependents>,
    rows: DependencyRows,
}

/// The capacity of the link that the selection may rely on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Capacity {
    pub(super) rate: Bitrate,
    /// When the link is free to begin with the first of the frames.
    pub(super) from: Instant,
    /// How long before its deadline a frame should be finished.
    pub(super) guard: Duration,
    /// By how much the offered rate exceeds the link's.
    pub(super) excess: Bitrate,
    /// By how many bytes it will in the next seconds: at most the backlog and a third more.
    pub(super) coming: Bytes,
}

impl Selection {
    /// Gives up frames until all that are left make their deadlines, or nothing is left that may be
    /// given up. `windows` returns where a stream stands in its windows. Returns the bytes freed.
    /// `O(f log f + c f)` for `f` frames waiting and `c` cuts made.
    pub(super) fn drop_until_feasible(
        &mut self,
        queues: &mut [Option<StreamQueue>],
        capacity: Capacity,
        windows: impl Fn(usize) -> WindowSet,
    ) -> Bytes {
        self.order.clear();
        for (stream, queue) in queues.iter().enumerate() {
            let frames = queue.iter().flat_map(|q| q.frames.iter().enumerate());
            let kept = frames.filter(|(_, f)| f.dropped.is_none());
            self.order.extend(kept.map(|(at, f)| (f.deadline, stream as u32, at as u32)));
        }
        self.order.sort_unstable();
        let mut freed = Bytes(0);
        while let Some((deadline, lacking)) = self.first_late(queues, capacity) {
            let Some(cut) = self.least_loss(queues, deadline, lacking, capacity, &windows) else {
                break;
            };
            freed += drop_set(queues, cut);
        }
        freed
    }

    /// The deadline that is missed first when all kept frames are sent in the order of their
    /// deadlines, and the bytes by which it is missed.
    fn first_late(
        &self,
        queues: &[Option<StreamQueue>],
        capacity: Capacity,
    ) -> Option<(Instant, Bytes)> {
        let mut queued = Bytes(0);
        for &(deadline, stream, at) in &self.order {
            let Some(queue) = &queues[stream as usize] else { continue };
            let frame = &queue.frames[at as usize];
            if frame.dropped.is_some() {
                continue;
            }
            queued += frame.left;
            let finished = capacity.from + queued / capacity.rate + capacity.guard;
            if finished > deadline && !queue.only_orders() {
                return Some((deadline, capacity.rate * finished.since(deadline) + Bytes(1)));
            }
        }
        None
    }

    /// The cut that loses least among those that free bytes before `deadline`.
    fn least_loss(
        &mut self,
        queues: &[Option<StreamQueue>],
        deadline: Instant,
        lacking: Bytes,
        capacity: Capacity,
        windows: &impl Fn(usize) -> WindowSet,
    ) -> Option<DropSet> {
        let mut best: Option<DropSet> = None;
        for (stream, queue) in queues.iter().enumerate() {
            let Some(queue) = queue.as_ref().filter(|q| q.contract.late == Late::Drop) else {
                continue;
            };
            self.carry(queue, deadline, windows(stream));
            for (at, &Dependents { worth, bytes, useful, rest, .. }) in
                self.carried.iter().enumerate()
            {
                if useful == 0 {
                    continue;
                }
                let (priority, worth) = (queue.contract.priority, queue.compared(worth));
                let lasting = capacity.excess * (queue.contract.period * rest);
                let most = lacking + capacity.coming + Bytes(lasting.0 / 3);
                let cut = DropSet { stream, at, priority, worth, useful: bytes.clamp(1, most.0) };
                if best.is_none_or(|best| cut.costs_less_than(&best)) {
                    best = Some(cut);
                }
            }
        }
        best
    }

    /// For each waiting frame of a stream, the totals of itself and all that depends on it. A
    /// forward pass finds the state of the window at each frame; a backward pass gathers, since a
    /// frame's dependents come after it.
    fn carry(&mut self, queue: &StreamQueue, deadline: Instant, mut ahead: WindowSet) {
        let Contract { weight, windows: stated, .. } = &queue.contract;
        let per_kind = matches!(stated, Windows::PerKind(_));
        self.carried.clear();
        for pending in &queue.frames {
            let kind = pending.frame.kind;
            if pending.dropped.is_some() {
                ahead.miss(kind);
                self.carried.push(Dependents::default());
                continue;
            }
            let now = ahead.current(kind);
            ahead.apply_rule_a(kind);
            let worth = if per_kind && now.lose > 0 {
                tolerated(*weight)
            } else {
                VIOLATION * u64::from(1.max(*weight))
            };
            let bytes = pending.left.0;
            let useful = if pending.deadline <= deadline { bytes } else { 0 };
            self.carried.push(Dependents {
                frames: 1,
                worth,
                bytes,
                useful,
                rest: 0,
                may_lose: now.lose,
            });
        }
        self.add_rest_of_group(queue);
        self.rows.gather(queue, &mut self.carried);
        // A window for the whole stream forgives as many as it may still lose, or loses over time.
        if let Windows::Whole(window) = stated {
            for cut in self.carried.iter_mut().filter(|cut| cut.frames > 0) {
                let in_time = cut.frames * u64::from(window.lose) / u64::from(window.of.max(1));
                let forgiven = in_time.max(u64::from(cut.may_lose)).min(cut.frames);
                let saved = (cut.worth / cut.frames).saturating_sub(tolerated(*weight));
                cut.worth -= forgiven * saved;
            }
        }
    }

    /// The part of the open group that is still to come depends on its last reference picture.
    fn add_rest_of_group(&mut self, queue: &StreamQueue) {
        let Some(at) = queue.frames.iter().rposition(|f| f.frame.referenced) else { return };
        let last = &mut self.carried[at];
        if queue.frames[at].group == queue.group.id && last.frames > 0 {
            let (frames, bytes) = queue.group.remaining();
            last.worth += frames * last.worth;
            last.frames += frames;
            last.bytes += bytes;
            last.rest += frames;
        }
    }
}

/// Which waiting frames of a stream depend on which, each set a row of bits. A frame may be needed
/// in many ways and is lost once: sums along references would count it more often.
#[derive(Clone, Debug, Default)]
struct DependencyRows {
    bits: Vec<u64>,
    own: Vec<Dependents>,
}

impl DependencyRows {
    /// Adds to the totals of each frame those of all its dependents. A frame's dependents come
    /// after it, so that one backward pass covers them all: `O(f r f / 64)` for `r` references
    /// each.
    fn gather(&mut self, queue: &StreamQueue, carried: &mut [Dependents]) {
        let words = carried.len().div_ceil(64);
        self.bits.clear();
        self.bits.resize(carried.len() * words, 0);
        self.own.clear();
        self.own.extend_from_slice(carried);
        for at in (0..carried.len()).rev() {
            let pending = &queue.frames[at];
            if pending.dropped.is_some() {
                continue;
            }
            let row = at * words..(at + 1) * words;
            for (word, &bits) in self.bits[row.clone()].iter().enumerate() {
                let mut rest = bits;
                while rest != 0 {
                    carried[at].add(self.own[word * 64 + rest.trailing_zeros() as usize]);
                    rest &= rest - 1;
                }
            }
            self.bits[row.start + at / 64] |= 1 << (at % 64);
            for needed in pending.frame.refs.of(pending.frame.seq) {
                let Some(to) = queue.place_of(at, needed) else { continue };
                let (before, own) = self.bits.split_at_mut(row.start);
                let needed = &mut before[to * words..(to + 1) * words];
                for (into, from) in needed.iter_mut().zip(&own[..words]) {
                    *into |= from;
                }
            }
        }
    }
}

/// The worth of a frame that its stream may lose.
fn tolerated(weight: u32) -> u64 {
    TOLERATED * u64::from(weight.max(1))
}

/// Marks the frame at the root of a cut, and all that depends on it.
fn drop_set(queues: &mut [Option<StreamQueue>], cut: DropSet) -> Bytes {
    let Some(queue) = queues[cut.stream].as_mut() else { return Bytes(0) };
    let root = queue.frames[cut.at].frame.kind;
    let (of_root, of_rest) = match root {
        Kind::Intra => (DropReason::GroupSkipped, DropReason::GroupSkipped),
        _ => (DropReason::Sacrificed, DropReason::ReferenceLost),
    };
    let freed = drop_one(queue, cut.at, of_root);
    let root = queue.frames[cut.at].frame.seq;
    freed + drop_dependents(queue, cut.at + 1, root, of_rest)
}

/// Marks the frames from this place on that depend on `root`, which is lost; returns the bytes
/// freed.
pub(super) fn drop_dependents(
    queue: &mut StreamQueue,
    from: usize,
    root: u32,
    reason: DropReason,
) -> Bytes {
    let mut freed = Bytes(0);
    for at in from..queue.frames.len() {
        if queue.frames[at].dropped.is_none() && queue.depends(at, root) {
            freed += drop_one(queue, at, reason);
        }
    }
    freed
}

/// Marks one frame as not to be sent and lost to others; returns the bytes freed, none if it was
/// marked before.
pub(super) fn drop_one(queue: &mut StreamQueue, at: usize, reason: DropReason) -> Bytes {
    let pending = &mut queue.frames[at];
    if pending.dropped.is_some() {
        return Bytes(0);
    }
    pending.dropped = Some(reason);
    let (seq, freed) = (pending.frame.seq, pending.left);
    queue.mark_lost(seq);
    freed
}
