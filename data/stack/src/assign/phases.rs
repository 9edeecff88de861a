//! The phases, each a walk over configurations until one is acceptable.

use super::{Phase, Refusal, StreamLatency, find_refusal};
use crate::elements::{ElementId, ElementSet};
use crate::load::Load;
use crate::model::{Evaluation, Formulas, Latency, Machine, Stream, StreamId};

/// The search for one stream's configuration.
pub(super) struct Search<'a> {
    machine: &'a Machine,
    /// All streams, with `who` unassigned.
    streams: Vec<Stream>,
    who: StreamId,
    latencies: &'a [StreamLatency],
    nearest: Option<Refusal>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        machine: &'a Machine,
        streams: &[Stream],
        who: StreamId,
        latencies: &'a [StreamLatency],
    ) -> Self {
        let mut streams = streams.to_vec();
        streams[who.0].assign_all(ElementSet::EMPTY);
        Self { machine, streams, who, latencies, nearest: None }
    }

    /// The configuration that this phase finds.
    pub(super) fn run(&mut self, phase: Phase) -> Option<Vec<Stream>> {
        match phase {
            Phase::Pipelined => self.pipelined(),
            Phase::PartlyParallel => self.partly_parallel(),
            Phase::Rebalanced => self.rebalanced(),
            Phase::Pinned => None,
        }
    }

    /// The refusal that is nearest to acceptance, of all tried configurations of the whole stack. Phase 1
    /// may give up in the middle of a stack, so the whole stack on each single element is tried as well.
    pub(super) fn refusal(&mut self) -> Refusal {
        let mut streams = self.streams.clone();
        for element in self.by_load(&streams) {
            streams[self.who.0].assign_all(ElementSet::only(element));
            self.accepts(&streams);
        }
        self.nearest.unwrap_or(Refusal::NoElements)
    }

    fn accepts(&mut self, streams: &[Stream]) -> bool {
        let Some(objection) = find_refusal(self.machine, streams, self.who) else {
            return true;
        };
        let whole = streams[self.who.0].assigned.iter().all(|set| !set.is_empty());
        if whole && self.nearest.is_none_or(|nearest| closeness(&objection) < closeness(&nearest)) {
            self.nearest = Some(objection);
        }
        false
    }

    /// The elements that give any time, least loaded first; ties by number.
    fn by_load(&self, streams: &[Stream]) -> Vec<ElementId> {
        let found = Evaluation::new(self.machine, streams, Formulas::Corrected);
        let mut elements: Vec<(Load, ElementId)> = found
            .elements()
            .iter()
            .filter(|&p| found.available(p) > Load::ZERO)
            .map(|p| (part(found.utilization(p), found.available(p)), p))
            .collect();
        elements.sort_unstable();
        elements.into_iter().map(|(_, p)| p).collect()
    }

    /// Phase 1: each module on its predecessor's element, or else on the least loaded one.
    fn pipelined(&mut self) -> Option<Vec<Stream>> {
        let mut streams = self.streams.clone();
        let mut before: Option<ElementId> = None;
        for module in 0..streams[self.who.0].modules.len() {
            let least = *self.by_load(&streams).first()?;
            let mut choices = before.into_iter().chain([least]);
            let chosen = choices.find(|&element| {
                streams[self.who.0].assigned[module] = ElementSet::only(element);
                self.accepts(&streams)
            })?;
            before = Some(chosen);
        }
        before.map(|_| streams)
    }

    /// Phase 2: the whole stack on the two least loaded elements, then on three, and so on.
    fn partly_parallel(&mut self) -> Option<Vec<Stream>> {
        let mut streams = self.streams.clone();
        let order = self.by_load(&streams);
        for count in 2..=order.len() {
            streams[self.who.0].assign_all(order[..count].iter().copied().collect());
            if self.accepts(&streams) {
                return Some(streams);
            }
        }
        None
    }

    /// Phase 3: the stack on all elements. The other streams are spread too, one more element at a
    /// time, first those whose latency is furthest below their guarantee.
    fn rebalanced(&mut self) -> Option<Vec<Stream>> {
        let mut streams = self.streams.clone();
        let all: ElementSet = self.by_load(&streams).into_iter().collect();
        if all.count() < 2 || streams[self.who.0].modules.is_empty() {
            return None;
        }
        streams[self.who.0].assign_all(all);
        let others = self.by_standing(&streams);
        for _ in 1..all.count() {
            for &StreamId(other) in &others {
                let has = streams[other].elements();
                let order = self.by_load(&streams);
                let Some(more) = order.into_iter().find(|&element| !has.has(element)) else {
                    continue;
                };
                streams[other].assign_all(has.with(more));
                if self.accepts(&streams) {
                    return Some(streams);
                }
            }
        }
        None
    }

    /// The other assigned streams, in ascending order of measured to guaranteed latency.
    fn by_standing(&self, streams: &[Stream]) -> Vec<StreamId> {
        let found = Evaluation::new(self.machine, streams, Formulas::Corrected);
        let ratio = |i: StreamId| {
            let standing = self.latencies.get(i.0).copied().unwrap_or_default();
            let experienced = match standing.experienced.0 {
                0 => found.latency(Latency::Average, i).0,
                nanos => nanos,
            };
            u128::from(experienced) * 1_000_000 / u128::from(standing.guaranteed.0.max(1))
        };
        let mut others: Vec<StreamId> = found
            .streams()
            .filter(|&i| i != self.who && !streams[i.0].elements().is_empty())
            .filter(|&i| !streams[i.0].is_pinned)
            .collect();
        others.sort_by_cached_key(|&i| (ratio(i), i));
        others
    }
}

/// The load of an element as a part of the time that it gives.
fn part(used: Load, available: Load) -> Load {
    available.stretch_load(used)
}

/// Orders refusals, the nearest to acceptance first; refusals with an offer come by its size.
fn closeness(refusal: &Refusal) -> (u8, u64) {
    match refusal {
        Refusal::Delay { offered, .. } => (0, offered.0),
        Refusal::Other(_) => (1, 0),
        Refusal::Rate { offered, .. } => (2, offered.0),
        Refusal::Overload { needed, available, .. }
        | Refusal::Slaves { needed, available }
        | Refusal::Interface { needed, available } => (3, needed.0.saturating_sub(available.0)),
        _ => (4, 0),
    }
}
