//! The model: streams in a list, which every query walks; misses are counted one by one.

use selvedge_data_sched::{Dequeued, Discipline, Expiry, Head, StreamIndex, Verdict};
use selvedge_data_stream::Counters;
use selvedge_data_stream::{Contract, Kind, Late, Window, Windows};
use selvedge_units::Instant;

use crate::rules::{Entry, Window as PlainWindow, goes_before};

#[derive(Clone, Debug)]
pub(crate) struct PlainHead {
    arrival: u64,
    kind: Kind,
    pub(crate) deadline: u64,
    period: u64,
    priority: i32,
    missed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PlainStream {
    pub(crate) contract: Contract,
    /// The source of the windows below, and the windows by kind (all the same kind: the first).
    declared: Windows,
    windows: Vec<PlainWindow>,
    last: u64,
    pub(crate) head: Option<PlainHead>,
    pub(crate) counters: Counters,
}

fn plain(windows: &Windows) -> Vec<PlainWindow> {
    let plain = |w: &Window| PlainWindow::new(u64::from(w.lose), u64::from(w.of));
    match windows {
        Windows::Whole(window) => vec![plain(window)],
        Windows::PerKind(windows) => windows.iter().map(plain).collect(),
    }
}

impl PlainStream {
    pub(crate) fn new(contract: Contract) -> Self {
        Self {
            contract,
            declared: contract.windows,
            windows: plain(&contract.windows),
            last: 0,
            head: None,
            counters: Counters::default(),
        }
    }

    pub(crate) fn take_over_windows(&mut self) {
        let fresh = plain(&self.contract.windows);
        let before = plain(&self.declared);
        if fresh.len() != before.len() {
            self.windows = fresh;
        } else {
            for (kind, window) in fresh.into_iter().enumerate() {
                if window != before[kind] {
                    self.windows[kind] = window;
                }
            }
        }
        self.declared = self.contract.windows;
    }

    pub(crate) fn window(&mut self, kind: Kind) -> &mut PlainWindow {
        let place = if self.windows.len() == 1 { 0 } else { kind as usize };
        &mut self.windows[place]
    }

    pub(crate) fn push(&mut self, head: Head) -> u64 {
        self.take_over_windows();
        let period = self.contract.period.0;
        let by_rule = match self.contract.delay {
            Some(delay) => head.arrival.0.saturating_add(delay.0),
            None => self.last.max(head.arrival.0).saturating_add(period),
        };
        let deadline = head.deadline.map_or(by_rule, |at| at.0);
        self.last = deadline;
        self.head = Some(PlainHead {
            arrival: head.arrival.0,
            kind: head.kind,
            deadline,
            period,
            priority: self.contract.priority,
            missed: false,
        });
        deadline
    }

    fn ready(&self) -> u64 {
        self.head.as_ref().map_or(0, |head| head.deadline.saturating_sub(head.period))
    }
}

pub(crate) struct Model {
    pub(crate) discipline: Discipline,
    pub(crate) streams: Vec<Option<PlainStream>>,
    pub(crate) clock: u64,
}

impl Model {
    pub(crate) fn add(&mut self, contract: Contract) -> usize {
        let free = self.streams.iter().position(Option::is_none);
        let index = free.unwrap_or(self.streams.len());
        if index == self.streams.len() {
            self.streams.push(None);
        }
        self.streams[index] = Some(PlainStream::new(contract));
        index
    }

    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, &PlainStream)> {
        self.streams.iter().enumerate().filter_map(|(i, s)| Some((i, s.as_ref()?)))
    }

    fn heads(&self) -> impl Iterator<Item = (usize, &PlainStream, &PlainHead)> {
        self.present().filter_map(|(i, s)| Some((i, s, s.head.as_ref()?)))
    }

    pub(crate) fn poll(&mut self, now: u64, first: Option<StreamIndex>) -> Option<Expiry> {
        self.clock = self.clock.max(now);
        let now = self.clock;
        let late = |deadline: u64| deadline <= now && deadline != u64::MAX;
        let (.., earliest) = self.heads().min_by_key(|(_, _, head)| head.deadline)?;
        let earliest = Some(earliest.deadline).filter(|&deadline| late(deadline))?;
        // Of equal deadlines any may be reported first: the one that `first` names, if it is one.
        let is_it = |index: usize| first.is_none_or(|first| index == first.0 as usize);
        let mut due = self.heads();
        let (index, ..) = due.find(|&(i, _, head)| head.deadline == earliest && is_it(i))?;
        drop(due);
        let stream = self.streams[index].as_mut().unwrap();
        let mut head = stream.head.take().unwrap();
        let missed = head.deadline;
        let (mut misses, mut violations) = (0, 0);
        let verdict = loop {
            misses += 1;
            violations += u64::from(stream.window(head.kind).miss());
            if stream.contract.late == Late::Drop {
                stream.counters.dropped += 1;
                break Verdict::Dropped;
            }
            head.missed = true;
            head.deadline = head.deadline.saturating_add(head.period);
            if !late(head.deadline) {
                let deadline = Instant(head.deadline);
                stream.last = head.deadline;
                stream.head = Some(head);
                break Verdict::Kept { deadline };
            }
        };
        stream.counters.missed += misses;
        stream.counters.violations += violations;
        Some(Expiry {
            stream: StreamIndex(index as u32),
            deadline: Instant(missed),
            misses,
            verdict,
            violation: violations > 0,
        })
    }

    pub(crate) fn choose(&self, now: u64) -> Option<StreamIndex> {
        let now = self.clock.max(now);
        let mut best: Option<Entry> = None;
        for (index, stream, head) in self.heads() {
            let window = stream.clone().window(head.kind).to_owned();
            let (priority, arrival) = (i64::from(head.priority), head.arrival);
            let entry = Entry { deadline: head.deadline, window, priority, arrival, index };
            let eligible = stream.contract.work_conserving || stream.ready() <= now;
            let name = self.discipline.name();
            if eligible && best.is_none_or(|best| goes_before(name, &entry, &best)) {
                best = Some(entry);
            }
        }
        best.map(|best| StreamIndex(best.index as u32))
    }

    pub(crate) fn next_event(&self, now: u64) -> Option<Instant> {
        let now = self.clock.max(now);
        let mut moments: Vec<u64> = Vec::new();
        for (_, stream, head) in self.heads() {
            moments.push(head.deadline);
            if !stream.contract.work_conserving {
                moments.push(stream.ready());
            }
        }
        moments.into_iter().filter(|&at| at > now && at != u64::MAX).min().map(Instant)
    }

    pub(crate) fn dequeue(&mut self, index: usize) -> Dequeued {
        let stream = self.streams[index].as_mut().unwrap();
        let head = stream.head.take().unwrap();
        stream.window(head.kind).dequeue();
        stream.counters.sent += 1;
        stream.counters.late += u64::from(head.missed);
        Dequeued { deadline: Instant(head.deadline), late: head.missed }
    }

    pub(crate) fn drop_head(&mut self, index: usize) -> bool {
        let stream = self.streams[index].as_mut().unwrap();
        let head = stream.head.take().unwrap();
        let violation = stream.window(head.kind).miss();
        stream.counters.missed += 1;
        stream.counters.dropped += 1;
        stream.counters.violations += u64::from(violation);
        violation
    }
}
