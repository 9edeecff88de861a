//! A replay in slots, and the state at each slot.

use std::collections::VecDeque;

use selvedge_data_sched::replay::{Arrival, Arrivals, Replay, ReplayAction, Trace, TraceStream};
use selvedge_data_sched::{Discipline, StreamIndex, Tree, TreeNode};
use selvedge_data_stream::{Class, Contract, Late, Window};
use selvedge_units::{Bytes, Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) weight: u64,
    pub(crate) class: Class,
    pub(crate) priority: i32,
    pub(crate) period: u64,
    pub(crate) paced: bool,
    pub(crate) parent: u32,
}

impl Stream {
    /// Never late.
    pub(crate) const fn weighing(weight: u64) -> Self {
        let (class, priority, period) = (Class::Fair, 0, 1 << 40);
        Self { weight, class, priority, period, paced: false, parent: 0 }
    }
}

pub(crate) struct Slot {
    /// Which streams had a frame when this slot was decided.
    pub(crate) waits: Vec<bool>,
    pub(crate) sent: Option<usize>,
    pub(crate) late: bool,
    /// The size of the frame.
    pub(crate) size: u64,
}

pub(crate) struct Run {
    pub(crate) slots: Vec<Slot>,
}

/// Arrivals are time, stream and size, in order of time; nodes parent and weight.
pub(crate) fn run(
    discipline: Discipline,
    streams: &[Stream],
    arrivals: &[(u64, usize, u64)],
    nodes: &[(u32, u32)],
    remap: Option<u64>,
    ticks: u64,
) -> Run {
    let stream = |(n, stream): (usize, &Stream)| TraceStream {
        id: n.to_string(),
        contract: Contract {
            weight: u32::try_from(stream.weight).unwrap(),
            class: stream.class,
            priority: stream.priority,
            parent: stream.parent,
            work_conserving: !stream.paced,
            late: Late::Send,
            ..Contract::new(Duration(stream.period), Window::NONE)
        },
        first_deadline: None,
    };
    let nodes = nodes.iter().map(|&(parent, weight)| TreeNode { parent, weight });
    let arrival = |&(at, n, size): &(u64, usize, u64)| Arrival {
        at: Instant(at),
        stream: StreamIndex(n as u32),
        size: Bytes(size),
    };
    let trace = Trace {
        discipline,
        ticks,
        streams: streams.iter().enumerate().map(stream).collect(),
        tree: Tree::new(nodes.collect(), remap.map(Duration)).unwrap(),
        arrivals: Arrivals::Listed(arrivals.iter().map(arrival).collect()),
    };
    let mut queues: Vec<VecDeque<(u64, u64)>> = vec![VecDeque::new(); streams.len()];
    for &(at, n, size) in arrivals {
        queues[n].push_back((at, size));
    }
    let mut slots = Vec::new();
    for event in Replay::new(&trace) {
        let waits = |t: u64| queues.iter().map(|q| q.front().is_some_and(|f| f.0 <= t)).collect();
        match event.action {
            ReplayAction::Send { frame, late } => {
                let n = frame.stream.0 as usize;
                let waits = waits(event.t.0);
                let (_, size) = queues[n].pop_front().unwrap();
                slots.push(Slot { waits, sent: Some(n), late, size });
            }
            ReplayAction::Idle => {
                slots.push(Slot { waits: waits(event.t.0), sent: None, late: false, size: 0 });
            }
            ReplayAction::Drop(_) | ReplayAction::Miss(_) => {}
        }
    }
    Run { slots }
}
