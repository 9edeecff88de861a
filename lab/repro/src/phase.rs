//! Processor and packet scheduling with a phase (Q-Fabric thesis, 2.4.2, Figure 10).
//!
//! A task makes a packet in each period, and the packet scheduler sends it in a period of the same length
//! that begins a phase later. A packet of the period `[s, s + T)` may be sent from `s + phase` on, and its
//! transmission must begin by `s + T + phase`. Since it is made no earlier than `s`, it waits no longer than
//! `phase + T`: the bound.

use std::collections::VecDeque;

use selvedge_data_cpu::{Config, Processor, Refused, Runs, Task, TaskId};
use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex};
use selvedge_data_stream::{Contract, Kind};
use selvedge_units::{Bytes, Duration, Instant};

/// A period, and the phase of the packets' periods behind the processor's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    /// The period of the task and of its packets.
    pub(crate) period: Duration,
    /// From a period of the task to that of its packet.
    pub(crate) phase: Duration,
}

impl Phase {
    /// `l_max`: the longest time from a packet's creation to the beginning of its transmission, if both
    /// schedulers keep their deadlines.
    #[must_use]
    pub(crate) fn latency_max(&self) -> Duration {
        self.phase + self.period
    }

    /// The latest beginning of the transmission of the packet from the task's period that ends at `deadline`.
    #[must_use]
    pub(crate) fn packet_deadline(&self, deadline: Instant) -> Instant {
        deadline + self.phase
    }

    /// The packet of that period, made at `made`, for the packet scheduler. Its stream's period is
    /// [`Self::period`]; if it is not work-conserving, the packet waits for its own period.
    #[must_use]
    pub(crate) fn head(&self, deadline: Instant, made: Instant, size: Bytes) -> Head {
        let deadline = Some(self.packet_deadline(deadline));
        Head { arrival: made, kind: Kind::Data, deadline, size }
    }
}

/// The counts of one task's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketCounts {
    /// Packets whose transmission began by their deadline.
    pub(crate) on_time: u64,
    /// Packets that were lost at their deadline.
    pub(crate) late: u64,
    /// The longest time from a packet's making to the beginning of its transmission.
    pub(crate) latency: Duration,
    /// The sum of these times.
    pub(crate) latency_sum: Duration,
}

/// A simulation in unit slots: one processor, one link that sends a packet in a slot. Each task
/// makes a packet when it has had its service time in a period.
///
/// It drives the product's own schedulers, [`Processor`] and [`Scheduler`]. It models tasks that always use
/// their whole service time, and packets that all take one slot.
#[derive(Clone, Debug)]
pub(crate) struct Coordinated {
    cpu: Processor,
    link: Scheduler,
    chains: Vec<Chain>,
}

/// A task and its packets.
#[derive(Clone, Debug)]
struct Chain {
    task: TaskId,
    stream: StreamIndex,
    phase: Phase,
    /// The waiting packets, the one at the link first: when each was made, and its deadline.
    packets: VecDeque<(Instant, Instant)>,
    /// The end of the period in which the task is to be served next.
    deadline: Instant,
    counts: PacketCounts,
}

impl Coordinated {
    /// Both schedulers, the processor for these tasks only.
    #[must_use]
    pub(crate) fn new() -> Self {
        let (unit, task_server, events_max) = (Duration(1), false, 1);
        let config = Config { unit, best_effort: None, task_server, events_max };
        let (cpu, link) = (Processor::new(config), Scheduler::new(Discipline::Dwcs));
        Self { cpu, link, chains: Vec::new() }
    }

    /// Adds a task and the stream of its packets, with the same period and window.
    ///
    /// # Errors
    /// [`Refused`] by the processor.
    pub(crate) fn add(&mut self, task: &Task, phase: Duration) -> Result<(), Box<Refused>> {
        let id = self.cpu.admit(task).map_err(Box::new)?;
        self.cpu.wake(id, Instant::ZERO);
        let contract = Contract::new(task.period(), task.window());
        let stream = self.link.add(&Contract { work_conserving: false, ..contract });
        self.chains.push(Chain {
            task: id,
            stream,
            phase: Phase { period: task.period(), phase },
            packets: VecDeque::new(),
            deadline: self.cpu.deadline(id),
            counts: PacketCounts::default(),
        });
        Ok(())
    }

    /// Simulates the slot `[t, t + 1)`: earlier packets may be sent in it.
    pub(crate) fn slot(&mut self, t: u64) {
        let now = Instant(t);
        while let Some(expiry) = self.link.poll_expired(now) {
            let chain = self.chains.iter_mut().find(|chain| chain.stream == expiry.stream);
            let chain = chain.expect("every stream has a chain");
            chain.counts.late += 1;
            chain.packets.pop_front();
            chain.enqueue_next_head(&mut self.link);
        }
        if let Some(stream) = self.link.choose(now) {
            self.link.dequeue(stream);
            let chain = self.chains.iter_mut().find(|chain| chain.stream == stream);
            let chain = chain.expect("every stream has a chain");
            let (made, _) = chain.packets.pop_front().expect("the head is a packet");
            chain.counts.on_time += 1;
            chain.counts.latency = chain.counts.latency.max(now.since(made));
            chain.counts.latency_sum += now.since(made);
            chain.enqueue_next_head(&mut self.link);
        }
        let runs = self.cpu.decide(now).runs;
        // A task that missed its period there made no packet; the task that runs may make one by the slot's
        // end.
        let before = runs_task(runs).map(|id| self.cpu.counts(id).on_time);
        for chain in &mut self.chains {
            chain.deadline = self.cpu.deadline(chain.task);
        }
        self.cpu.charge_chosen(Duration(1));
        let Some(id) = runs_task(runs) else { return };
        if Some(self.cpu.counts(id).on_time) == before {
            return;
        }
        let chain = self.chains.iter_mut().find(|chain| chain.task == id);
        let chain = chain.expect("every task has a chain");
        let (made, deadline) = (now + Duration(1), chain.deadline);
        chain.packets.push_back((made, deadline));
        if chain.packets.len() == 1 {
            chain.enqueue_next_head(&mut self.link);
        }
    }

    /// The counts of each task's packets, in the order of [`add`](Self::add), and their phases.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Phase, PacketCounts)> {
        self.chains.iter().map(|chain| (chain.phase, chain.counts))
    }
}

impl Chain {
    fn enqueue_next_head(&self, link: &mut Scheduler) {
        if let Some(&(made, deadline)) = self.packets.front() {
            link.enqueue_head(self.stream, self.phase.head(deadline, made, Bytes(1)));
        }
    }
}

const fn runs_task(runs: Runs) -> Option<TaskId> {
    match runs {
        Runs::Task(id) => Some(id),
        Runs::BestEffort | Runs::Idle => None,
    }
}

#[cfg(test)]
mod tests;
