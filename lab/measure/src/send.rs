//! How fast packets go out: the same loop around [`Transmitter`] for plain sending and for any
//! other way of choosing the next packet, so that their ratio is the cost of choosing.
//!
//! Packets go to loopback sockets that never read, as full as they get: the kernel drops there,
//! after all of the sender's work. Samples are short (a time slice or less) and interleaved, and
//! medians are taken, so that other work on the machine disturbs both sides alike.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

use selvedge_units::{Bytes, Duration};
use serde::{Deserialize, Serialize};

use selvedge_os::clock::Clock;
use selvedge_os::namespace::{self, Veth};
use selvedge_os::socket::{self, SocketError};
use selvedge_os::transmit::{Fate, Method, Outgoing, TransmitOptions, Transmitter};

use crate::median;

/// Length of one sample.
const SAMPLE: Duration = Duration::from_micros(1_500);
/// Packets per call of the transmitter.
pub const BATCH: usize = 64;
/// Samples that are thrown away over a wire: some 50 ms.
const WARM_UP: usize = 32;

/// Packets of some streams, and sockets to send them to.
#[derive(Debug)]
pub struct SendLoop {
    clock: Clock,
    transmitter: Transmitter,
    /// A packet for each stream.
    packets: Vec<Vec<u8>>,
    destinations: Vec<SocketAddr>,
    /// Bound, never read.
    _sinks: Vec<OwnedFd>,
}

/// What one run of the loop did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendSample {
    /// Packets sent.
    pub packets: u64,
    /// How long that took.
    pub took: Duration,
}

impl SendSample {
    /// Nanoseconds per packet; `None` if none was sent.
    #[must_use]
    pub fn nanos_per_packet(self) -> Option<f64> {
        (self.packets > 0).then(|| self.took.0 as f64 / self.packets as f64)
    }
}

/// Plain sending, measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendBench {
    /// The method in use, after any fallback.
    pub method: String,
    /// Size of each datagram, headers of IP and UDP not included.
    pub packet_bytes: u64,
    /// Streams, served in turn.
    pub streams: usize,
    /// Samples taken.
    pub samples: usize,
    /// Median over the samples.
    pub nanos_per_packet: f64,
    /// The same, the other way round.
    pub packets_per_second: f64,
}

/// Two ways of choosing the next packet, measured in turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendComparison {
    /// Plain sending.
    pub plain: SendBench,
    /// Median of the other way, nanoseconds per packet.
    pub nanos_per_packet: f64,
    /// Median over neighbouring samples of plain time / other time: the share of plain sending's
    /// rate that is left.
    pub rate_share: f64,
}

impl SendLoop {
    /// Prepares packets of this size for so many streams (at least one each), which are spread
    /// over so many destinations. GSO joins only packets to the same destination.
    pub fn new(
        clock: Clock,
        method: Method,
        packet: Bytes,
        streams: usize,
        destinations: usize,
    ) -> Result<Self, SocketError> {
        let options = TransmitOptions { method, ..TransmitOptions::default() };
        let transmitter = Transmitter::new(clock, options)?;
        let bound = (0..destinations.max(1))
            .map(|_| socket::open_bound((Ipv4Addr::LOCALHOST, 0).into()))
            .collect::<Result<Vec<_>, _>>()?;
        let (sinks, destinations) = bound.into_iter().unzip();
        let size = usize::try_from(packet.0.clamp(1, 65_507)).unwrap_or(65_507);
        let packets = vec![vec![0; size]; streams.max(1)];
        Ok(Self { clock, transmitter, packets, destinations, _sinks: sinks })
    }

    /// The transmitter, for its method and counters.
    #[must_use]
    pub const fn transmitter(&self) -> &Transmitter {
        &self.transmitter
    }

    /// Sends for about this long, in batches of `batch` packets (at least one); each is the
    /// packet of the stream that `next` names (modulo the number of streams).
    pub fn run(
        &mut self,
        loop_for: Duration,
        batch: usize,
        next: &mut impl FnMut() -> usize,
    ) -> SendSample {
        let mut outgoing = Vec::with_capacity(batch.max(1));
        let mut sample = SendSample::default();
        let start = self.clock.now();
        while sample.took < loop_for {
            outgoing.clear();
            outgoing.extend((0..batch.max(1)).map(|_| {
                let stream = next() % self.packets.len();
                Outgoing {
                    to: self.destinations[stream % self.destinations.len()],
                    head: &[],
                    bytes: &self.packets[stream],
                }
            }));
            let fates = self.transmitter.send_batch(&outgoing);
            sample.packets += fates.iter().filter(|&&fate| fate == Fate::Sent).count() as u64;
            sample.took = self.clock.now().since(start);
        }
        sample
    }

    fn summary(&self, samples: &[SendSample]) -> SendBench {
        let nanos = median(samples.iter().filter_map(|sample| sample.nanos_per_packet()));
        SendBench {
            method: self.transmitter.method().name().into(),
            packet_bytes: self.packets.first().map_or(0, Vec::len) as u64,
            streams: self.packets.len(),
            samples: samples.len(),
            nanos_per_packet: nanos,
            packets_per_second: if nanos > 0.0 { 1e9 / nanos } else { 0.0 },
        }
    }
}

