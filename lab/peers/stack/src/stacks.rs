//! Stacks: two endpoints with a connection between them, by the calls that any program makes.

use std::fmt::Display;
use std::thread;

use selvedge_comm_stack::endpoint::{Connection, Endpoint, Options};
use selvedge_data_net_secure::{Identity, Key};
use selvedge_data_stack::auto::ManagerSettings;
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_units::{Bytes, Duration};

use crate::BenchError;
use crate::load::{self, ROUNDS, Trips};

const LONG: Duration = Duration::from_secs(5);

fn failed(error: impl Display) -> BenchError {
    BenchError { transport: "stack", why: error.to_string() }
}

/// Two endpoints and a connection between them; the contract is one that always fits.
fn connected(
    line: &str,
    slaves: u8,
    is_sealed: bool,
) -> Result<(Endpoint, Endpoint, Connection, Connection), BenchError> {
    let make = || {
        let at = ([127, 0, 0, 1], 0).into();
        let identity = if is_sealed { Identity::Secret(Key([7; 32])) } else { Identity::Open };
        let options = Options { elements: 1, slaves, identity, ..Options::default() };
        Endpoint::bind(at, options).map_err(failed)
    };
    let (a, b) = (make()?, make()?);
    // What is measured is the most that goes through, so nothing is policed.
    let calm =
        ManagerSettings { activation: Duration::from_secs(1 << 30), ..ManagerSettings::default() };
    a.set(calm);
    b.set(calm);
    let easy = Contract {
        traffic: Traffic::steady(Duration::from_millis(100), Bytes(64_000)),
        quality: Quality { delay: Duration::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    };
    let here = a.connect(b.address(), line, easy, easy).map_err(failed)?;
    let there = b.accept(LONG).ok_or_else(|| failed("nobody connected"))?;
    Ok((a, b, here, there))
}

/// With so many slaves that share the encryption of large messages.
pub(crate) fn rate(
    line: &str,
    slaves: u8,
    is_sealed: bool,
    size: Bytes,
    long: Duration,
) -> Result<f64, BenchError> {
    let (_a, _b, here, there) = connected(line, slaves, is_sealed)?;
    let (message, mut buffer) = (vec![1; size.0 as usize], Vec::new());
    let send = || _ = here.send(&message, Duration::from_millis(100));
    Ok(load::rate(long.into(), send, || {
        there.recv(&mut buffer, Duration::from_millis(20)).ok().map(|()| buffer.len())
    }))
}

/// The same by posted buffers: nothing is copied between application and stack.
pub(crate) fn rate_posted(line: &str, size: Bytes, long: Duration) -> Result<f64, BenchError> {
    let (_a, _b, here, there) = connected(line, 0, false)?;
    let send = || {
        let mut buffer = here.buffer(size.0 as usize);
        if let Some(first) = buffer.first_mut() {
            *first = 1;
        }
        let _ = here.post(buffer, Duration::from_millis(100));
    };
    Ok(load::rate(long.into(), send, || {
        there.take(Duration::from_millis(20)).ok().map(|buffer| buffer.len())
    }))
}

pub(crate) fn trips(line: &str, is_sealed: bool) -> Result<Trips, BenchError> {
    let (_a, _b, here, there) = connected(line, 0, is_sealed)?;
    let (message, mut buffer) = ([1; 1000], Vec::new());
    Ok(thread::scope(|scope| {
        scope.spawn(move || {
            let mut other = Vec::new();
            for _ in 0..ROUNDS {
                if there.recv(&mut other, LONG).is_ok() {
                    let _ = there.send(&other, LONG);
                }
            }
        });
        Trips::time(|| {
            let _ = here.send(&message, LONG);
            let _ = here.recv(&mut buffer, LONG);
        })
    }))
}
