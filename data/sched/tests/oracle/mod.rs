//! The rules once more, as plainly as they can be said: whole queues, every frame with its
//! deadline, fractions compared by cross multiplication, every decision a look at all streams.
//!
//! Shares no line with the crate. Its plain traces print themselves as JSON, which the crate
//! reads, and as the lines that the crate must print.

pub(crate) mod generate;
pub(crate) mod rules;

use std::collections::VecDeque;
use std::fmt::Write;

use rules::{Entry, Window, goes_before};

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
}

/// A trace; no arrivals: backlogged.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) discipline: &'static str,
    pub(crate) ticks: u64,
    pub(crate) streams: Vec<Stream>,
    pub(crate) arrivals: Option<Vec<(u64, usize)>>,
}

struct Frame {
    seq: u64,
    arrival: u64,
    deadline: u64,
    missed: bool,
}

struct State<'a> {
    of: &'a Stream,
    queue: VecDeque<Frame>,
    window: Window,
    seen: u64,
    last_deadline: Option<u64>,
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
            sent: 0,
            late: 0,
            missed: 0,
            dropped: 0,
            violations: 0,
        }
    }

    fn arrive(&mut self, at: u64) {
        let by_rule = self.last_deadline.map_or(at, |last| last.max(at));
        let by_rule = by_rule.saturating_add(self.of.period);
        let stated = self.of.first_deadline.filter(|_| self.seen == 0);
        let deadline = stated.unwrap_or(by_rule);
        self.queue.push_back(Frame { seq: self.seen, arrival: at, deadline, missed: false });
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
        if self.arrivals.is_none() {
            for state in &mut states {
                // A slot takes two frames of a stream at most: one dropped, one sent.
                (0..2 * self.ticks + 2).for_each(|_| state.arrive(0));
            }
        }
        for t in 0..self.ticks {
            for &(_, index) in self.arrivals.iter().flatten().filter(|(at, _)| *at == t) {
                states[index].arrive(t);
            }
            for state in &mut states {
                expire(state, t, &mut out);
            }
            choose_and_serve(self.discipline, &mut states, t, &mut out);
        }
        total(&states, &mut out);
        out
    }

    /// The trace as a file.
    pub(crate) fn json(&self) -> String {
        let mut out = String::new();
        let (discipline, ticks) = (self.discipline, self.ticks);
        write!(out, "{{\"discipline\": \"{discipline}\", \"ticks\": {ticks},\n \"streams\": [")
            .unwrap();
        for (index, stream) in self.streams.iter().enumerate() {
            out.push_str(if index == 0 { "\n   " } else { ",\n   " });
            out.push_str(&stream.json());
        }
        match &self.arrivals {
            None => out.push_str("],\n \"backlogged\": true}\n"),
            Some(arrivals) => {
                out.push_str("],\n \"arrivals\": [");
                for (place, (at, index)) in arrivals.iter().enumerate() {
                    let comma = match place {
                        0 => "",
                        n if n % 10 == 0 => ",\n   ",
                        _ => ", ",
                    };
                    write!(out, "{comma}[{at}, \"{}\"]", self.streams[*index].id).unwrap();
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
        out.push('}');
        out
    }
}

fn expire(state: &mut State, t: u64, out: &mut String) {
    while let Some(head) = state.queue.front() {
        // A deadline that saturated lies beyond time, and is never missed.
        if head.deadline > t || head.deadline == u64::MAX {
            break;
        }
        let (seq, deadline) = (head.seq, head.deadline);
        state.missed += 1;
        if state.window.miss() {
            state.violations += 1;
        }
        let event = if state.of.send_late {
            state.postpone();
            "miss"
        } else {
            state.queue.pop_front();
            state.dropped += 1;
            "drop"
        };
        let id = &state.of.id;
        writeln!(
            out,
            "{{\"t\": {t}, \"event\": \"{event}\", \"stream\": \"{id}\", \"seq\": {seq}, \
             \"deadline\": {deadline}}}"
        )
        .unwrap();
    }
}

fn choose_and_serve(discipline: &str, states: &mut [State], t: u64, out: &mut String) {
    let mut first: Option<Entry> = None;
    for (index, state) in states.iter().enumerate().filter(|(_, state)| state.eligible(t)) {
        let entry = state.entry(index);
        if first.is_none_or(|first| goes_before(discipline, &entry, &first)) {
            first = Some(entry);
        }
    }
    let Some(first) = first else {
        return writeln!(out, "{{\"t\": {t}, \"event\": \"idle\"}}").unwrap();
    };
    let state = &mut states[first.index];
    state.window.serve();
    let Frame { seq, deadline, missed: late, .. } = state.queue.pop_front().unwrap();
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
