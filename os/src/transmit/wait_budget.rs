//! How long a batch waits for the kernel to take it: for room in a socket, which `poll` reports, or in a
//! queue below it, which no call reports.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_units::{Duration, Instant};

use super::Transmitter;
use crate::clock::{Clock, timespec};

/// The number of pauses into which the patience is divided when a queue below the socket is full, which no
/// event announces.
const PAUSES: u64 = 8;

/// The rest of the time that one batch may wait.
pub(super) struct WaitBudget {
    span: Duration,
    /// Set when the first wait begins, so that the clock is not read in batches that never wait.
    end: Option<Instant>,
}

impl WaitBudget {
    pub(super) const fn of(span: Duration) -> Self {
        Self { span, end: None }
    }

    fn left(&mut self, clock: Clock) -> Duration {
        if self.span == Duration::ZERO {
            return Duration::ZERO;
        }
        let now = clock.now();
        self.end.get_or_insert(now + self.span).since(now)
    }

    /// Waits until the socket can take more; false if there is no time left to wait.
    pub(super) fn wait_writable(&mut self, transmitter: &mut Transmitter, v6: bool) -> bool {
        let left = self.left(transmitter.clock);
        if left == Duration::ZERO {
            return false;
        }
        let timeout = timespec(left.0);
        let mut fds = [PollFd::from_borrowed_fd(transmitter.socket(v6).as_fd(), PollFlags::OUT)];
        // An interrupted or failed poll only leads to another try within the same patience.
        let _ = poll(&mut fds, Some(&timeout));
        if fds[0].revents().contains(PollFlags::ERR) {
            transmitter.take_errors(v6);
        }
        true
    }

    /// Waits a while; false if there is no time left to wait.
    pub(super) fn pause(&mut self, clock: Clock) -> bool {
        let left = self.left(clock);
        let pause = Duration(self.span.0.div_ceil(PAUSES)).min(left);
        clock.sleep_until(clock.now() + pause);
        left > Duration::ZERO
    }
}
