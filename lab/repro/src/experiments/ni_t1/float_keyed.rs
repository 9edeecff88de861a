//! `FloatKeyed`: a scheduler with floating-point windows, for comparison in `ni-t1` only.
//!
//! It decides as the paper's first version did: heads are compared one after another, and each
//! comparison divides `x'` by `y'`. Rules and expiry are those of the product, in plain words.

use std::collections::VecDeque;

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::{Arrivals, Trace};
use selvedge_data_stream::{Contract, Kind, Late, Window};

/// Single or double precision.
pub(super) trait Ratio: Copy + PartialOrd {
    /// `x / y`; nothing of nothing is zero.
    fn of(window: Window) -> Self;
}

impl Ratio for f64 {
    fn of(window: Window) -> Self {
        if window.lose == 0 { 0.0 } else { Self::from(window.lose) / Self::from(window.of) }
    }
}

impl Ratio for f32 {
    fn of(window: Window) -> Self {
        if window.lose == 0 { 0.0 } else { Self::from(window.lose) / Self::from(window.of) }
    }
}

#[derive(Clone, Debug)]
struct Slot {
    period: u64,
    declared: Window,
    window: Window,
    late: Late,
    work_conserving: bool,
    /// Arrival and deadline of the head.
    head: Option<(u64, u64)>,
    last_deadline: u64,
    sent: u64,
    missed: u64,
}

impl Slot {
    fn ready(&self, now: u64) -> bool {
        let ready = |(_, deadline): (u64, u64)| deadline.saturating_sub(self.period) <= now;
        self.head.is_some_and(|head| self.work_conserving || ready(head))
    }

    fn restore(&mut self) {
        if self.window == Window::NONE {
            self.window = self.declared;
        }
    }

    fn win(&mut self) {
        let Window { lose, of } = &mut self.window;
        if *of > *lose {
            *of -= 1;
        } else if *lose > 0 {
            *of -= 1;
            *lose -= 1;
        }
        self.restore();
    }

    fn miss(&mut self) {
        self.missed += 1;
        let Window { lose, of } = &mut self.window;
        if *lose > 0 {
            *of -= 1;
            *lose -= 1;
            self.restore();
        } else if self.declared.is_some() {
            *of = of.saturating_add(1);
        }
    }
}

/// A frame that was sent: slot, stream, deadline.
pub(super) type Sent = (u64, usize, u64);

#[derive(Clone, Debug)]
pub(super) struct FloatKeyed<R> {
    slots: Vec<Slot>,
    window_first: bool,
    ratio: std::marker::PhantomData<R>,
}

impl<R: Ratio> FloatKeyed<R> {
    /// In the order of `dwcs98`, or else in that of `dwcs`.
    pub(super) fn new(discipline: Discipline) -> Self {
        let window_first = discipline == Discipline::Dwcs98;
        Self { slots: Vec::new(), window_first, ratio: std::marker::PhantomData }
    }

    pub(super) fn add(&mut self, contract: &Contract) {
        let window = contract.windows.of(Kind::Data);
        self.slots.push(Slot {
            period: contract.period.0,
            declared: window,
            window,
            late: contract.late,
            work_conserving: contract.work_conserving,
            head: None,
            last_deadline: 0,
            sent: 0,
            missed: 0,
        });
    }

    pub(super) fn enqueue_head(&mut self, s: usize, arrival: u64, deadline: Option<u64>) {
        let slot = &mut self.slots[s];
        let by_rule = slot.last_deadline.max(arrival).saturating_add(slot.period);
        slot.last_deadline = deadline.unwrap_or(by_rule);
        slot.head = Some((arrival, slot.last_deadline));
    }

    /// The head that goes first.
    pub(super) fn choose(&self, now: u64) -> Option<usize> {
        let mut best: Option<(usize, &Slot, (u64, u64))> = None;
        for (s, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.ready(now)) {
            let Some(head) = slot.head else { continue };
            if best.is_none_or(|(_, other, first)| self.before((slot, head), (other, first))) {
                best = Some((s, slot, head));
            }
        }
        best.map(|(s, ..)| s)
    }

    /// Whether the first goes before the second, whose index is lower.
    fn before(&self, (a, head): (&Slot, (u64, u64)), (b, other): (&Slot, (u64, u64))) -> bool {
        let ((arrival, deadline), (arrival_b, deadline_b)) = (head, other);
        if !self.window_first && deadline != deadline_b {
            return deadline < deadline_b;
        }
        let (ratio, ratio_b) = (R::of(a.window), R::of(b.window));
        if ratio != ratio_b {
            return ratio < ratio_b;
        }
        let both_zero = a.window.lose == 0 && b.window.lose == 0;
        if both_zero && a.window.of != b.window.of {
            return a.window.of > b.window.of;
        }
        if deadline != deadline_b && (!both_zero || a.window.of == 0) {
            return deadline < deadline_b;
        }
        (a.window.lose, arrival) < (b.window.lose, arrival_b)
    }

    /// Rule a, and the frame is gone; its deadline.
    pub(super) fn dequeue(&mut self, s: usize) -> u64 {
        let slot = &mut self.slots[s];
        slot.win();
        slot.sent += 1;
        slot.head.take().map_or(0, |(_, deadline)| deadline)
    }

    /// Rule b for a head whose deadline has come; true if the frame was dropped.
    fn expire(&mut self, s: usize, now: u64) -> Option<bool> {
        let slot = &mut self.slots[s];
        let (arrival, deadline) = slot.head.filter(|&(_, d)| d <= now && d != u64::MAX)?;
        slot.miss();
        if slot.late == Late::Drop {
            slot.head = None;
            return Some(true);
        }
        slot.last_deadline = deadline.saturating_add(slot.period);
        slot.head = Some((arrival, slot.last_deadline));
        Some(false)
    }

    /// All that a trace sends.
    pub(super) fn replay(trace: &Trace) -> Vec<Sent> {
        let mut sched = Self::new(trace.discipline);
        let mut queues: Vec<VecDeque<u64>> = Vec::new();
        let mut first: Vec<Option<u64>> = Vec::new();
        for stream in &trace.streams {
            sched.add(&stream.contract);
            queues.push(VecDeque::new());
            first.push(stream.first_deadline.map(|deadline| deadline.0));
        }
        let listed = match &trace.arrivals {
            Arrivals::Backlogged => None,
            Arrivals::Listed(listed) => Some(listed),
        };
        let mut sent = Vec::new();
        for now in 0..trace.ticks {
            for arrival in listed.into_iter().flatten().filter(|a| a.at.0 == now) {
                queues[arrival.stream.0 as usize].push_back(now);
            }
            let mut enqueue_next_head = |sched: &mut Self, s: usize| {
                let next = if listed.is_none() { Some(0) } else { queues[s].pop_front() };
                if let Some(arrival) = next {
                    sched.enqueue_head(s, arrival, first[s].take());
                }
            };
            for s in 0..sched.slots.len() {
                if sched.slots[s].head.is_none() {
                    enqueue_next_head(&mut sched, s);
                }
                while let Some(dropped) = sched.expire(s, now) {
                    if dropped {
                        enqueue_next_head(&mut sched, s);
                    }
                }
            }
            if let Some(s) = sched.choose(now) {
                let deadline = sched.dequeue(s);
                sent.push((now, s, deadline));
                enqueue_next_head(&mut sched, s);
            }
        }
        sent
    }
}
