//! What channels of events promise, held to what their ends did and saw ([`Seen`]).

use selvedge_control_event::{HEARTBEAT, HostId, LEASE, RESUME};
use selvedge_units::{Duration, Instant};

use crate::promise::{Breach, Promise};
use crate::results::Results;
use crate::simulation::Simulation;
use crate::traffic::EventEnd;
use crate::traffic::events::{Offer, Seen};

/// A silent member is reported within this time: [`LEASE`], and up to [`HEARTBEAT`] until the exchange looks.
const REPORTED: Duration = Duration::from_millis(1_400);
/// A round trip, with what an acknowledgement may wait: while it is shorter nothing is sent again in vain.
const ROUND_TRIP: Duration = Duration::from_millis(90);
/// So many events may be on their way to a member that takes them at once, and more.
const UNDER_WAY: u64 = 150;

/// A process of a source, and one of a subscriber.
struct Pair<'a> {
    offer: Offer,
    until: Instant,
    source: &'a Seen,
    sink: &'a Seen,
    /// Where the subscriber takes events at once and no packet between the two is lost, doubled or overtaken:
    /// the longest time there, and back; and the time since which packets may still be under way.
    calm: Option<([Duration; 2], Instant)>,
}

/// A channel after a run: what each process of each end did and saw.
struct Channel<'a> {
    results: &'a Results,
    sources: Vec<Seen>,
    sinks: Vec<(&'a EventEnd, Vec<Seen>)>,
}

/// All that channels broke in a run.
pub(super) fn breaches(simulation: &Simulation) -> Vec<Breach> {
    let results = simulation.results();
    channels(simulation, &results).iter().flat_map(Channel::breaches).collect()
}

fn channels<'a>(simulation: &'a Simulation, results: &'a Results) -> Vec<Channel<'a>> {
    let ends: Vec<&EventEnd> = simulation.endpoints().collect();
    let (mut left, mut channels) = (&ends[..], Vec::new());
    while let Some((source, after)) = left.split_first() {
        let (sinks, others) = after.split_at(source.peers.len());
        let sinks = sinks.iter().map(|end| (*end, end.seen())).collect();
        channels.push(Channel { results, sources: source.seen(), sinks });
        left = others;
    }
    channels
}

impl Channel<'_> {
    fn breaches(&self) -> Vec<Breach> {
        let until = self.results.until;
        let sources = &self.sources;
        let mut breaches: Vec<_> = sources.iter().flat_map(|seen| alone(seen, until)).collect();
        for (end, sinks) in &self.sinks {
            for sink in sinks {
                breaches.extend(alone(sink, until).into_iter().chain(fates(sink, end)));
                for source in sources {
                    let calm = calm(self.results, end, [source, sink]);
                    let pair = Pair { offer: end.offer, until, source, sink, calm };
                    breaches.extend(pair.breaches());
                }
            }
        }
        breaches
    }
}

fn calm(
    results: &Results,
    end: &EventEnd,
    [source, sink]: [&Seen; 2],
) -> Option<([Duration; 2], Instant)> {
    let there = end.peers[0].from.0 as usize;
    let flows = [&results.flows[there], &results.flows[there + 1]];
    let is_calm = flows.iter().all(|flow| flow.lost == 0)
        && source.overtaken + sink.overtaken == 0
        && source.silences.iter().all(|(host, _)| *host != sink.host)
        && end.is_prompt();
    let [there, back] = flows.map(|flow| flow.delays.max());
    let times = [there?, back?];
    // Whatever was sent before the last packet that arrived has arrived.
    let known = [flows[0].last - times[0], flows[1].last - times[1]];
    is_calm.then_some((times, known[0].min(known[1])))
}

fn breach(promise: Promise, seen: &Seen, what: String) -> Breach {
    // What breaks beside a member that lies is harm by it.
    let promise = if seen.lies > 0 { Promise::Liars } else { promise };
    Breach { promise, what }
}

