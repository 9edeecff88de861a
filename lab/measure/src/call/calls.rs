//! Calls: a service in another process, beside `getppid` and a bare socket to the same process.

use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::process::Command;
use std::time::Instant as StdInstant;

use selvedge_comm_call::{
    Call, CallError, Client, Deferral, EventSink, Host, Layout, PutError, Service,
    SubscribeOptions, Subscription,
};
use selvedge_os::clock::{Clock, pin_to_core};
use selvedge_os::seqpacket;
use selvedge_units::Instant;

use super::{BenchError, ChildProcess, TIMEOUT, median};

/// What a call says: a value, such as a new QoS attribute.
const VALUE: [u8; 16] = [7; 16];
/// Deferred calls that come together.
const BATCH: usize = 64;

/// What calls cost the caller; medians of rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallCosts {
    /// `getppid`: into the kernel and back, and nothing else.
    pub system_call_ns: f64,
    /// A fast call.
    pub fast_ns: f64,
    /// One of 64 deferred calls that come together, the call that brings them included.
    pub deferred_ns: f64,
    /// A direct call, which wakes the host if it sleeps.
    pub direct_us: f64,
    /// A generic call, there and back.
    pub generic_us: f64,
    /// A bare message over a socket to the same process, there and back.
    pub socket_us: f64,
    /// The last two, in the same round: the median of the rounds.
    pub generic_over_socket: f64,
}

/// Answers with what it was called with.
struct Echo;

impl Service for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn call(&mut self, _: Instant, call: &Call<'_>, reply: &mut Vec<u8>) -> Result<(), CallError> {
        if call.wants_reply {
            reply.extend_from_slice(call.data);
        }
        Ok(())
    }

    fn run(&mut self, _: Instant, _: &mut dyn EventSink) -> Option<Instant> {
        None
    }
}

/// A host with the service, and a thread that answers by a bare socket.
pub(super) fn peer(directory: &str) -> Result<(), BenchError> {
    let directory = Path::new(directory);
    let _ = pin_to_core(1);
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    let host = Host::start(&directory.join("services"), None)?;
    let listener = seqpacket::listen_at(&directory.join("bare")).map_err(system)?;
    // Last, since it says that all is there.
    host.register(Box::new(Echo))?;
    if !seqpacket::wait_readable(&listener, TIMEOUT) {
        return Err(BenchError::Gone);
    }
    let socket = seqpacket::accept(&listener).map_err(system)?.ok_or(BenchError::Gone)?;
    rustix::fs::fcntl_setfl(&socket, rustix::fs::OFlags::empty())
        .map_err(|error| system(error.into()))?;
    let mut bytes = [0; 64];
    loop {
        match rustix::io::readv(&socket, &mut [IoSliceMut::new(&mut bytes)]) {
            // The other side has what it wanted.
            Ok(0) => return Ok(()),
            Ok(got) => {
                rustix::io::writev(&socket, &[IoSlice::new(&bytes[..got])])
                    .map_err(|error| system(error.into()))?;
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(system(error.into())),
        }
    }
}

/// Measures calls, in so many rounds. `start` gives the command that runs `super::peer` with the text that it
/// is handed; `directory` is this user's alone.
pub fn calls(
    directory: &Path,
    start: &dyn Fn(&str) -> Command,
    rounds: usize,
) -> Result<CallCosts, BenchError> {
    let _ = pin_to_core(0);
    let _other = ChildProcess::start(start(&format!("calls:{}", directory.display())))?;
    let clock = Clock::shared();
    let end = clock.now() + TIMEOUT;
    let services = directory.join("services");
    let mut client = loop {
        match Client::open(&services, "echo") {
            Ok(client) => break client,
            Err(error) if clock.now() > end => return Err(error.into()),
            Err(_) => std::thread::yield_now(),
        }
    };
    let system = |error: std::io::Error| BenchError::System(error.to_string());
    let bare = seqpacket::connect_to(&directory.join("bare")).map_err(system)?;
    rustix::fs::fcntl_setfl(&bare, rustix::fs::OFlags::empty())
        .map_err(|error| system(error.into()))?;
    let bits = Layout::Bits { entries: 64, size: 16 };
    let open = || Client::open(&services, "echo");
    let mut by_bits =
        open()?.subscribe(SubscribeOptions { calls: bits, ..SubscribeOptions::default() })?;
    let mut by_ring = open()?.subscribe(SubscribeOptions::default())?;
    let mut found: [Vec<f64>; 6] = Default::default();
    for _ in 0..rounds {
        let all = [
            each(2000, || {
                std::hint::black_box(rustix::process::getppid());
                Ok(())
            })?,
            each(2000, || by_bits.call_fast(Some(3), &VALUE).map_err(refused))?,
            deferred(&mut by_ring)?,
            direct(&mut by_ring, clock)?,
            each(100, || {
                client.call(&VALUE)?;
                Ok(())
            })?,
            each(100, || {
                let mut bytes = [0; 64];
                rustix::io::writev(&bare, &[IoSlice::new(&VALUE)])
                    .and_then(|_| rustix::io::readv(&bare, &mut [IoSliceMut::new(&mut bytes)]))
                    .map(|_| ())
                    .map_err(|error| system(error.into()))
            })?,
        ];
        for (list, ns) in found.iter_mut().zip(all) {
            list.push(ns);
        }
    }
    let [system_call, fast, deferred, direct, generic, socket] = &found;
    let of = |list: &[f64]| median(list.iter().copied());
    Ok(CallCosts {
        system_call_ns: of(system_call),
        fast_ns: of(fast),
        deferred_ns: of(deferred),
        direct_us: of(direct) / 1e3,
        generic_us: of(generic) / 1e3,
        socket_us: of(socket) / 1e3,
        generic_over_socket: median(generic.iter().zip(socket).map(|(ours, bare)| ours / bare)),
    })
}

fn refused(error: PutError) -> BenchError {
    BenchError::System(error.to_string())
}

/// Nanoseconds each of so many takes.
fn each(count: usize, mut one: impl FnMut() -> Result<(), BenchError>) -> Result<f64, BenchError> {
    let began = StdInstant::now();
    for _ in 0..count {
        one()?;
    }
    Ok(began.elapsed().as_nanos() as f64 / count as f64)
}

/// Batches: each call but the last waits for the next.
fn deferred(caller: &mut Subscription) -> Result<f64, BenchError> {
    let mut took = Vec::new();
    for _ in 0..20 {
        let began = StdInstant::now();
        for _ in 1..BATCH {
            caller.call_deferred(Deferral::NextCall, None, &VALUE).map_err(refused)?;
        }
        caller.call_direct(None, &VALUE).map_err(refused)?;
        took.push(began.elapsed().as_nanos() as f64 / BATCH as f64);
        // All were handed in when this is answered, and there is room again.
        caller.call(&[])?;
    }
    Ok(median(took))
}

/// Direct calls, to a host that sleeps.
fn direct(caller: &mut Subscription, clock: Clock) -> Result<f64, BenchError> {
    let mut took = Vec::new();
    for _ in 0..50 {
        clock.sleep_until(clock.now() + selvedge_units::Duration::from_micros(200));
        let began = StdInstant::now();
        caller.call_direct(None, &VALUE).map_err(refused)?;
        took.push(began.elapsed().as_nanos() as f64);
    }
    caller.call(&[])?;
    Ok(median(took))
}
