//! Every symbol of section 4.1, of one configuration.

use selvedge_units::Duration;

use super::{Cost, Machine, Overheads, Stream, StreamId};
use crate::elements::{ElementId, ElementSet};
use crate::load::Load;

/// The formulas for `Wait` and `prob`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Formulas {
    /// By the definitions: i waits for j's execution, as often as j sends.
    #[default]
    Corrected,
    /// As printed: i's own execution, and the inverse probability.
    Printed,
}

/// The choice of a figure: the guarantee or the expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Latency {
    /// `X_max`, `Wait_max`, `Lambda_max`.
    Worst,
    /// `X_avg`, `Wait_avg`, `Lambda_avg`.
    Average,
}

/// A configuration, evaluated: `Exec` is computed once, the rest on demand.
#[derive(Clone, Debug)]
pub struct Evaluation<'a> {
    machine: &'a Machine,
    streams: &'a [Stream],
    reading: Formulas,
    /// `Exec(C, p, i)`, a row for each stream.
    exec: Vec<Duration>,
    /// The worker threads' time for a message, by stream.
    helped: Vec<Duration>,
    elements: usize,
}

impl<'a> Evaluation<'a> {
    /// Evaluates streams on a machine, in time proportional to modules times elements.
    #[must_use]
    pub fn new(machine: &'a Machine, streams: &'a [Stream], reading: Formulas) -> Self {
        let elements = machine.available.len().min(ElementSet::MAX);
        let mut exec = vec![Duration::ZERO; elements * streams.len()];
        let mut helped = vec![Duration::ZERO; streams.len()];
        let helpers = machine.slaves.count / masters(streams, ElementSet::first(elements)).max(1);
        // Without elements there is nothing to charge, and no row.
        for ((row, stream), helped) in
            exec.chunks_mut(elements.max(1)).zip(streams).zip(&mut helped)
        {
            *helped = charge(machine, stream, row, helpers);
        }
        Self { machine, streams, reading, exec, helped, elements }
    }

    /// `P`: the elements of the infrastructure.
    #[must_use]
    pub fn elements(&self) -> ElementSet {
        ElementSet::first(self.elements)
    }