/// What one process promises by itself.
fn alone(seen: &Seen, until: Instant) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let end = until.min(seen.life[1]);
    let reported = seen.silences.iter().copied();
    let is_wrong = |silent: &Duration| *silent <= LEASE || *silent > REPORTED;
    let wrong = reported.filter(|(_, silent)| is_wrong(silent));
    let silent = seen.heard.iter().map(|(host, heard)| (*host, end.since(*heard)));
    let missed = silent.filter(|(_, silent)| *silent > REPORTED);
    breaches.extend(wrong.chain(missed).map(|(host, silent)| {
        let what = format!("{:?}: {host:?} was silent for {silent}", seen.host);
        breach(Promise::Silent, seen, what)
    }));
    breaches.extend(seen.unreadable.first().map(|why| breach(Promise::Formats, seen, why.clone())));
    breaches
}

/// Each event that was offered to a sink has one fate, or waits.
fn fates(seen: &Seen, end: &EventEnd) -> Option<Breach> {
    let fates = seen.fates;
    let all = fates.delivered + fates.filtered + fates.expired + fates.overflowed + fates.faulted;
    let waiting = if end.is_prompt() { 0 } else { end.bound() as u64 };
    let is_one = (all..=all + waiting).contains(&seen.offered);
    (!is_one || fates.delivered != seen.events.len() as u64).then(|| {
        let taken = seen.events.len();
        let what = format!("{:?}: {} offered, {taken} taken: {fates:?}", seen.host, seen.offered);
        breach(Promise::EventFates, seen, what)
    })
}

impl Pair<'_> {
    fn breaches(&self) -> Vec<Breach> {
        let Self { source, sink, .. } = self;
        let of_source = |number: u64| HostId((number >> 32) as u32) == source.host;
        let taken = sink.events.iter().filter(|(number, _)| of_source(*number));
        let taken: Vec<_> = taken.copied().collect();
        let Some(first) = source.owed_from.get(&sink.host).map(|number| *number as u32 as usize)
        else {
            return taken
                .first()
                .map(|(number, _)| self.breach(Promise::Events, format!("{number} was not for it")))
                .into_iter()
                .collect();
        };
        let owed = &source.events[first..];
        if let Some(disorder) = self.disorder(owed, &taken) {
            return vec![disorder];
        }
        let others = [self.dropped(owed, &taken), self.held_up(owed, &taken)];
        others.into_iter().flatten().collect()
    }

    fn breach(&self, promise: Promise, what: String) -> Breach {
        let (source, sink) = (self.source, self.sink);
        let seen = if source.lies > 0 { source } else { sink };
        breach(promise, seen, format!("{:?} to {:?}: {what}", source.host, sink.host))
    }

    /// What was taken was owed, and comes once and in order.
    fn disorder(&self, owed: &[(u64, Instant)], taken: &[(u64, Instant)]) -> Option<Breach> {
        let is_owed = |number: u64| owed.binary_search_by_key(&number, |event| event.0).is_ok();
        let foreign = taken.iter().find(|event| !is_owed(event.0)).map(|event| [event.0; 2]);
        let swapped = taken.windows(2).map(|two| [two[0].0, two[1].0]);
        let [before, number] = foreign.or_else(|| swapped.clone().find(|two| two[0] >= two[1]))?;
        Some(self.breach(Promise::Events, format!("{number:#x} after {before:#x}")))
    }

    /// Reliable events are taken, reported as dropped at both ends, or kept.
    fn dropped(&self, owed: &[(u64, Instant)], taken: &[(u64, Instant)]) -> Option<Breach> {
        let Self { source, sink, .. } = self;
        // A member that was lost for so long is owed nothing.
        if !self.offer.is_reliable || self.until > Instant::ZERO + RESUME {
            return None;
        }
        let through =
            taken.last().map_or(0, |last| owed.partition_point(|event| event.0 <= last.0));
        let gone = (through - taken.len()) as u64;
        let missed = sink.dropped.get(&source.host).copied().unwrap_or(0);
        let undelivered = source.dropped.get(&sink.host).copied().unwrap_or(0);
        let by_end = owed.partition_point(|event| event.1 < sink.life[1]);
        let left = by_end.saturating_sub(taken.len()) as u64;
        // Kept at the source, or in the sink's queue.
        let kept = source.held as u64 + sink.offered.saturating_sub(sink.fates.delivered);
        let is_known = gone <= missed && missed <= undelivered && left <= undelivered + kept;
        (!is_known).then(|| {
            let what = format!(
                "{gone} passed over, {missed} reported there, {undelivered} here; {left} not taken, {kept} kept"
            );
            self.breach(Promise::Events, what)
        })
    }

    /// Where nothing hinders the two, each event comes as fast as the network is, whatever others do.
    fn held_up(&self, owed: &[(u64, Instant)], taken: &[(u64, Instant)]) -> Option<Breach> {
        let ([there, back], known) = self.calm?;
        let round_trip = there + back;
        let is_short = round_trip < ROUND_TRIP && round_trip < self.offer.every * UNDER_WAY;
        if self.offer.is_reliable && !is_short {
            return None;
        }
        let end = self.sink.life[1];
        let (number, published) = *owed.iter().zip(0..).find_map(|(event, at)| {
            let due = event.1 + there;
            let is_taken = taken
                .get(at)
                .is_some_and(|taken: &(u64, Instant)| taken.0 == event.0 && taken.1 <= due);
            (event.1 < known && due < end && !is_taken).then_some(event)
        })?;
        let what = format!("{number:#x} of {published:?} is not taken {there} later");
        Some(self.breach(Promise::HeldUp, what))
    }
}

