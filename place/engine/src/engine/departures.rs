//! Departure times: where the way to a receiver leads through a qdisc that holds packets until their
//! time (`fq`, `etf`), a burst goes to the kernel in one go and leaves the device at the link's rate.
//!
//! `etf` drops what has no time or comes late, and lets a packet go its `delta` before its time. So
//! there each packet states a time, that much after it is to leave: by so much the kernel may be late.
//!
//! The engine gives each packet the time that it would have without a burst (`data/link`, `spaced`). `fq`
//! takes 100 packets of a socket (its `flow_limit`), so no more than [`HELD_MAX`] are left to it.

use std::collections::VecDeque;
use std::net::IpAddr;

use selvedge_os::clock::Clock;
use selvedge_os::netlink::Netlink;
use selvedge_os::route::{self, Holding};
use selvedge_os::transmit::Transmitter;
use selvedge_units::Instant;

/// Packets that the kernel is left to hold.
const HELD_MAX: usize = 64;

/// What the kernel holds, and for whom it does.
#[derive(Debug)]
pub(super) struct Departures {
    /// Whom was asked about last, and the answer: streams mostly go the same way.
    asked: Option<(IpAddr, Option<Holding>)>,
    /// Times are those of an `etf`: packets through an `fq` state none then, as sockets have one clock.
    by_etf: bool,
    /// When packets leave that the kernel holds, the first one first.
    held: VecDeque<Instant>,
}

impl Departures {
    pub(super) fn new() -> Self {
        Self { asked: None, by_etf: false, held: VecDeque::with_capacity(HELD_MAX) }
    }

    /// What holds packets to this address until their departure times; the sockets are made ready then.
    pub(super) fn reach(&mut self, to: IpAddr, transmitter: &mut Transmitter) -> Option<Holding> {
        if let Some((_, answer)) = self.asked.filter(|(last, _)| *last == to) {
            return answer;
        }
        // Who gets no answer sends as ever.
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

    /// When a packet is to leave, in nanoseconds of the clock that it states that by; `None` if it need
    /// not state it.
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

    /// When the kernel has room for one more, if it has none now.
    pub(super) fn full_until(&mut self, now: Instant) -> Option<Instant> {
        while self.held.front().is_some_and(|leaves| *leaves <= now) {
            self.held.pop_front();
        }
        self.held.front().copied().filter(|_| self.held.len() >= HELD_MAX)
    }

    /// The kernel gets one more.
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
