//! Departure times. Where the route to a receiver leads through a qdisc that holds packets until their time
//! (`fq`, `etf`), a burst goes to the kernel at once and leaves the device at the link's rate.
//!
//! `etf` drops packets that have no time or arrive late, and releases a packet its `delta` before its time.
//! So there each packet states a time that is `delta` after its departure: the kernel may be late by this
//! much.
//!
//! The engine gives each packet the time that it would have without a burst (`data/link`, `spaced`). `fq`
//! takes 100 packets of a socket (its `flow_limit`), so the engine leaves at most [`HELD_MAX`] with it.

use std::collections::VecDeque;
use std::net::IpAddr;

use selvedge_os::clock::Clock;
use selvedge_os::netlink::Netlink;
use selvedge_os::route::{self, Holding};
use selvedge_os::transmit::Transmitter;
use selvedge_units::Instant;

/// The most packets that the kernel may hold.
const HELD_MAX: usize = 64;

/// The packets that the kernel holds, and the addresses for which it holds packets.
#[derive(Debug)]
pub(super) struct Departures {
    /// The address of the last query, and the result: streams mostly go the same way.
    asked: Option<(IpAddr, Option<Holding>)>,
    /// Times are on the clock of an `etf`: packets through an `fq` then state none, since a socket has one
    /// clock.
    by_etf: bool,
    /// The departure times of the packets that the kernel holds, the earliest first.
    held: VecDeque<Instant>,
}

impl Departures {
    pub(super) fn new() -> Self {
        Self { asked: None, by_etf: false, held: VecDeque::with_capacity(HELD_MAX) }
    }

    /// The qdisc that holds packets to this address until their departure times; prepares the sockets for it.
    pub(super) fn reach(&mut self, to: IpAddr, transmitter: &mut Transmitter) -> Option<Holding> {
        if let Some((_, answer)) = self.asked.filter(|(last, _)| *last == to) {
            return answer;
        }
        // Without an answer, packets are sent without times.
        let holding = Netlink::open().and_then(|netlink| {
            let device = route::to(&netlink, to)?.device;
            route::holding(&netlink, device)
        });
        let usable = |holding: &Holding| !self.by_etf || *holding != Holding::Fq;
        let answer = holding.ok().flatten().filter(usable);
        let answer = answer.filter(|holding| transmitter.allow_departures(*holding));
        self.by_etf |= matches!(answer, Some(Holding::Etf { .. }));
        self.asked = Some((to, answer));
        answer
    }

    /// A packet's departure in nanoseconds of the clock on which it is stated; `None` if it need not be
    /// stated.
    pub(super) fn stated(&self, holding: Holding, clock: Clock, leaves: Instant) -> Option<u64> {
        let now = clock.now();
        match holding {
            Holding::Etf { delta } => Some(clock.tai_nanos(leaves.max(now) + delta)),
            Holding::Fq => {
                let held = leaves > now && !self.by_etf;
                held.then(|| clock.origin_nanos() + leaves.0)
            }
        }
    }

    /// When the kernel has room for one more packet, if it has none now.
    pub(super) fn full_until(&mut self, now: Instant) -> Option<Instant> {
        while self.held.front().is_some_and(|leaves| *leaves <= now) {
            self.held.pop_front();
        }
        self.held.front().copied().filter(|_| self.held.len() >= HELD_MAX)
    }

    /// Counts one more packet that the kernel holds.
    pub(super) fn hold(&mut self, leaves: Instant) {
        self.held.push_back(leaves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_holds_so_many_and_no_more() {
        let mut departures = Departures::new();
        for n in 0..HELD_MAX as u64 {
            assert_eq!(departures.full_until(Instant(9)), None);
            departures.hold(Instant(10 + n));
        }
        assert_eq!(departures.full_until(Instant(9)), Some(Instant(10)));
        assert_eq!(departures.full_until(Instant(10)), None);
    }
}