const _: () = assert!(REPORTED.0 >= LEASE.0 + HEARTBEAT.0);

#[cfg(test)]
mod tests {
    use selvedge_control_config::network;
    use selvedge_control_event::Format;

    use super::*;
    use crate::fuzz::LIMITS;
    use crate::results::Event;
    use crate::scenario::Scenario;

    /// Three subscribers, of which the first is killed and the second is slow.
    fn simulation(events: &str, fault: impl FnOnce(&mut EventEnd)) -> Simulation {
        let text = format!(
            "[network]\nsource = \"made up\"\nlasts = \"7 s\"\n[host.near]\n[host.far]\n\
            kill = {{ at = \"1 s\", lasts = \"2 s\" }}\n[link.l]\nbetween = [\"near\", \"far\"]\n\
            rate = \"50 Mbit/s\"\ndelay = \"5 ms\"\n[traffic.t]\nkind = \"events\"\nfrom = \"near\"\n\
            to = \"far\"\nsize = \"100 B\"\nsinks = 3\n{events}"
        );
        let mut no_files = |_: &str| Err(network::FileError::NotText);
        let config = network::parse(&text, "test", &mut no_files).unwrap();
        let mut scenario = Scenario::new(&config, &[], None, 1, None).unwrap();
        // The ends are attached in order, and nothing else was before.
        fault(scenario.network.endpoint_mut(crate::EndpointId(3)).unwrap());
        let mut simulation = Simulation::new(scenario.network, LIMITS).unwrap();
        simulation.run(Instant::ZERO + scenario.lasts, &mut |_: &Event<'_>| {}).unwrap();
        simulation
    }

    const SLOW: &str = "reliable = true\nevery = \"2 ms\"";
    const FAST: &str = "reliable = true\nevery = \"500 us\"";

    #[test]
    fn a_killed_and_a_slow_subscriber_hold_up_nobody() {
        for events in [SLOW, FAST, "every = \"2 ms\""] {
            let simulation = simulation(events, |_| {});
            let results = simulation.results();
            let channel = channels(&simulation, &results).remove(0);
            assert_eq!(channel.breaches(), []);
            // All of this happened, so the checks had something to find.
            let ([source], [first, (_, slow), (last, prompt)]) =
                (&channel.sources[..], &channel.sinks[..])
            else {
                panic!("{}", channel.sinks.len());
            };
            assert_eq!((first.1.len(), slow.len(), prompt.len()), (2, 1, 1));
            assert_eq!(source.silences.len(), 1);
            assert!(calm(&results, last, [source, &prompt[0]]).is_some());
            assert!(prompt[0].events.len() >= source.events.len() - 50);
            assert!(slow[0].events.len() < source.events.len() * 2 / 3);
            let dropped = source.dropped.get(&slow[0].host).copied().unwrap_or(0);
            assert_eq!(dropped > 1_000, events == FAST, "{dropped}");
        }
    }

    /// Breaks what was seen, and returns the promise that is found broken.
    fn broken(channel: &Channel<'_>, fault: impl FnOnce(&mut Seen, &mut [Seen; 3])) -> Promise {
        let Channel { results, sources, sinks } = channel;
        let mut seen = [0, 1, 2].map(|at| sinks[at].1[0].clone());
        let mut source = sources[0].clone();
        fault(&mut source, &mut seen);
        let sinks = sinks.iter().zip(seen).map(|((end, _), seen)| (*end, vec![seen])).collect();
        let channel = Channel { results, sources: vec![source], sinks };
        channel.breaches()[0].promise
    }

    #[test]
    fn each_broken_promise_is_found() {
        let simulation_of = |events| simulation(events, |_| {});
        let (slow, fast) = (simulation_of(SLOW), simulation_of(FAST));
        let results = [slow.results(), fast.results()];
        let slow = &channels(&slow, &results[0])[0];
        let fast = &channels(&fast, &results[1])[0];
        use Promise::{EventFates, Events, Formats, HeldUp, Liars, Silent};
        assert_eq!(broken(slow, |_, sinks| sinks[2].events.swap(7, 8)), Events);
        assert_eq!(broken(slow, |_, sinks| sinks[2].events[7].0 = 1 << 30), Events);
        assert_eq!(broken(slow, |_, sinks| sinks[2].events[8] = sinks[2].events[7]), Events);
        let lost = |_: &mut Seen, sinks: &mut [Seen; 3]| {
            sinks[2].events.remove(7);
            sinks[2].fates.delivered -= 1;
            sinks[2].fates.filtered += 1;
        };
        assert_eq!(broken(slow, lost), Events);
        assert_eq!(broken(slow, |source, _| source.held = 0), Events);
        assert_eq!(broken(fast, |_, sinks| sinks[1].dropped.clear()), Events);
        assert_eq!(broken(fast, |source, _| source.dropped.clear()), Events);
        let late = Duration::from_millis(20);
        assert_eq!(broken(slow, |_, sinks| sinks[2].events[7].1 += late), HeldUp);
        assert_eq!(broken(fast, |_, sinks| sinks[2].events[7].1 += late), HeldUp);
        assert_eq!(broken(slow, |_, sinks| sinks[2].fates.expired += 1), EventFates);
        assert_eq!(broken(slow, |_, sinks| sinks[2].offered += 1), EventFates);
        assert_eq!(broken(slow, |_, sinks| sinks[1].fates.delivered -= 1), EventFates);
        let not_reported = |source: &mut Seen, _: &mut [Seen; 3]| {
            let (host, silent) = source.silences.remove(0);
            source.heard.insert(host, Instant::ZERO + silent);
        };
        assert_eq!(broken(slow, not_reported), Silent);
        for silent in [900, 1_500].map(Duration::from_millis) {
            assert_eq!(broken(slow, |source, _| source.silences[0].1 = silent), Silent);
        }
        assert_eq!(broken(slow, |_, sinks| sinks[1].unreadable.push(String::new())), Formats);
        let lie = |source: &mut Seen, sinks: &mut [Seen; 3]| {
            source.lies = 1;
            sinks[2].events.swap(7, 8);
        };
        assert_eq!(broken(slow, lie), Liars);
    }

    #[test]
    fn a_format_that_cannot_be_read_is_found() {
        let other = Format::parse("news", "input { double number; };").unwrap();
        let found = breaches(&simulation(SLOW, |sink| sink.format = other));
        assert!(found.iter().any(|breach| breach.promise == Promise::Formats), "{found:?}");
    }
}
