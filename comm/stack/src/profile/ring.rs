//! The time that a ring of shared memory takes for a datagram: the network interface of `net(shm)`.

use std::hint::black_box;

use selvedge_data_memory::{MailboxSpec, mailbox};
use selvedge_os::clock::Clock;
use selvedge_units::Instant;

use super::measured::median;

/// The number of datagrams that are timed at once.
const DATAGRAMS: u64 = 16;
/// The two sizes, 8 KiB apart.
const SIZES: [usize; 2] = [64, 64 + 8192];

/// Nanoseconds of putting an empty datagram into a ring whose reader is awake, and of each 1024
/// bytes more; and of taking it out. Medians of `rounds` rounds.
#[must_use]
pub fn ring(rounds: usize) -> [[f64; 2]; 2] {
    let spec = MailboxSpec { capacity: 256 << 10, bound: 8192, overwrites: false };
    let (mut writer, mut reader) = mailbox(spec);
    let [small, large] = SIZES.map(|size| {
        let message = vec![1; size];
        let mut took = [Vec::new(), Vec::new()];
        for _ in 0..rounds.max(3) {
            let clock = Clock::new();
            for _ in 0..DATAGRAMS {
                let _ = black_box(writer.put(u64::MAX, &message));
                let _ = writer.flush();
            }
            let put = clock.now();
            // Bounded by the number of datagrams that were put in.
            while let Ok(Some(mail)) = reader.take() {
                black_box(mail.bytes);
            }
            let [down, up] = [put.since(Instant::ZERO), clock.now().since(put)];
            took[0].push(down.0 as f64 / DATAGRAMS as f64);
            took[1].push(up.0 as f64 / DATAGRAMS as f64);
        }
        took.map(median)
    });
    [0, 1].map(|way| {
        let kilobyte = ((large[way] - small[way]) / 8.0).max(0.0);
        [(small[way] - kilobyte * SIZES[0] as f64 / 1024.0).max(0.0), kilobyte]
    })
}
