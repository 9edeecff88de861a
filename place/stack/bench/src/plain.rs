//! Plain UDP and TCP, a system call a message.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use selvedge_units::Bytes;

use crate::BenchError;
use crate::load::{self, ROUNDS, Trips};

const PATIENCE: Duration = Duration::from_millis(20);
/// For round trips: a datagram that is lost must not end the measurement.
const LONG: Duration = Duration::from_secs(5);

fn failed(transport: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    let text = |error: &dyn Display| error.to_string();
    move |error| BenchError { transport, why: text(&error) }
}

fn udp_pair(patience: Duration) -> Result<[UdpSocket; 2], BenchError> {
    let failed = failed("plain UDP");
    let make = || UdpSocket::bind("127.0.0.1:0").map_err(&failed);
    let pair = [make()?, make()?];
    for n in 0..2 {
        pair[n].connect(pair[1 - n].local_addr().map_err(&failed)?).map_err(&failed)?;
        pair[n].set_read_timeout(Some(patience)).map_err(&failed)?;
    }
    Ok(pair)
}

pub(crate) fn udp(size: Bytes, long: Duration) -> Result<f64, BenchError> {
    let [a, b] = udp_pair(PATIENCE)?;
    let (message, mut buffer) = (vec![1; size.0 as usize], vec![0; 65_536]);
    Ok(load::rate(long, || _ = a.send(&message), || b.recv(&mut buffer).ok()))
}

pub(crate) fn udp_trips() -> Result<Trips, BenchError> {
    let [a, b] = udp_pair(LONG)?;
    let (message, mut buffer, mut other) = ([1; 1000], [0; 2000], [0; 2000]);
    Ok(thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                if let Ok(len) = b.recv(&mut other) {
                    let _ = b.send(&other[..len]);
                }
            }
        });
        Trips::time(|| {
            let _ = a.send(&message);
            let _ = a.recv(&mut buffer);
        })
    }))
}

pub(crate) fn tcp_pair(patience: Duration) -> Result<[TcpStream; 2], BenchError> {
    let failed = failed("plain TCP");
    let listener = TcpListener::bind("127.0.0.1:0").map_err(&failed)?;
    let a = TcpStream::connect(listener.local_addr().map_err(&failed)?).map_err(&failed)?;
    let (b, _) = listener.accept().map_err(&failed)?;
    for end in [&a, &b] {
        end.set_nodelay(true).map_err(&failed)?;
        end.set_read_timeout(Some(patience)).map_err(&failed)?;
    }
    Ok([a, b])
}

pub(crate) fn tcp(size: Bytes, long: Duration) -> Result<f64, BenchError> {
    let [a, b] = tcp_pair(PATIENCE)?;
    Ok(stream(a, b, size, long))
}

/// Messages one after the other through a pair of streams.
pub(crate) fn stream(
    mut a: impl Write + Send,
    mut b: impl Read,
    size: Bytes,
    long: Duration,
) -> f64 {
    let (message, mut buffer) = (vec![1; size.0 as usize], vec![0; 65_536]);
    load::rate(
        long,
        || _ = a.write_all(&message),
        || b.read(&mut buffer).ok().filter(|&len| len > 0),
    )
}

pub(crate) fn tcp_trips() -> Result<Trips, BenchError> {
    let [a, b] = tcp_pair(LONG)?;
    Ok(stream_trips(a, b))
}

/// Messages to and fro through a pair of streams.
pub(crate) fn stream_trips(mut a: impl Read + Write, mut b: impl Read + Write + Send) -> Trips {
    let (message, mut buffer, mut other) = ([1; 1000], [0; 1000], [0; 1000]);
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                if b.read_exact(&mut other).is_ok() {
                    let _ = b.write_all(&other).and_then(|()| b.flush());
                }
            }
        });
        Trips::time(|| {
            let _ = a.write_all(&message).and_then(|()| a.flush());
            let _ = a.read_exact(&mut buffer);
        })
    })
}