    /// `I`: the streams.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> + use<> {
        (0..self.streams.len()).map(StreamId)
    }

    fn stream(&self, i: StreamId) -> &Stream {
        &self.streams[i.0]
    }

    /// `Avail(p)`: the part of its time that p gives; zero for an element that does not exist.
    #[must_use]
    pub fn available(&self, p: ElementId) -> Load {
        self.machine.available.get(usize::from(p.0)).copied().unwrap_or(Load::ZERO)
    }

    /// `Exec(C, p, i)`: the overhead on p of a message of i, for the largest message.
    ///
    /// Each module that is assigned to p adds its cost and its wait for the critical sections of
    /// other elements, divided by the number of elements that serve it. For the part of messages
    /// that are not shepherded it adds the get from its pipe, locked if several elements read it.
    /// Last comes the hand-over to the next module, which costs more if that is not on p.
    #[must_use]
    pub fn exec(&self, p: ElementId, i: StreamId) -> Duration {
        if usize::from(p.0) >= self.elements {
            return Duration::ZERO;
        }
        self.exec[i.0 * self.elements + usize::from(p.0)]
    }

    /// `Exec*(C, p, i) = Exec(C, p, i) / Avail(p)`: the time that it takes there.
    #[must_use]
    pub fn exec_star(&self, p: ElementId, i: StreamId) -> Duration {
        self.available(p).scale_time(self.exec(p, i))
    }

    /// `U(p)`, the sum over all streams of `Exec(C, p, i) / X_avg(i)`.
    #[must_use]
    pub fn utilization(&self, p: ElementId) -> Load {
        self.streams()
            .map(|i| Load::of(self.exec(p, i), self.stream(i).contract.traffic.average))
            .sum()
    }

    /// `U` of the network interface, and the part that it gives; `None` if it is no limit.
    #[must_use]
    pub fn interface(&self) -> Option<(Load, Load)> {
        let interface = self.machine.interface?;
        let used = self
            .streams
            .iter()
            .filter(|stream| !stream.elements().is_empty())
            .map(|stream| {
                let traffic = &stream.contract.traffic;
                Load::of(interface.of(traffic.largest), traffic.average)
            })
            .sum();
        Some((used, interface.available))
    }

    /// `U` of all worker threads together, and the part that they give; `None` without any.
    #[must_use]
    pub fn slaves(&self) -> Option<(Load, Load)> {
        let count = self.machine.slaves.count;
        let each = self.streams.iter().zip(&self.helped);
        let used =
            each.map(|(stream, helped)| Load::of(*helped, stream.contract.traffic.average)).sum();
        (count > 0).then(|| (used, Load(Load::WHOLE.0.saturating_mul(count))))
    }

    /// `Proc(C, i)`: the elements with modules of i, which are those where its `Exec` is not 0.
    #[must_use]
    pub fn proc(&self, i: StreamId) -> ElementSet {
        self.elements().iter().filter(|&p| self.exec(p, i) != Duration::ZERO).collect()
    }

    /// `Conn(C, p)`: the streams with modules on p.
    pub fn conn(&self, p: ElementId) -> impl Iterator<Item = StreamId> {
        self.streams().filter(move |&i| self.exec(p, i) != Duration::ZERO)
    }

    /// `Share(C, i)`: the other streams with an element in common with i.
    pub fn share(&self, i: StreamId) -> impl Iterator<Item = StreamId> {
        self.streams().filter(move |&j| j != i && !self.pcomm(i, j).is_empty())
    }

    /// `PComm(C, i, j)`: the elements that i and j share.
    #[must_use]
    pub fn pcomm(&self, i: StreamId, j: StreamId) -> ElementSet {
        self.proc(i).and(self.proc(j))
    }

    /// The denominator of `prob(i, j)`, whose numerator is 1: one message of i in this number waits
    /// for a message of j.
    #[must_use]
    pub fn prob(&self, i: StreamId, j: StreamId) -> u64 {
        let every = |i: StreamId| self.stream(i).contract.traffic.average.0.max(1);
        match self.reading {
            Formulas::Corrected => every(j).div_ceil(every(i)),
            Formulas::Printed => every(i).div_ceil(every(j)),
        }
    }

    /// `Wait_max(i, j)` or `Wait_avg(i, j)`: the time that a message of i waits for one of j, at
    /// the element where that is longest.
    #[must_use]
    pub fn wait(&self, which: Latency, i: StreamId, j: StreamId) -> Duration {
        let of = match self.reading {
            Formulas::Corrected => j,
            Formulas::Printed => i,
        };
        let longest = self.pcomm(i, j).iter().map(|p| self.exec_star(p, of)).max();
        let longest = longest.unwrap_or(Duration::ZERO);
        match which {
            Latency::Worst => longest,
            Latency::Average => Duration(longest.0.div_ceil(self.prob(i, j))),
        }
    }

    fn waits(&self, which: Latency, i: StreamId) -> Duration {
        self.share(i).fold(Duration::ZERO, |sum, j| sum + self.wait(which, i, j))
    }

    /// `X_max(i)` or `X_avg(i)` (calligraphic): the time between the departures of two messages of i.
    #[must_use]
    pub fn departure_interval(&self, which: Latency, i: StreamId) -> Duration {
        let slowest = self.elements().iter().map(|p| self.exec_star(p, i)).max();
        slowest.unwrap_or(Duration::ZERO) + self.waits(which, i)
    }

    /// `Lambda_max(i)` or `Lambda_avg(i)`: the time to process a message of i when it is not
    /// bursty: the wake-ups of its elements, their work, and the work for others before it.
    #[must_use]
    pub fn lambda(&self, which: Latency, i: StreamId) -> Duration {
        let wake_up = match which {
            Latency::Worst => self.machine.wake_up.worst,
            Latency::Average => self.machine.wake_up.average,
        };
        let work = self.elements().iter().map(|p| self.exec_star(p, i));
        let work = work.fold(wake_up * self.proc(i).count(), |sum, one| sum + one);
        work + self.waits(which, i)
    }

    /// `beta(i)`: the largest burst of i, in messages.
    #[must_use]
    pub fn beta(&self, i: StreamId) -> u64 {
        self.stream(i).contract.traffic.burst()
    }

    /// `omega(i, k)`: how long the k-th message of a burst waits for those before it; 0 for the
    /// first, and for `k` = 0.
    #[must_use]
    pub fn omega(&self, which: Latency, i: StreamId, k: u64) -> Duration {
        let minimum = self.stream(i).contract.traffic.minimum;
        let behind = Duration(self.departure_interval(which, i).0.saturating_sub(minimum.0));
        behind * k.saturating_sub(1)
    }

    /// `L(i)`: the longest time that a message of i is in this host, when `B_max / 3` messages in
    /// a row may be dropped here.
    #[must_use]
    pub fn latency(&self, which: Latency, i: StreamId) -> Duration {
        let dropped = self.stream(i).contract.quality.loss_burst / 3;
        let last = self.beta(i).saturating_sub(dropped);
        self.lambda(which, i) + self.omega(which, i, last)
    }

    /// Condition (1): every element, the network interface and the worker threads have less load
    /// than they give.
    #[must_use]
    pub fn fits(&self) -> bool {
        let interface = self.interface().is_none_or(|(used, available)| used < available);
        let slaves = self.slaves().is_none_or(|(used, available)| used < available);
        interface
            && slaves
            && self.elements().iter().all(|p| {
                let used = self.utilization(p);
                used < self.available(p) || used == Load::ZERO
            })
    }

    /// Condition (2): i always keeps its rate, `X(i) < X_avg(i)`.
    #[must_use]
    pub fn meets_rate(&self, which: Latency, i: StreamId) -> bool {
        self.departure_interval(which, i) < self.stream(i).contract.traffic.average
    }

    /// Whether i's delay is kept: its `L` and the time elsewhere are within `D_max`.
    #[must_use]
    pub fn meets_delay(&self, which: Latency, i: StreamId) -> bool {
        self.latency(which, i) <= self.stream(i).allowed()
    }
}

