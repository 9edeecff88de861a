//! Plain UDP and TCP, a system call a message; and UDP by as few calls as the kernel allows.

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration as StdDuration;

use selvedge_os::clock::Clock;
use selvedge_os::datagram_port::DatagramPort;
use selvedge_os::transmit::{Outgoing, TransmitOptions};
use selvedge_units::{Bytes, Duration};

use crate::BenchError;
use crate::load::{self, ROUNDS, Trips};

const TIMEOUT: StdDuration = StdDuration::from_millis(20);
/// For round trips: a datagram that is lost must not end the measurement.
const LONG: StdDuration = StdDuration::from_secs(5);

fn failed(transport: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    let text = |error: &dyn Display| error.to_string();
    move |error| BenchError { transport, why: text(&error) }
}

fn udp_pair(patience: StdDuration) -> Result<[UdpSocket; 2], BenchError> {
    let failed = failed("plain UDP");
    let make = || UdpSocket::bind("127.0.0.1:0").map_err(&failed);
    let pair = [make()?, make()?];
    for n in 0..2 {
        pair[n].connect(pair[1 - n].local_addr().map_err(&failed)?).map_err(&failed)?;
        pair[n].set_read_timeout(Some(patience)).map_err(&failed)?;
    }
    Ok(pair)
}

pub(crate) fn udp(size: Bytes, long: StdDuration) -> Result<f64, BenchError> {
    let [a, b] = udp_pair(TIMEOUT)?;
    let (message, mut buffer) = (vec![1; size.0 as usize], vec![0; 65_536]);
    Ok(load::rate(long, || _ = a.send(&message), || b.recv(&mut buffer).ok()))
}

/// Messages of one call.
const BATCH: usize = 32;

/// As many messages in a call as there are of use, cut and joined by the kernel (GSO, GRO).
pub(crate) fn udp_batches(size: Bytes, long: StdDuration) -> Result<f64, BenchError> {
    let failed = |error: &dyn Display| BenchError {
        transport: "plain UDP, in batches",
        why: error.to_string(),
    };
    let port = || {
        DatagramPort::bind(([127, 0, 0, 1], 0).into(), Bytes(2 << 20))
            .map_err(|error| failed(&error))
    };
    let (a, b) = (port()?, port()?);
    let options = TransmitOptions::default();
    let transmitter = a.transmitter(Clock::new(), options);
    let mut transmitter = transmitter.map_err(|error| failed(&error))?;
    let mut reader = b.reader().map_err(|error| failed(&error))?;
    let (message, to) = (vec![1; size.0 as usize], b.address());
    let batch = [Outgoing { to, head: &[], bytes: &message }; BATCH];
    Ok(load::rate(
        long,
        || _ = transmitter.send_batch(&batch),
        || {
            let mut bytes = 0;
            for wait in [Duration::ZERO, Duration(TIMEOUT.as_nanos() as u64)] {
                if wait == Duration::ZERO || reader.wait(wait) {
                    reader.read(|datagram, _| bytes += datagram.len());
                }
                if bytes > 0 {
                    return Some(bytes);
                }
            }
            None
        },
    ))
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

pub(crate) fn tcp_pair(patience: StdDuration) -> Result<[TcpStream; 2], BenchError> {
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

pub(crate) fn tcp(size: Bytes, long: StdDuration) -> Result<f64, BenchError> {
    let [a, b] = tcp_pair(TIMEOUT)?;
    Ok(stream(a, b, size, long))
}

/// Messages one after the other through a pair of streams.
pub(crate) fn stream(
    mut a: impl Write + Send,
    mut b: impl Read,
    size: Bytes,
    long: StdDuration,
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
