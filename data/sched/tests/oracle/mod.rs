//! The rules once more, as plainly as possible: whole queues, every frame with its deadline, fractions
//! compared by cross multiplication, every decision a look at all streams.
//!
//! Shares no line with the crate. Its plain traces print themselves as JSON, which the crate
//! reads, and as the lines that the crate must print.

pub(crate) mod fluid;
mod plain;
pub(crate) mod rules;
mod shares;

use std::collections::VecDeque;
use std::fmt::Write;

pub(crate) use plain::plain;
use rules::{Entry, Window, goes_before};
use shares::{Head, Shares};

/// A stream as declared.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) id: String,
    pub(crate) period: u64,
    pub(crate) window: (u64, u64),
    pub(crate) send_late: bool,
    pub(crate) work_conserving: bool,
    pub(crate) first_deadline: Option<u64>,
    pub(crate) priority: i64,
    pub(crate) weight: u64,
    pub(crate) class: &'static str,
    /// 0: the link; `n`: the `n`-th node of the tree.
    pub(crate) parent: usize,
}

impl Stream {
    /// One with the defaults of a trace.
    pub(crate) fn plain(id: impl Into<String>, period: u64) -> Self {
        Self {
            id: id.into(),
            period,
            window: (0, 0),
            send_late: false,
            work_conserving: true,
            first_deadline: None,
            priority: 0,
            weight: 1,
            class: "fair",
            parent: 0,
        }
    }
}

/// A trace; no arrivals: backlogged.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) discipline: &'static str,
    pub(crate) ticks: u64,
    pub(crate) streams: Vec<Stream>,
    pub(crate) arrivals: Option<Vec<Arrival>>,
    /// The tree's nodes, and the period in which a flat approximation maps them.
    pub(crate) nodes: Vec<fluid::Node>,
    pub(crate) remap: Option<u64>,
}

/// Time, stream and size.
pub(crate) type Arrival = (u64, usize, u64);

/// The size of a frame for which a trace states none.
pub(crate) const SIZE: u64 = 1000;

struct Frame {
    seq: u64,
    arrival: u64,
    deadline: u64,
    size: u64,
    missed: bool,
}

struct State<'a> {
    of: &'a Stream,
    queue: VecDeque<Frame>,
    window: Window,
    seen: u64,
    last_deadline: Option<u64>,
    /// Whether the discipline was notified of the head: it is, once the head may go.
    known: bool,
    sent: u64,
    late: u64,
    missed: u64,
    dropped: u64,
    violations: u64,
}

impl<'a> State<'a> {
    fn new(of: &'a Stream) -> Self {
        Self {
            of,
            queue: VecDeque::new(),
            window: Window::new(of.window.0, of.window.1),
            seen: 0,
            last_deadline: None,
            known: false,
            sent: 0,
            late: 0,
            missed: 0,
            dropped: 0,
            violations: 0,
        }
    }

    fn arrive(&mut self, at: u64, size: u64) {
        let by_rule = self.last_deadline.map_or(at, |last| last.max(at));
        let by_rule = by_rule.saturating_add(self.of.period);
        let stated = self.of.first_deadline.filter(|_| self.seen == 0);
        let deadline = stated.unwrap_or(by_rule);
        self.queue.push_back(Frame { seq: self.seen, arrival: at, deadline, size, missed: false });
        self.seen += 1;
        self.last_deadline = Some(deadline);
    }

    /// The head is due again one period later; those behind stay a period apart.
    fn postpone(&mut self) {
        let period = self.of.period;
        let head = &mut self.queue[0];
        head.missed = true;
        head.deadline = head.deadline.saturating_add(period);
        let mut previous = head.deadline;
        for frame in self.queue.iter_mut().skip(1) {
            frame.deadline = frame.deadline.max(previous.saturating_add(period));
            previous = frame.deadline;
        }
        self.last_deadline = Some(previous);
    }

    fn eligible(&self, t: u64) -> bool {
        let ready = |head: &Frame| head.deadline.saturating_sub(self.of.period) <= t;
        self.queue.front().is_some_and(|head| self.of.work_conserving || ready(head))
    }

    fn ready(&self) -> u64 {
        self.queue[0].deadline.saturating_sub(self.of.period)
    }

    /// The head for the notification of the discipline, if the head may go and the discipline does not know
    /// it yet.
    fn introduce(&mut self, t: u64) -> Option<Head> {
        if self.known || !self.eligible(t) {
            return None;
        }
        self.known = true;
        let Frame { arrival, deadline, size, .. } = self.queue[0];
        Some(Head { arrival, deadline, size })
    }