/// The number of masters that may use worker threads at once.
fn masters(streams: &[Stream], all: ElementSet) -> u64 {
    let of = |stream: &Stream| -> u64 {
        let modules = stream.modules.iter().zip(&stream.assigned);
        modules.filter(|(cost, _)| cost.shared).map(|(_, at)| at.and(all).count()).sum()
    };
    streams.iter().map(of).sum()
}

/// Adds the cost of a message of the stream to each element in `row`, with the help of `helpers`
/// worker threads; returns the cost for those threads.
fn charge(machine: &Machine, stream: &Stream, row: &mut [Duration], helpers: u64) -> Duration {
    let all = ElementSet::first(row.len());
    let size = stream.contract.traffic.largest;
    let part = |work: Duration, of: u64| Duration(work.0.div_ceil(of.max(1)));
    let (mut before, mut helped): (Option<ElementSet>, Duration) = (None, Duration::ZERO);
    for (cost, &assigned) in stream.modules.iter().zip(&stream.assigned) {
        let here = assigned.and(all);
        if here.is_empty() {
            continue;
        }
        let readers = here.count();
        // The fraction of messages that come through the pipe: `crossing` of `from` elements.
        let (crossing, from) = match before {
            None => (1, 1),
            Some(before) => (before.without(here).count(), before.count()),
        };
        let get = if readers > 1 { machine.overheads.get_locked } else { machine.overheads.get };
        let remote = before.is_some() && crossing > 0;
        let [alone, others] = cost.among(size, remote, &machine.slaves, helpers);
        helped += others;
        let work = work(cost, alone, readers);
        for p in here.iter() {
            let at = &mut row[usize::from(p.0)];
            *at += part(work, readers);
            *at += part(get * crossing, from * readers);
        }
        for p in before.unwrap_or_default().iter() {
            let Overheads { same, other, .. } = machine.overheads;
            row[usize::from(p.0)] += part(if here.has(p) { same } else { other }, from);
        }
        before = Some(here);
    }
    helped
}

/// A module's work on a message, with the wait for the critical sections on all other elements.
fn work(cost: &Cost, alone: Duration, readers: u64) -> Duration {
    alone + cost.critical * (readers - 1)
}
