//! The kernel's time for a datagram: the network interface of the model.

use std::io;
use std::net::UdpSocket;

use selvedge_os::clock::Clock;
use selvedge_units::Instant;

use super::measured::median;

/// The number of calls that are timed at once.
const CALLS: u64 = 64;
/// The two sizes, 8 KiB apart.
const SIZES: [usize; 2] = [64, 64 + 8192];

/// Nanoseconds of a call that sends an empty datagram over the loopback, and of each 1024 bytes
/// more: medians of `rounds` rounds.
///
/// # Errors
/// The system's error if there is no loopback.
pub fn call(rounds: usize) -> io::Result<[f64; 2]> {
    let [from, to] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    from.connect(to.local_addr()?)?;
    to.set_nonblocking(true)?;
    let [small, large] = SIZES.map(|size| {
        let (message, mut read) = (vec![1; size], [0; 16_384]);
        let round = |_| {
            let clock = Clock::new();
            (0..CALLS).for_each(|_| _ = from.send(&message));
            let took = clock.now().since(Instant::ZERO);
            // Bounded by the capacity of the socket.
            while to.recv(&mut read).is_ok() {}
            took.0 as f64 / CALLS as f64
        };
        median((0..rounds.max(3)).map(round).collect())
    });
    let kilobyte = ((large - small) / 8.0).max(0.0);
    Ok([(small - kilobyte * SIZES[0] as f64 / 1024.0).max(0.0), kilobyte])
}