    /// The head is gone, sent or lost.
    fn pop(&mut self, n: usize, sent: bool, t: u64, shares: &mut Option<Shares>) -> Frame {
        let frame = self.queue.pop_front().unwrap();
        self.known = false;
        let next = self.introduce(t);
        if let Some(shares) = shares {
            shares.gone(n, sent, next);
        }
        frame
    }

    fn entry(&self, index: usize) -> Entry {
        Entry {
            deadline: self.queue[0].deadline,
            window: self.window,
            priority: self.of.priority,
            arrival: self.queue[0].arrival,
            index,
        }
    }
}

impl Trace {
    /// The lines that a replay must print.
    pub(crate) fn expected(&self) -> String {
        let mut out = String::new();
        let mut states: Vec<State> = self.streams.iter().map(State::new).collect();
        let mut shares = Shares::new(self.discipline, &self.streams, &self.nodes, self.remap);
        if self.arrivals.is_none() {
            for state in &mut states {
                // A slot takes two frames of a stream at most: one dropped, one sent.
                (0..2 * self.ticks + 2).for_each(|_| state.arrive(0, SIZE));
            }
            for (n, state) in states.iter_mut().enumerate() {
                let known = state.introduce(0);
                shares.iter_mut().zip(known).for_each(|(shares, head)| shares.wait(n, head));
            }
        }
        for t in 0..self.ticks {
            if let Some(shares) = &mut shares {
                shares.begin(t);
            }
            for &(_, n, size) in self.arrivals.iter().flatten().filter(|(at, ..)| *at == t) {
                let first = states[n].queue.is_empty();
                states[n].arrive(t, size);
                // As long as nothing was decided at t, the previous slot still counts.
                if first && let Some(shares) = &mut shares {
                    let known = states[n].introduce(t.saturating_sub(1));
                    known.into_iter().for_each(|head| shares.wait(n, head));
                }
            }
            if let Some(shares) = &mut shares {
                shares.tick(t);
            }
            introduce_all(&mut states, t, &mut shares);
            expire(&mut states, t, &mut shares, &mut out);
            choose_and_serve(self.discipline, &mut states, t, &mut shares, &mut out);
        }
        total(&states, &mut out);
        out
    }

    /// The trace as a file.
    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        let (discipline, ticks) = (self.discipline, self.ticks);
        write!(out, "{{\"discipline\": \"{discipline}\", \"ticks\": {ticks},\n ").unwrap();
        if !self.nodes.is_empty() {
            out.push_str("\"tree\": [");
            for (n, (parent, weight)) in (1..).zip(&self.nodes) {
                let comma = if n == 1 { "" } else { ", " };
                write!(out, "{comma}{{\"id\": \"n{n}\"").unwrap();
                write_parent(&mut out, *parent);
                write!(out, ", \"weight\": {weight}}}").unwrap();
            }
            out.push_str("],\n ");
        }
        if let Some(remap) = self.remap {
            write!(out, "\"remap\": {remap},\n ").unwrap();
        }
        out.push_str("\"streams\": [");
        for (index, stream) in self.streams.iter().enumerate() {
            out.push_str(if index == 0 { "\n   " } else { ",\n   " });
            out.push_str(&stream.json());
        }
        match &self.arrivals {
            None => out.push_str("],\n \"backlogged\": true}\n"),
            Some(arrivals) => {
                out.push_str("],\n \"arrivals\": [");
                for (place, (at, index, size)) in arrivals.iter().enumerate() {
                    let comma = match place {
                        0 => "",
                        n if n % 10 == 0 => ",\n   ",
                        _ => ", ",
                    };
                    let size = if *size == SIZE { String::new() } else { format!(", {size}") };
                    write!(out, "{comma}[{at}, \"{}\"{size}]", self.streams[*index].id).unwrap();
                }
                out.push_str("]}\n");
            }
        }
        out
    }
}

impl Stream {
    fn json(&self) -> String {
        let Self { id, period, window: (x, y), work_conserving, priority, .. } = self;
        let late = if self.send_late { "send" } else { "drop" };
        let mut out = format!(
            "{{\"id\": \"{id}\", \"period\": {period}, \"window\": [{x}, {y}], \
             \"late\": \"{late}\", \"work_conserving\": {work_conserving}"
        );
        if let Some(first) = self.first_deadline {
            write!(out, ", \"first_deadline\": {first}").unwrap();
        }
        if *priority != 0 {
            write!(out, ", \"priority\": {priority}").unwrap();
        }
        if self.weight != 1 {
            write!(out, ", \"weight\": {}", self.weight).unwrap();
        }
        if self.class != "fair" {
            write!(out, ", \"class\": \"{}\"", self.class).unwrap();
        }
        write_parent(&mut out, self.parent);
        out.push('}');
        out
    }
}

