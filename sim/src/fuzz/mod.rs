//! Faults under seeds: random networks with kills, cuts, clock jumps and hostile packets, each held to the
//! promises that a run can show, and made smaller where it breaks one.

mod case;
mod events;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use selvedge_control_config::network::{self, NetworkConfig, TrafficKind};
use selvedge_data_net_line::LineModel;
use selvedge_units::{Duration, Instant, Share};

use crate::media::{FrameCounts, Sender};
use crate::packet::{EndpointId, FlowId};
use crate::promise::{Breach, Promise};
use crate::results::{Event, Flow, Results};
use crate::scenario::{Scenario, ScenarioError, Stream};
use crate::simulation::{Limits, Simulation};
use crate::traffic::{ConnectionEnd, Messages};

pub use case::Case;
#[cfg(test)]
pub(crate) use case::STACKS;

/// No case needs more of either.
const LIMITS: Limits = Limits { events: 50_000_000, packets: 200_000 };
/// Delays that differ by less do not change when a receiver finds a frame late.
const CONSTANT: Duration = Duration::from_millis(1);
/// What is killed works again by then.
const BACK: Duration = Duration::from_secs(1);
/// Where each packet takes less, no peer is taken for silent.
const PROMPT: Duration = Duration::from_secs(1);
/// One seed in so many is run twice.
const AGAIN: u64 = 16;
/// Smaller cases that are tried, at most.
const TRIED_MAX: usize = 5_000;

/// A run, and what it broke.
struct Run {
    results: Results,
    streams: Vec<Stream>,
    breaches: Vec<Breach>,
    /// By flow: packets that left close to their deadlines.
    near: BTreeMap<u64, u64>,
}

/// Runs a case. Returns the promises that it breaks; `None` if its file makes no network.
#[must_use]
pub fn check(case: &Case) -> Option<Vec<Breach>> {
    let text = case.to_string();
    let mut no_files = |_: &str| Err(network::FileError::NotText);
    let config = network::parse(&text, "case", &mut no_files).ok()?;
    check_network(&config, case.seed).ok()
}

/// Runs a network without node files. Returns the promises that it breaks.
///
/// # Errors
/// [`ScenarioError`] if it can't be run.
pub fn check_network(config: &NetworkConfig, seed: u64) -> Result<Vec<Breach>, ScenarioError> {
    let first = run(config, seed)?;
    let mut breaches = first.breaches.clone();
    breaches.extend(first.streams.iter().filter_map(|stream| alike(config, &first, stream)));
    breaches.extend(counts(config, &first.results));
    for host in 0..config.hosts.len() {
        breaches.extend(untouched(config, seed, host, &first));
    }
    if seed.is_multiple_of(AGAIN) && run(config, seed)?.results != first.results {
        let what = "two runs had other results".to_owned();
        breaches.push(Breach { promise: Promise::SameSeed, what });
    }
    Ok(breaches)
}

/// The smallest case found that breaks the same promise; `fails` runs one.
pub fn shrink(case: Case, mut fails: impl FnMut(&Case) -> bool) -> Case {
    let mut smallest = case;
    let mut tried = 0;
    loop {
        let next = smallest.smaller().find(|smaller| {
            tried += 1;
            tried <= TRIED_MAX && fails(smaller)
        });
        match next {
            Some(next) => smallest = next,
            None => return smallest,
        }
    }
}

fn run(config: &NetworkConfig, seed: u64) -> Result<Run, ScenarioError> {
    run_within(config, seed, LIMITS)
}

fn run_within(config: &NetworkConfig, seed: u64, limits: Limits) -> Result<Run, ScenarioError> {
    let mut scenario = Scenario::new(config, &[], None, seed, None)?;
    scenario.audit();
    let Scenario { network, streams, lasts } = scenario;
    let mut simulation = Simulation::new(network, limits)?;
    let ended = simulation.run(Instant::ZERO + lasts, &mut |_: &Event<'_>| {});
    let mut breaches = Vec::new();
    if let Err(error) = ended {
        breaches.push(Breach { promise: Promise::Alive, what: error.to_string() });
    }
    let mut near = BTreeMap::new();
    let mut senders: Vec<EndpointId> = streams.iter().map(|stream| stream.sender).collect();
    senders.dedup();
    for sender in senders.iter().filter_map(|id| simulation.endpoint::<Sender>(*id)) {
        breaches.extend(sender.breaches());
        breaches.extend(sender.is_late_after_kill(Instant::ZERO + lasts, BACK));
        near.extend(
            streams
                .iter()
                .map(|stream| (stream.flow.0, sender.near(stream.flow)))
                .filter(|(_, near)| *near > 0),
        );
    }
    breaches.extend(events::breaches(&simulation));
    breaches.extend(messages(config, &simulation));
    Ok(Run { results: simulation.results(), streams, breaches, near })
}

/// What the ends of stacks promise.
pub(crate) fn messages(config: &NetworkConfig, simulation: &Simulation) -> Vec<Breach> {
    let Results { flows, until, .. } = simulation.results();
    let is_single = |model: &LineModel| model.duplicates == Share::ZERO;
    let is_single = config.links.iter().all(|link| is_single(&link.there) && is_single(&link.back));
    let of = |flow: FlowId| &flows[flow.0 as usize];
    let is_whole = |ends: [FlowId; 2]| {
        is_single && ends.iter().all(|flow| of(*flow).arrived == of(*flow).sent)
    };
    let mut breaches = Vec::new();
    let mut add =
        |flow, found: Vec<Breach>| {
            let name = &of(flow).name;
            breaches.extend(found.into_iter().map(|Breach { promise, what }| Breach {
                promise,
                what: format!("{name}: {what}"),
            }));
        };
    let ends: Vec<&Messages> = simulation.endpoints().collect();
    for [first, second] in ends.as_chunks().0 {
        let is_whole = is_whole([first.flow(), second.flow()]);
        add(first.flow(), first.breaches(second, is_whole, until));
        add(second.flow(), second.breaches(first, is_whole, until));
    }
    let ends: Vec<&ConnectionEnd> = simulation.endpoints().collect();
    for [first, second] in ends.as_chunks().0 {
        let flows = [first.flow(), second.flow()];
        let is_prompt =
            flows.iter().all(|flow| of(*flow).delays.max().is_some_and(|most| most < PROMPT));
        let is_whole = is_whole(flows) && is_prompt;
        add(first.flow(), first.breaches(second, is_whole, until));
    }
    breaches
}

fn flow<'a>(results: &'a Results, stream: &Stream) -> &'a Flow {
    &results.flows[stream.flow.0 as usize]
}

