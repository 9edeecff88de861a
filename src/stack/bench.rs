//! Throughput and latency of stacks on the loopback, beside plain UDP and plain TCP, in one run.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selvedge_host_stack::endpoint::{Connection, Endpoint, Options};
use selvedge_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_units::{Bytes, Span};

use crate::cli::Failure;
use crate::table::{Align, Table};

const SIZES: [usize; 2] = [1000, 64_000];
const ROUNDS: usize = 2000;
const LONG: Duration = Duration::from_secs(5);
const LINES: [(&str, &str); 4] = [
    ("unreliable", "ui | unreliable | net"),
    ("reliable", "ui | reliable | net"),
    ("unreliable, encrypted", "ui | encrypt(aes256) | unreliable | net"),
    ("reliable, encrypted", "ui | encrypt(aes256) | reliable | net"),
];

/// Megabytes a second received.
type Rate = f64;

pub(super) fn command(seconds: u64) -> Result<(), Failure> {
    let long = Duration::from_secs(seconds);
    let mut table = Table::new(&[
        ("", Align::Left),
        ("1 kB, MB/s", Align::Right),
        ("64 kB, MB/s", Align::Right),
        ("50th, us", Align::Right),
        ("99th, us", Align::Right),
    ]);
    let mut row = |name: &str, rates: [Rate; 2], trips: [f64; 2]| {
        let rates = rates.map(|rate| format!("{rate:.1}"));
        let trips = trips.map(|micros| format!("{micros:.1}"));
        table.row([name.to_owned()].into_iter().chain(rates).chain(trips));
    };
    row("plain UDP", [udp(SIZES[0], long)?, udp(SIZES[1], long)?], udp_trips()?);
    row("plain TCP", [tcp(SIZES[0], long)?, tcp(SIZES[1], long)?], tcp_trips()?);
    for (name, line) in LINES {
        let rates = [stack(line, SIZES[0], long)?, stack(line, SIZES[1], long)?];
        row(name, rates, stack_trips(line)?);
    }
    let mut out = std::io::stdout().lock();
    write!(out, "{table}")?;
    writeln!(
        out,
        "Throughput as received; latency of a round trip of 1 kB, over {ROUNDS} of them."
    )?;
    Ok(out.flush()?)
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("bench: {error}"))
}

fn rate(bytes: u64, took: Duration) -> Rate {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

/// Sends on a thread for as long as it lasts, and returns what `receive` counted.
fn measure(
    long: Duration,
    mut send: impl FnMut() + Send,
    mut receive: impl FnMut() -> Option<usize>,
) -> Rate {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                send();
            }
        });
        let (start, mut bytes) = (Instant::now(), 0);
        while start.elapsed() < long {
            bytes += receive().unwrap_or(0) as u64;
        }
        let found = rate(bytes, start.elapsed());
        stop.store(true, Ordering::Relaxed);
        // A sender that waits for room must get it.
        while receive().is_some() {}
        found
    })
}

fn percentiles(mut trips: Vec<Duration>) -> [f64; 2] {
    trips.sort_unstable();
    let at = |part: usize| {
        trips.get(trips.len() * part / 100).map_or(0.0, |trip| trip.as_nanos() as f64 / 1e3)
    };
    [at(50), at(99)]
}

fn udp_pair() -> Result<[UdpSocket; 2], Failure> {
    let make = || UdpSocket::bind("127.0.0.1:0").map_err(failed);
    let pair = [make()?, make()?];
    for n in 0..2 {
        pair[n].connect(pair[1 - n].local_addr().map_err(failed)?).map_err(failed)?;
        pair[n].set_read_timeout(Some(Duration::from_millis(20))).map_err(failed)?;
    }
    Ok(pair)
}

fn udp(size: usize, long: Duration) -> Result<Rate, Failure> {
    let [a, b] = udp_pair()?;
    let (message, mut buffer) = (vec![1; size], vec![0; 65_536]);
    Ok(measure(long, || _ = a.send(&message), || b.recv(&mut buffer).ok()))
}