fn write_parent(out: &mut String, parent: usize) {
    if parent > 0 {
        write!(out, ", \"parent\": \"n{parent}\"").unwrap();
    }
}

/// Notifies the discipline of the heads that may go now, those that have been ready longest first.
fn introduce_all(states: &mut [State], t: u64, shares: &mut Option<Shares>) {
    let Some(shares) = shares else { return };
    let mut ready: Vec<usize> = (0..states.len()).collect();
    ready.retain(|&n| !states[n].known && states[n].eligible(t));
    ready.sort_by_key(|&n| states[n].ready());
    for n in ready {
        let head = states[n].introduce(t).unwrap();
        shares.wait(n, head);
    }
}

/// The earliest deadline first; reported by stream.
fn expire(states: &mut [State], t: u64, shares: &mut Option<Shares>, out: &mut String) {
    let mut told: Vec<(usize, String)> = Vec::new();
    loop {
        // A deadline that saturated lies beyond time, and is never missed.
        let heads = states.iter().enumerate().filter_map(|(n, state)| {
            let deadline = state.queue.front()?.deadline;
            (deadline <= t && deadline != u64::MAX).then_some((deadline, n))
        });
        let Some((deadline, n)) = heads.min() else { break };
        let state = &mut states[n];
        let seq = state.queue[0].seq;
        state.missed += 1;
        if state.window.miss() {
            state.violations += 1;
        }
        let event = if state.of.send_late {
            state.postpone();
            if let Some(shares) = shares {
                shares.postponed(n, state.queue[0].deadline);
            }
            "miss"
        } else {
            state.pop(n, false, t, shares);
            state.dropped += 1;
            "drop"
        };
        let id = &state.of.id;
        let line = format!(
            "{{\"t\": {t}, \"event\": \"{event}\", \"stream\": \"{id}\", \"seq\": {seq}, \
             \"deadline\": {deadline}}}\n"
        );
        told.push((n, line));
    }
    told.sort_by_key(|(n, _)| *n);
    told.iter().for_each(|(_, line)| out.push_str(line));
}

fn choose_and_serve(
    discipline: &str,
    states: &mut [State],
    t: u64,
    shares: &mut Option<Shares>,
    out: &mut String,
) {
    let first = match shares {
        Some(shares) => shares.choose(t),
        None => first_by_rule(discipline, states, t),
    };
    let Some(first) = first else {
        return writeln!(out, "{{\"t\": {t}, \"event\": \"idle\"}}").unwrap();
    };
    let state = &mut states[first];
    state.window.dequeue();
    let Frame { seq, deadline, missed: late, .. } = state.pop(first, true, t, shares);
    state.sent += 1;
    state.late += u64::from(late);
    let id = &state.of.id;
    writeln!(
        out,
        "{{\"t\": {t}, \"event\": \"send\", \"stream\": \"{id}\", \"seq\": {seq}, \
         \"deadline\": {deadline}, \"late\": {late}}}"
    )
    .unwrap();
}

fn first_by_rule(discipline: &str, states: &[State], t: u64) -> Option<usize> {
    let mut first: Option<Entry> = None;
    for (index, state) in states.iter().enumerate().filter(|(_, state)| state.eligible(t)) {
        let entry = state.entry(index);
        if first.is_none_or(|first| goes_before(discipline, &entry, &first)) {
            first = Some(entry);
        }
    }
    first.map(|first| first.index)
}

fn total(states: &[State], out: &mut String) {
    let streams: Vec<String> = states
        .iter()
        .map(|state| {
            let State { sent, late, missed, dropped, violations, .. } = state;
            let (id, Window { x, y, .. }) = (&state.of.id, state.window);
            format!(
                "\"{id}\": {{\"sent\": {sent}, \"late\": {late}, \"missed\": {missed}, \
                 \"dropped\": {dropped}, \"violations\": {violations}, \"window\": [{x}, {y}]}}"
            )
        })
        .collect();
    let streams = streams.join(", ");
    writeln!(out, "{{\"event\": \"total\", \"streams\": {{{streams}}}}}").unwrap();
}
