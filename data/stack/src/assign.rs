//! The three-phase heuristic of section 4.2: it chooses the elements that serve a stream's modules.
//!
//! A configuration is *acceptable* when condition (1) holds for every element and the network
//! interface, condition (2) for every stream, and every firm delay is kept. The requesting stream
//! is judged by its worst case, and so is every stream with a firm delay. The others are judged by
//! the average, the paper's "less conservative approach", since their recent traffic is known.
//!
//! Phase 1 builds a quasi-pipeline module by module. Phase 2 spreads the whole stack over the
//! smallest sufficient number of elements. Phase 3 spreads other streams, too. The first phase that
//! fits is chosen, unless the goal is bandwidth.

mod phases;
#[cfg(test)]
mod tests;

use selvedge_units::Duration;

use crate::contract::Promise;
use crate::elements::{ElementId, ElementSet};
use crate::load::Load;
use crate::model::{Evaluation, Formulas, Latency, Machine, Stream, StreamId};

selvedge_units::named! {
    /// The phase that found the configuration.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Phase {
        /// Phase 1: modules on few elements, one after the other.
        Pipelined = "pipelined",
        /// Phase 2: the whole stack on each of several elements.
        PartlyParallel = "partly message-parallel",
        /// Phase 3: on all elements, and other streams spread as well.
        Rebalanced = "rebalanced",
        /// No phase: assigned by hand.
        Pinned = "by hand",
    }
}

selvedge_units::named! {
    /// The goal by which acceptable configurations are compared.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Goal {
        /// Short delays: the first phase that fits, as in the paper.
        #[default]
        Delay = "delay",
        /// High rates: the phase with the least time between departures.
        Bandwidth = "bandwidth",
    }
}

/// The guarantees of a stream in a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarantee {
    /// `X_max`: the longest time between the departures of two of its messages.
    pub departure_interval: Duration,
    /// `L` in the worst case, on this host.
    pub latency: Duration,
    /// `L` on average.
    pub expected: Duration,
    /// Whether the worst case keeps the delay of its contract.
    pub delay_kept: bool,
}

impl Guarantee {
    pub(crate) fn of(found: &Evaluation<'_>, who: StreamId) -> Self {
        Self {
            departure_interval: found.departure_interval(Latency::Worst, who),
            latency: found.latency(Latency::Worst, who),
            expected: found.latency(Latency::Average, who),
            delay_kept: found.meets_delay(Latency::Worst, who),
        }
    }
}

/// A configuration to be put into effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The phase that found it.
    pub phase: Phase,
    /// All streams with their new assignments.
    pub streams: Vec<Stream>,
    /// The streams whose assignment differs from before.
    pub moved: Vec<StreamId>,
    /// The guarantee of the requesting stream.
    pub guarantee: Guarantee,
}

/// A stream's measured and guaranteed latency, by which phase 3 orders the other streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLatency {
    /// The measured latency; while it is zero (unknown), the model's average counts.
    pub experienced: Duration,
    /// The latency that the stream requested; it is guaranteed if possible.
    pub guaranteed: Duration,
}

/// Why no configuration is acceptable, with the nearest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no element to assign to, or no module to assign.
    #[error("no element gives any of its time to protocol work; assign at least one processor")]
    NoElements,
    /// Condition (1) fails for an element.
    #[error(
        "{element} would need {needed} of its time and gives {available}; lower the rate or the message size, or give it more elements"
    )]
    Overload {
        /// The most loaded element.
        element: ElementId,
        /// The load that the element would have.
        needed: Load,
        /// The part of its time that it gives.
        available: Load,
    },
    /// Condition (1) fails for the network interface.
    #[error(
        "the network interface would need {needed} of its time and gives {available}; lower the rate or the message size"
    )]
    Interface {
        /// The load that the interface would have.
        needed: Load,
        /// The part of its time that it gives.
        available: Load,
    },
    /// Condition (1) fails for the worker threads.
    #[error(
        "the slaves would need {needed} of a processor's time and give {available}; lower the rate or the message size, or start more of them"
    )]
    Slaves {
        /// The load that the worker threads would have.
        needed: Load,
        /// The part of their time that they give.
        available: Load,
    },
    /// Condition (2) fails for the requesting stream.
    #[error(
        "a message every {wanted} can't be kept, at best one leaves every {offered}; ask for an average inter-arrival above that"
    )]
    Rate {
        /// `X_avg` of the contract.
        wanted: Duration,
        /// The least `X_max` found.
        offered: Duration,
    },
    /// The delay is firm, and no scheduler keeps the elements' time for them.
    #[error(
        "a firm delay needs reserved processor time, and this endpoint has none; give it a share \
         (--share \"30 %\", or stack_share in the node file) and the right to reserve it, which root and \
         CAP_SYS_NICE have, or ask for a delay that is wanted, which is an estimate"
    )]
    Unreserved,
    /// A place by hand does not exist.
    #[error(
        "there is no module {module}, or none of {missing}; `selvedge stack show` shows the modules and elements"
    )]
    NoSuchPlace {
        /// The number of the module in its direction.
        module: usize,
        /// The elements that do not exist.
        missing: ElementSet,
    },
    /// A firm delay of another stream is measured as broken.
    #[error(
        "the firm delay of stream {} is measured as broken, and no assignment mends it; try again when it \
         is kept, lower its rate, or give the endpoint a larger share", .0.0
    )]
    Broken(StreamId),
    /// The delay is firm and can't be kept.
    #[error(
        "a delay of {wanted} on this host can't be kept, at best it is {offered}; ask for that, or for a delay that is wanted and not firm"
    )]
    Delay {
        /// The part of `D_max` that is left for this host.
        wanted: Duration,
        /// The least `L` found.
        offered: Duration,
    },
    /// Another stream would lose its guarantee.
    #[error("stream {} would lose what it was promised; lower the rate or the message size", .0.0)]
    Other(StreamId),
}

