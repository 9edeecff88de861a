//! Throughput and latency of stacks on the loopback, beside plain UDP and TCP, TCP with TLS
//! (rustls) and QUIC (quinn), in one run: the table of `selvedge-lab bench stack`.
//!
//! Every transport sends messages of two sizes from one thread to another, as fast as it can, and
//! what arrives is counted; then messages of 1 kB go to and fro one by one. The whole table is
//! measured several times over, and each figure is a median, so that what disturbs the machine for a
//! moment disturbs all alike.

#![forbid(unsafe_code)]

pub mod configurations;
pub mod firm;
pub mod interface;
mod load;
mod plain;
#[cfg(feature = "peers")]
mod quic;
mod sink;
mod stacks;
#[cfg(feature = "peers")]
mod tls;

use std::time::Duration as StdDuration;

use selvedge_units::{Bytes, Duration};

pub use self::load::Trips;

/// The sizes of messages.
pub const SIZES: [Bytes; 2] = [Bytes(1000), Bytes(64_000)];

/// What was asked and can't be measured.
#[derive(Debug, thiserror::Error)]
#[error("{transport}: {why}")]
pub struct BenchError {
    /// Of which transport.
    pub transport: &'static str,
    /// What went wrong.
    pub why: String,
}

/// One transport's figures.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its name, and its stack's line if it is one.
    pub name: &'static str,
    /// The line of a stack.
    pub line: Option<&'static str>,
    /// Bytes a second received, for each of [`SIZES`].
    pub rates: [f64; 2],
    /// Round trips of 1 kB.
    pub trips: Trips,
}

type Rate = fn(Bytes, StdDuration) -> Result<f64, BenchError>;
type RoundTrips = fn() -> Result<Trips, BenchError>;

struct Transport {
    name: &'static str,
    line: Option<&'static str>,
    rate: Box<dyn Fn(Bytes, StdDuration) -> Result<f64, BenchError>>,
    trips: Box<dyn Fn() -> Result<Trips, BenchError>>,
}

fn other(name: &'static str, rate: Rate, trips: RoundTrips) -> Transport {
    Transport { name, line: None, rate: Box::new(rate), trips: Box::new(trips) }
}

fn stack(name: &'static str, line: &'static str) -> Transport {
    stack_with(name, line, false)
}

/// Below which the secure layer is.
fn sealed(name: &'static str, line: &'static str) -> Transport {
    stack_with(name, line, true)
}

fn stack_with(name: &'static str, line: &'static str, is_sealed: bool) -> Transport {
    Transport {
        name,
        line: Some(line),
        rate: Box::new(move |size, long| stacks::rate(line, 0, is_sealed, size, long.into())),
        trips: Box::new(move || stacks::trips(line, is_sealed)),
    }
}

fn transports() -> Vec<Transport> {
    let mut all = vec![
        other("plain UDP", plain::udp, plain::udp_trips),
        other("plain UDP, in batches", plain::udp_batches, plain::udp_trips),
        stack("unreliable", "ui | unreliable | net"),
        Transport {
            name: "unreliable, posted buffers",
            line: Some("ui | unreliable | net"),
            rate: Box::new(|size, long| {
                stacks::rate_posted("ui | unreliable | net", size, long.into())
            }),
            trips: Box::new(|| stacks::trips("ui | unreliable | net", false)),
        },
        stack("unreliable, shared memory", "ui | unreliable | net(shm)"),
        stack("unreliable, encrypted", "ui | encrypt(aes256) | unreliable | net"),
        other("plain TCP", plain::tcp, plain::tcp_trips),
        stack("reliable", "ui | reliable | net"),
    ];
    #[cfg(feature = "peers")]
    all.extend([
        other("TCP and TLS (rustls)", tls::rate, tls::trips),
        other("QUIC (quinn)", quic::rate, quic::trips),
        other("QUIC (quinn), largest datagrams", quic::rate_large, quic::trips_large),
    ]);
    all.extend([
        stack("reliable, encrypted", "ui | encrypt(aes256) | reliable | net"),
        Transport {
            name: "reliable, encrypted by master and slave",
            line: Some("ui | encrypt(aes256) | reliable | net"),
            rate: Box::new(|size, long| {
                stacks::rate("ui | encrypt(aes256) | reliable | net", 1, false, size, long.into())
            }),
            trips: Box::new(|| stacks::trips("ui | encrypt(aes256) | reliable | net", false)),
        },
        stack(
            "reliable, encrypted, datagrams of 1400 B",
            "ui | encrypt(aes256) | reliable | frag(1400) | net",
        ),
        sealed("unreliable, sealed", "ui | unreliable | net"),
        sealed("reliable, sealed", "ui | reliable | net"),
        sealed("reliable, sealed, datagrams of 1400 B", "ui | reliable | frag(1400) | net"),
    ]);
    all
}

/// Measures all transports `rounds` times, each figure for `long` at once. `watch` is called with
/// the name of what comes next.
///
/// # Errors
/// [`BenchError`], of the first that can't be measured.
pub fn rows(
    rounds: usize,
    long: StdDuration,
    mut watch: impl FnMut(&str),
) -> Result<Vec<Row>, BenchError> {
    let transports = transports();
    let mut found: Vec<[Vec<f64>; 4]> = transports.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds.max(1) {
        for (transport, found) in transports.iter().zip(&mut found) {
            watch(transport.name);
            for (size, rates) in SIZES.into_iter().zip(&mut found[..2]) {
                rates.push((transport.rate)(size, long)?);
            }
            let Trips { median, p99 } = (transport.trips)()?;
            found[2].push(median.0 as f64);
            found[3].push(p99.0 as f64);
        }
    }
    let row = |(transport, found): (Transport, [Vec<f64>; 4])| {
        let [small, large, median, p99] = found.map(load::median);
        let span = |nanos: f64| Duration(nanos as u64);
        Row {
            name: transport.name,
            line: transport.line,
            rates: [small, large],
            trips: Trips { median: span(median), p99: span(p99) },
        }
    };
    Ok(transports.into_iter().zip(found).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_transport_carries_messages() {
        let rows = rows(1, StdDuration::from_millis(30), |_| {}).unwrap();
        assert!(rows.len() >= 7);
        for row in rows {
            assert!(row.rates.iter().all(|&rate| rate > 0.0), "{row:?}");
            assert!(
                row.trips.median > Duration::ZERO && row.trips.p99 >= row.trips.median,
                "{row:?}"
            );
        }
    }
}
