//! The three-phase heuristic of section 4.2: which elements serve a stream's modules.
//!
//! A configuration is *acceptable* when condition (1) holds for every element and the network
//! interface, condition (2) for every stream, and every firm delay is kept. The stream that asks
//! is judged by its worst case, and so is every stream with a firm delay; the others by the
//! average, the paper's "less conservative approach": it is their near past that is known.
//!
//! Phase 1 builds a quasi-pipeline module by module, phase 2 spreads the whole stack over the
//! fewest elements that do, phase 3 spreads others, too. First fit, unless the goal is bandwidth.

mod phases;
#[cfg(test)]
mod tests;

use selvedge_units::Duration;

use crate::contract::Promise;
use crate::elements::ElementId;
use crate::load::Load;
use crate::model::{Evaluation, Formulas, Latency, Machine, Stream, StreamId};

selvedge_units::named! {
    /// Which phase found the configuration.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Phase {
        /// Phase 1: modules on few elements, one after the other.
        Pipelined = "pipelined",
        /// Phase 2: the whole stack on each of several elements.
        PartlyParallel = "partly message-parallel",
        /// Phase 3: on all elements, and other streams spread as well.
        Rebalanced = "rebalanced",
    }
}

selvedge_units::named! {
    /// What decisions look for among acceptable configurations.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Goal {
        /// Short delays: the first phase that fits, as in the paper.
        #[default]
        Delay = "delay",
        /// Room for more: the phase with the least time between departures.
        Bandwidth = "bandwidth",
    }
}

/// What a stream can rely on in a configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guarantee {
    /// `X_max`: the longest time between two of its messages that leave.
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

/// A configuration to enact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What found it.
    pub phase: Phase,
    /// All streams as they are to be assigned.
    pub streams: Vec<Stream>,
    /// Those whose assignment differs from before.
    pub moved: Vec<StreamId>,
    /// What the stream that asked gets.
    pub guarantee: Guarantee,
}

/// How a stream fares: the order in which phase 3 takes others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLatency {
    /// Measured latency; zero if there is none yet, then the model's average counts.
    pub experienced: Duration,
    /// The latency that it asked for, which it was guaranteed if it could be.
    pub guaranteed: Duration,
}

/// Why no configuration is acceptable: how near the nearest came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is nothing to assign to, or nothing to assign.
    #[error("no element gives any of its time to protocol work; assign at least one processor")]
    NoElements,
    /// Condition (1) of an element.
    #[error(
        "{element} would need {needed} of its time and gives {available}; lower the rate or the message size, or give it more elements"
    )]
    Overload {
        /// The most loaded.
        element: ElementId,
        /// What it would have to do.
        needed: Load,
        /// What it gives.
        available: Load,
    },
    /// Condition (1) of the network interface.
    #[error(
        "the network interface would need {needed} of its time and gives {available}; lower the rate or the message size"
    )]
    Interface {
        /// What it would have to do.
        needed: Load,
        /// What it gives.
        available: Load,
    },
    /// Condition (1) of the slaves.
    #[error(
        "the slaves would need {needed} of a processor's time and give {available}; lower the rate or the message size, or start more of them"
    )]
    Slaves {
        /// What they would have to do.
        needed: Load,
        /// What they give.
        available: Load,
    },
    /// Condition (2) of the stream that asks.
    #[error(
        "a message every {wanted} can't be kept, at best one leaves every {offered}; ask for an average inter-arrival above that"
    )]
    Rate {
        /// `X_avg` of the contract.
        wanted: Duration,
        /// Least `X_max` found.
        offered: Duration,
    },
    /// Its delay is firm and can't be kept.
    #[error(
        "a delay of {wanted} on this host can't be kept, at best it is {offered}; ask for that, or for a delay that is wanted and not firm"
    )]
    Delay {
        /// What is left of `D_max` here.
        wanted: Duration,
        /// Least `L` found.
        offered: Duration,
    },
    /// Another stream would lose what it was promised.
    #[error("stream {} would lose what it was promised; lower the rate or the message size", .0.0)]
    Other(StreamId),
}

/// Finds a configuration for stream `who`, whose present assignment is ignored. `standings` are
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

/// Finds a configuration that is better for `who` than its present one by the goal, or none.
#[must_use]
pub fn improve(
    machine: &Machine,
    streams: &[Stream],
    who: StreamId,
    latencies: &[StreamLatency],
    goal: Goal,
) -> Option<Decision> {
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

/// What is wrong with a configuration from the view of `who`, or nothing.
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