/// Where no packet of a stream is lost or delayed more than others, its ends count alike.
fn alike(config: &NetworkConfig, run: &Run, stream: &Stream) -> Option<Breach> {
    let flow = flow(&run.results, stream);
    let spread = flow.delays.max()? - flow.delays.min()?;
    let [from, to] = [flow.from, flow.to].map(|id| &config.hosts[id.0 as usize]);
    let is_attacked = config.traffic.iter().any(|traffic| {
        matches!(traffic.kind, TrafficKind::Hostile { .. })
            && config.hosts[traffic.to].name == to.name
    });
    let is_faulty = from.kill.is_some() || to.kill.is_some() || to.clock.is_some() || is_attacked;
    if is_faulty || flow.lost > 0 || flow.arrived != flow.sent || spread > CONSTANT {
        return None;
    }
    let FrameCounts { sent, received } = flow.frames.clone()?;
    let near = run.near.get(&stream.flow.0).copied().unwrap_or(0);
    let whole = received.on_time + received.late;
    let name = &stream.name;
    if whole + received.pending < sent.sent || whole > sent.sent {
        let what = format!("{name}: {} frames sent whole, {whole} received", sent.sent);
        return Some(Breach { promise: Promise::Alike, what });
    }
    if received.on_time.abs_diff(sent.on_time) > near + received.pending {
        let what =
            format!("{name}: {} frames sent on time, {} received", sent.on_time, received.on_time);
        return Some(Breach { promise: Promise::OnTime, what });
    }
    (near == 0 && received.pending == 0 && received.decodable != sent.decodable).then(|| {
        let what = format!(
            "{name}: {} decodable at the sender, {} received",
            sent.decodable, received.decodable
        );
        Breach { promise: Promise::Alike, what }
    })
}

/// Each packet has one fate, and each byte of a transfer comes once.
fn counts(config: &NetworkConfig, results: &Results) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for hop in &results.hops {
        let counts = &hop.counts;
        let dropped: u64 =
            selvedge_data_net_line::Drop::ALL.iter().map(|why| counts.dropped(*why)).sum();
        if counts.arrived + dropped > counts.packets + counts.duplicated {
            let what = format!("{}: {counts:?}", hop.link);
            breaches.push(Breach { promise: Promise::Fates, what });
        }
    }
    for traffic in &config.traffic {
        let TrafficKind::Bulk { bytes: Some(bytes), flows: 1, .. } = traffic.kind else { continue };
        let of = results.flows.iter().filter(|flow| flow.name == traffic.name);
        let more = of.filter_map(|flow| flow.useful).find(|useful| *useful > bytes);
        breaches.extend(more.map(|useful| {
            let what = format!("{}: {useful} of {bytes} delivered", traffic.name);
            Breach { promise: Promise::Once, what }
        }));
    }
    breaches
}

/// What others see without the faults of a host: the same.
fn untouched(config: &NetworkConfig, seed: u64, host: usize, with: &Run) -> Vec<Breach> {
    let mut calm = config.clone();
    let about = &mut calm.hosts[host];
    let has_fault = about.kill.take().is_some() | about.clock.take().is_some();
    let without = if has_fault { run(&calm, seed).ok() } else { None };
    let Some(without) = without else { return Vec::new() };
    // Both ends of a channel of events send.
    let has_events = |traffic: &network::Traffic| {
        matches!(traffic.kind, TrafficKind::Events { .. })
            && (traffic.from == host || traffic.to == host)
    };
    let sends = config.senders.iter().any(|sender| sender.host == host)
        || config.traffic.iter().any(has_events);
    let mut breaches = Vec::new();
    for stream in &with.streams {
        let [seen, calm] = [with, &without].map(|run| flow(&run.results, stream));
        let at_ends = [seen.from, seen.to].map(|id| id.0 as usize);
        // A sender that falls silent leaves more of the network to others: only what they send is compared.
        let is_same = match (at_ends.contains(&host), sends) {
            (true, _) => true,
            (false, true) => sent(seen) == sent(calm),
            (false, false) => seen == calm,
        };
        if !is_same {
            let (name, host) = (&stream.name, &config.hosts[host].name);
            let what = format!("{name}: {seen:?}; without the faults of {host}: {calm:?}");
            breaches.push(Breach { promise: Promise::Untouched, what });
        }
    }
    breaches
}

fn sent(flow: &Flow) -> Option<&selvedge_data_stream::Totals> {
    flow.frames.as_ref().map(|frames| &frames.sent)
}