/// Finds a configuration for stream `who`, whose present assignment is ignored. `latencies` are
/// those of all streams, in order; missing ones count as unknown.
///
/// # Errors
/// [`Refusal`], with the nearest offer.
///
/// Takes at most about streams times elements evaluations, each linear in both and in modules.
pub fn assign(
    machine: &Machine,
    streams: &[Stream],
    who: StreamId,
    latencies: &[StreamLatency],
    goal: Goal,
) -> Result<Decision, Refusal> {
    if streams[who.0].contract.quality.promise == Promise::Firm && !machine.is_reserved {
        return Err(Refusal::Unreserved);
    }
    if streams[who.0].is_pinned {
        let as_it_is = || decision(machine, streams, streams.to_vec(), who, Phase::Pinned);
        return find_refusal(machine, streams, who).map_or_else(|| Ok(as_it_is()), Err);
    }
    let mut search = phases::Search::new(machine, streams, who, latencies);
    let mut best: Option<Decision> = None;
    for phase in [Phase::Pipelined, Phase::PartlyParallel, Phase::Rebalanced] {
        let Some(found) = search.run(phase) else { continue };
        let decision = decision(machine, streams, found, who, phase);
        if goal == Goal::Delay {
            return Ok(decision);
        }
        let better = |best: &Decision| {
            decision.guarantee.departure_interval < best.guarantee.departure_interval
        };
        if best.as_ref().is_none_or(better) {
            best = Some(decision);
        }
    }
    best.ok_or_else(|| search.refusal())
}

/// Finds a configuration that is better for `who` than its present one by the goal, if there is one.
#[must_use]
pub fn improve(
    machine: &Machine,
    streams: &[Stream],
    who: StreamId,
    latencies: &[StreamLatency],
    goal: Goal,
) -> Option<Decision> {
    if streams[who.0].is_pinned {
        return None;
    }
    let merit = |guarantee: &Guarantee| match goal {
        Goal::Delay => guarantee.latency,
        Goal::Bandwidth => guarantee.departure_interval,
    };
    let now = Guarantee::of(&Evaluation::new(machine, streams, Formulas::Corrected), who);
    let mut search = phases::Search::new(machine, streams, who, latencies);
    [Phase::Pipelined, Phase::PartlyParallel, Phase::Rebalanced]
        .into_iter()
        .filter_map(|phase| Some(decision(machine, streams, search.run(phase)?, who, phase)))
        .filter(|decision| merit(&decision.guarantee) < merit(&now))
        .min_by_key(|decision| (merit(&decision.guarantee), decision.phase))
}

fn decision(
    machine: &Machine,
    before: &[Stream],
    streams: Vec<Stream>,
    who: StreamId,
    phase: Phase,
) -> Decision {
    let guarantee = Guarantee::of(&Evaluation::new(machine, &streams, Formulas::Corrected), who);
    let moved = (0..streams.len())
        .map(StreamId)
        .filter(|&StreamId(n)| before[n].assigned != streams[n].assigned)
        .collect();
    Decision { phase, streams, moved, guarantee }
}

/// Why a configuration is not acceptable for `who`, if it is not.
pub(crate) fn find_refusal(
    machine: &Machine,
    streams: &[Stream],
    who: StreamId,
) -> Option<Refusal> {
    let found = Evaluation::new(machine, streams, Formulas::Corrected);
    let overloaded = |p: &ElementId| {
        let used = found.utilization(*p);
        used >= found.available(*p) && used > Load::ZERO
    };
    if let Some(element) = found.elements().iter().find(overloaded) {
        let (needed, available) = (found.utilization(element), found.available(element));
        return Some(Refusal::Overload { element, needed, available });
    }
    if let Some((needed, available)) = found.interface()
        && needed >= available
    {
        return Some(Refusal::Interface { needed, available });
    }
    if let Some((needed, available)) = found.slaves()
        && needed >= available
    {
        return Some(Refusal::Slaves { needed, available });
    }
    let Stream { contract, .. } = &streams[who.0];
    if !found.meets_rate(Latency::Worst, who) {
        let offered = found.departure_interval(Latency::Worst, who);
        return Some(Refusal::Rate { wanted: contract.traffic.average, offered });
    }
    let firm = |i: StreamId| streams[i.0].contract.quality.promise == Promise::Firm;
    if firm(who) && !found.meets_delay(Latency::Worst, who) {
        let (wanted, offered) = (streams[who.0].allowed(), found.latency(Latency::Worst, who));
        return Some(Refusal::Delay { wanted, offered });
    }
    let harmed = |&i: &StreamId| {
        let which = if firm(i) { Latency::Worst } else { Latency::Average };
        let late = firm(i) && !found.meets_delay(which, i);
        i != who && !streams[i.0].elements().is_empty() && (late || !found.meets_rate(which, i))
    };
    found.streams().find(harmed).map(Refusal::Other)
}