/// Measures plain sending, streams in turn, for about `total`.
pub fn send(
    total: Duration,
    method: Method,
    packet: Bytes,
    streams: usize,
) -> Result<SendBench, SocketError> {
    let mut sending = SendLoop::new(Clock::new(), method, packet, streams, 1)?;
    let mut plain = in_turn(streams);
    sending.run(SAMPLE, BATCH, &mut plain);
    let samples: Vec<_> =
        (0..sample_count(total)).map(|_| sending.run(SAMPLE, BATCH, &mut plain)).collect();
    Ok(sending.summary(&samples))
}

/// Measures plain sending of one stream over a wire between two network namespaces of its own (veth),
/// by each of these methods in turns, for about `total`.
///
/// # Errors
/// If there are no namespaces to be had, or no sockets.
pub fn send_over_wire(
    total: Duration,
    methods: &[Method],
    packet: Bytes,
) -> std::io::Result<Vec<SendBench>> {
    let measure = || {
        let wire = Veth::new()?;
        let (_sink, to) = namespace::listener(&wire)?;
        let mut loops = Vec::with_capacity(methods.len());
        for &method in methods {
            let mut sending =
                SendLoop::new(Clock::new(), method, packet, 1, 1).map_err(std::io::Error::other)?;
            sending.destinations = vec![to];
            // Until the neighbour is known, by whose address on the wire AF_XDP sends.
            for _ in 0..WARM_UP {
                sending.run(SAMPLE, BATCH, &mut in_turn(1));
            }
            loops.push((sending, Vec::new()));
        }
        for _ in 0..sample_count(total).div_ceil(methods.len().max(1)) {
            for (sending, samples) in &mut loops {
                samples.push(sending.run(SAMPLE, BATCH, &mut in_turn(1)));
            }
        }
        Ok(loops.iter().map(|(sending, samples)| sending.summary(samples)).collect())
    };
    namespace::alone(measure).flatten()
}

/// Measures plain sending, of what `plain` names at no cost of its own, against sending what
/// `next` names, sample by sample in turns, for about `total`.
pub fn compare(
    total: Duration,
    sending: &mut SendLoop,
    plain: &mut impl FnMut() -> usize,
    next: &mut impl FnMut() -> usize,
) -> SendComparison {
    sending.run(SAMPLE, BATCH, plain);
    sending.run(SAMPLE, BATCH, next);
    let pairs: Vec<_> = (0..sample_count(total).div_ceil(2))
        .map(|_| (sending.run(SAMPLE, BATCH, plain), sending.run(SAMPLE, BATCH, next)))
        .collect();
    let (plain, other): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let share = |(plain, other): &(SendSample, SendSample)| {
        Some(plain.nanos_per_packet()? / other.nanos_per_packet()?)
    };
    SendComparison {
        plain: sending.summary(&plain),
        nanos_per_packet: median(other.iter().filter_map(|s| s.nanos_per_packet())),
        rate_share: median(pairs.iter().filter_map(share)),
    }
}

fn in_turn(streams: usize) -> impl FnMut() -> usize {
    let streams = streams.max(1);
    let mut stream = 0;
    move || {
        stream = if stream + 1 < streams { stream + 1 } else { 0 };
        stream
    }
}

fn sample_count(total: Duration) -> usize {
    usize::try_from(total.0 / SAMPLE.0).unwrap_or(usize::MAX).clamp(3, 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sends_what_it_is_asked_to() {
        let method = Method::SendMmsg;
        let mut sending = SendLoop::new(Clock::new(), method, Bytes(100), 4, 2).unwrap();
        let mut asked = 0;
        let sample = sending.run(Duration::from_micros(1), 10, &mut || {
            asked += 1;
            asked
        });
        let counters = sending.transmitter().counters();
        assert_eq!((sample.packets, counters.packets), (asked as u64, asked as u64));
        assert_eq!(counters.bytes, Bytes(100 * asked as u64));
        assert!(sample.took > Duration::ZERO);
    }

    #[test]
    fn both_sides_of_a_comparison_are_measured() {
        let mut sending = SendLoop::new(Clock::new(), Method::Gso, Bytes(1200), 8, 1).unwrap();
        let mut calls = 0_u64;
        let seen = compare(Duration::from_millis(20), &mut sending, &mut in_turn(2), &mut || {
            calls += 1;
            0
        });
        assert!(calls > 0 && seen.plain.samples >= 3);
        assert!(seen.rate_share > 0.0 && seen.nanos_per_packet > 0.0);
        let plain = send(Duration::ZERO, Method::SendMsg, Bytes(64), 1).unwrap();
        assert_eq!((plain.samples, plain.packet_bytes), (3, 64));
        assert_eq!(plain.method, "sendmsg");
        assert!(plain.packets_per_second > 0.0);
    }

    #[test]
    fn ways_of_sending_are_measured_over_a_wire() {
        let methods = [Method::SendMmsg, Method::Xdp];
        match send_over_wire(Duration::ZERO, &methods, Bytes(200)) {
            Ok(measured) => {
                let names: Vec<&str> = measured.iter().map(|bench| &*bench.method).collect();
                assert_eq!(names, ["sendmmsg", "xdp"]);
                assert!(measured.iter().all(|bench| bench.packets_per_second > 0.0));
            }
            Err(why) => {
                eprintln!("SKIPPED ways_of_sending_are_measured_over_a_wire: {why}");
            }
        }
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median(std::iter::empty()), 0.0);
    }
}
