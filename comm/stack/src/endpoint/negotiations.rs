//! The requests and answers of a connection's two ends about its contracts.

use std::task::Waker;

use selvedge_data_stack::contract::Contract;
use selvedge_data_stack::module::Direction;
use selvedge_units::{Duration, Instant};

use crate::negotiation::Negotiation;

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) number: u64,
    pub(super) text: String,
    pub(super) direction: Direction,
    pub(super) attempts: u32,
    pub(super) retry_at: Instant,
    pub(super) answer: Option<Reply>,
    pub(super) waker: Option<Waker>,
    /// No caller waits for the answer.
    pub(super) unattended: bool,
}

/// The other end's answer.
#[derive(Debug)]
pub(super) enum Reply {
    /// The contract holds there; the longest that a message takes on that host.
    Agreed(Duration),
    /// The contract does not fit; that host's reason.
    Refused(String),
}

/// The state of the negotiation of a connection's contracts.
#[derive(Debug, Default)]
pub(super) struct Negotiations {
    pub(super) next: u64,
    pub(super) asked: Option<PendingRequest>,
    /// The number of the other end's last request, the answer, and the time of the answer.
    pub(super) answered: Option<(u64, String, Instant)>,
}

impl Negotiations {
    /// Wakes the caller that waits for an answer, since the connection is over.
    pub(super) fn wake(&mut self) {
        self.asked.as_mut().and_then(|asked| asked.waker.take()).into_iter().for_each(Waker::wake);
    }

    /// Whether a request is not answered yet.
    #[cfg(test)]
    pub(super) const fn is_busy(&self) -> bool {
        self.asked.is_some()
    }

    pub(super) fn add_request(
        &mut self,
        direction: Direction,
        contract: Contract,
        here: Duration,
        unattended: bool,
    ) {
        self.next += 1;
        self.asked = Some(PendingRequest {
            number: self.next,
            text: Negotiation::Request(self.next, direction, contract, here).text(),
            direction,
            attempts: 0,
            retry_at: Instant::ZERO,
            answer: None,
            waker: None,
            unattended,
        });
    }
}
