//! What elements that wait at the network interface cost the one that is at it.
//!
//! An endpoint's elements share one transmitter under a lock, and the kernel's socket below it. Here threads on
//! processors of their own do with them what elements do. The models of `ca-f6` to `ca-f9` take the figure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use selvedge_os::SocketError;
use selvedge_os::clock::Clock;
use selvedge_os::datagram_port::DatagramPort;
use selvedge_os::transmit::{Outgoing, TransmitOptions, Transmitter};
use selvedge_place_cpu::class::{self, Class, confine, processors};
use selvedge_units::{Bytes, Duration};

use crate::configurations::is_prioritised;
use crate::sink::Sink;

/// The size of a message, with its headers.
const SIZE: usize = 1024 + 18;
/// Nothing comes.
const RECEIVE_BUFFER: Bytes = Bytes(4096);

/// Datagrams a second through the interface: of one thread, and of two together.
#[derive(Clone, Copy, Debug)]
pub struct Sharing {
    /// One alone.
    pub alone: f64,
    /// Two.
    pub both: f64,
}

impl Sharing {
    /// By which part of its time at the interface a thread that waits slows the one that is there. The interface
    /// serves one at a time: two together send as much as one alone, less what the waiting costs.
    #[must_use]
    pub fn polling(&self) -> f64 {
        (self.alone / self.both.max(1.0) - 1.0).max(0.0)
    }
}

/// Measures it in so many rounds. With `apart` each thread has an interface of its own: for a counter-test.
///
/// # Errors
/// Of the sockets.
pub fn sharing(rounds: usize, lasts: Duration, apart: bool) -> Result<Vec<Sharing>, SocketError> {
    let sinks = [Sink::bind()?, Sink::bind()?];
    let make = || -> Result<_, SocketError> {
        let port = DatagramPort::bind(([127, 0, 0, 1], 0).into(), RECEIVE_BUFFER)?;
        Ok(Mutex::new(port.transmitter(Clock::shared(), TransmitOptions::default())?))
    };
    let transmitters = [make()?, make()?];
    let at = |n: usize| (&transmitters[n], &sinks[n]);
    let second = usize::from(apart);
    // The first run fills the other ends' buffers.
    rate(&[at(0), at(1)], lasts);
    let round =
        |_| Sharing { alone: rate(&[at(0)], lasts), both: rate(&[at(0), at(second)], lasts) };
    Ok((0..rounds).map(round).collect())
}

/// Datagrams a second of a thread for each of these interfaces.
fn rate(interfaces: &[(&Mutex<Transmitter>, &Sink)], lasts: Duration) -> f64 {
    let (stop, sent, message) = (&AtomicBool::new(false), &AtomicU64::new(0), &[1; SIZE]);
    let (clock, processors) = (Clock::shared(), &processors());
    thread::scope(|scope| {
        for (n, (transmitter, sink)) in interfaces.iter().enumerate() {
            scope.spawn(move || {
                // Below the thread that ends the run: of equal ones none would let it on a processor.
                if is_prioritised() {
                    let _ = class::set(0, Class::Fifo(1));
                }
                // A thread that can't be confined runs where the system puts it.
                let _ = confine(0, processors[n % processors.len()]);
                let outgoing = Outgoing { to: sink.address(), head: &[], bytes: message };
                while !stop.load(Ordering::Relaxed) {
                    let mut transmitter =
                        transmitter.lock().unwrap_or_else(PoisonError::into_inner);
                    transmitter.send_batch(&[outgoing]);
                    drop(transmitter);
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (begun, before) = (clock.now(), sent.load(Ordering::Relaxed));
        clock.sleep_until(begun + lasts);
        let (took, after) = (clock.now().since(begun), sent.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        (after - before) as f64 / took.as_secs_f64()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_costs_a_part_of_what_one_alone_does() {
        let sharing = |alone, both| Sharing { alone, both }.polling();
        assert_eq!(
            [sharing(100.0, 80.0), sharing(100.0, 50.0), sharing(1.0, 2.0)],
            [0.25, 1.0, 0.0]
        );
        let found = super::sharing(1, Duration::from_millis(20), true).unwrap();
        assert!(found.iter().all(|one| one.alone > 0.0 && one.both > 0.0), "{found:?}");
    }
}
