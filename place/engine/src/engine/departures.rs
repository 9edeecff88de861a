//! Departure times: where the way to a receiver leads through a qdisc that holds packets until their
//! time (`fq`), a burst goes to the kernel in one go and leaves the device at the link's rate.
//!
//! The engine gives each packet the time that it would have without a burst (`data/link`, `spaced`). `fq`
//! takes 100 packets of a socket (its `flow_limit`), so no more than [`HELD_MAX`] are left to it.

use std::collections::VecDeque;
use std::net::IpAddr;

use selvedge_os::netlink::Netlink;
use selvedge_os::route;
use selvedge_os::transmit::Transmitter;
use selvedge_units::Instant;

/// Packets that the kernel is left to hold.
const HELD_MAX: usize = 64;

/// What the kernel holds, and for whom it does.
#[derive(Debug)]
pub(super) struct Departures {
    /// Whom was asked about last, and the answer: streams mostly go the same way.
    asked: Option<(IpAddr, bool)>,
    /// When packets leave that the kernel holds, the first one first.
    held: VecDeque<Instant>,
}

impl Departures {
    pub(super) fn new() -> Self {
        Self { asked: None, held: VecDeque::with_capacity(HELD_MAX) }
    }

    /// Whether packets to this address can be given departure times; the sockets are made ready then.
    pub(super) fn reach(&mut self, to: IpAddr, transmitter: &mut Transmitter) -> bool {
        if let Some((_, answer)) = self.asked.filter(|(last, _)| *last == to) {
            return answer;
        }
        // Who gets no answer sends as ever.
        let holds = Netlink::open().and_then(|netlink| {
            let device = route::to(&netlink, to)?.device;
            route::holds_packets(&netlink, device)
        });
        let answer = holds.unwrap_or(false) && transmitter.allow_departures();
        self.asked = Some((to, answer));
        answer
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