fn udp_trips() -> Result<[f64; 2], Failure> {
    let [a, b] = udp_pair()?;
    let (message, mut buffer, mut other) = ([1; 1000], [0; 2000], [0; 2000]);
    let trips = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                if let Ok(len) = b.recv(&mut other) {
                    let _ = b.send(&other[..len]);
                }
            }
        });
        let trip = |_| {
            let start = Instant::now();
            let _ = a.send(&message);
            let _ = a.recv(&mut buffer);
            start.elapsed()
        };
        (0..ROUNDS).map(trip).collect()
    });
    Ok(percentiles(trips))
}

fn tcp_pair() -> Result<[TcpStream; 2], Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let a = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
    let (b, _) = listener.accept().map_err(failed)?;
    for end in [&a, &b] {
        end.set_nodelay(true).map_err(failed)?;
        end.set_read_timeout(Some(Duration::from_millis(20))).map_err(failed)?;
    }
    Ok([a, b])
}

fn tcp(size: usize, long: Duration) -> Result<Rate, Failure> {
    let [mut a, mut b] = tcp_pair()?;
    let (message, mut buffer) = (vec![1; size], vec![0; 65_536]);
    Ok(measure(
        long,
        || _ = a.write_all(&message),
        || b.read(&mut buffer).ok().filter(|&len| len > 0),
    ))
}

fn tcp_trips() -> Result<[f64; 2], Failure> {
    let [mut a, mut b] = tcp_pair()?;
    let (message, mut buffer, mut other) = ([1; 1000], [0; 1000], [0; 1000]);
    let trips = thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                if b.read_exact(&mut other).is_ok() {
                    let _ = b.write_all(&other);
                }
            }
        });
        let trip = |_| {
            let start = Instant::now();
            let _ = a.write_all(&message);
            let _ = a.read_exact(&mut buffer);
            start.elapsed()
        };
        (0..ROUNDS).map(trip).collect()
    });
    Ok(percentiles(trips))
}

/// Two endpoints and a connection between them; the contract is one that always fits.
fn connected(line: &str) -> Result<(Endpoint, Endpoint, Connection, Connection), Failure> {
    let make = || {
        let at = ([127, 0, 0, 1], 0).into();
        Endpoint::bind(at, Options { elements: 1, ..Options::default() }).map_err(failed)
    };
    let (a, b) = (make()?, make()?);
    // What is measured is the most that goes through, so nothing is policed.
    let calm =
        selvedge_stack::auto::Meta { activation: Span::from_secs(1 << 30), ..Default::default() };
    a.set(calm);
    b.set(calm);
    let easy = Contract {
        traffic: Traffic::steady(Span::from_millis(100), Bytes(64_000)),
        quality: Quality { delay: Span::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    };
    let peer = b.address().map_err(failed)?;
    let here = a.connect(peer, line, easy, easy).map_err(failed)?;
    let there = b.accept(LONG).ok_or_else(|| failed("nobody connected"))?;
    Ok((a, b, here, there))
}

fn stack(line: &str, size: usize, long: Duration) -> Result<Rate, Failure> {
    let (_a, _b, here, there) = connected(line)?;
    let (message, mut buffer) = (vec![1; size], Vec::new());
    let send = || _ = here.send(&message, Duration::from_millis(100));
    Ok(measure(long, send, || {
        there.recv(&mut buffer, Duration::from_millis(20)).ok().map(|()| buffer.len())
    }))
}

fn stack_trips(line: &str) -> Result<[f64; 2], Failure> {
    let (_a, _b, here, there) = connected(line)?;
    let (message, mut buffer) = ([1; 1000], Vec::new());
    let trips = thread::scope(|scope| {
        scope.spawn(move || {
            let mut other = Vec::new();
            for _ in 0..ROUNDS {
                if there.recv(&mut other, LONG).is_ok() {
                    let _ = there.send(&other, LONG);
                }
            }
        });
        let trip = |_| {
            let start = Instant::now();
            let _ = here.send(&message, LONG);
            let _ = here.recv(&mut buffer, LONG);
            start.elapsed()
        };
        (0..ROUNDS).map(trip).collect()
    });
    Ok(percentiles(trips))
}
