//! A service of a host, with the programs that are connected to it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::control;
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_units::{Duration, Instant};

use crate::queue::Event;
use crate::registered::Registered;
use crate::service::EventTarget;
use crate::subscriber::Connection;

/// The largest number of connections of a service.
const CONNECTIONS_MAX: usize = 256;

/// A service, and the programs that are connected to it.
pub(super) struct RegisteredService {
    pub(super) registered: Registered,
    pub(super) listener: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) connections: Vec<Connection>,
    /// When the service must run next.
    pub(super) next: Option<Instant>,
    /// The subscriber whose turn it is to get an event for one.
    pub(super) turn: usize,
}

impl Drop for RegisteredService {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl RegisteredService {
    pub(super) fn accept(&mut self) {
        match control::Connection::accept(&self.listener) {
            Ok(Some(control)) if self.connections.len() < CONNECTIONS_MAX => {
                self.connections.extend(Connection::new(control));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(service = self.registered.name, %error, "can't take a program on");
            }
        }
    }

    pub(super) fn is_readable(&self) -> bool {
        let Some(watched) = self.registered.service.watch() else { return false };
        let mut fds = [PollFd::from_borrowed_fd(watched, PollFlags::IN)];
        let now = timespec(0);
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Delivers an event to its subscribers.
    pub(super) fn deliver_event(
        &mut self,
        event: &Event,
        dispatcher: Option<&Dispatcher>,
        clock: Clock,
    ) {
        let count = self.connections.len();
        let (mut given, mut refused) = (0, 0);
        for step in 0..count {
            let at =
                if event.target == EventTarget::One { (self.turn + step) % count } else { step };
            let connection = &mut self.connections[at];
            let wanted = match event.target {
                EventTarget::All | EventTarget::One => connection.is_subscriber(),
                EventTarget::Pid(pid) => connection.is_subscriber() && connection.pid() == pid,
            };
            if !wanted {
                continue;
            }
            if !connection.enqueue_event(event) {
                refused += 1;
                continue;
            }
            given += 1;
            if event.cpu
                && let (Some(dispatcher), Some(task)) = (dispatcher, connection.task())
            {
                let left = event.deadline.map_or(LEFT, |due| due.since(clock.now()));
                self.registered.counts.preferred += u64::from(dispatcher.raise(task, left).is_ok());
            }
            // Woken after the preference is set, so that the program wakes with it.
            connection.flush();
            if event.target == EventTarget::One {
                self.turn = at + 1;
                refused = 0;
                break;
            }
        }
        self.registered.counts.delivered += given;
        self.registered.counts.dropped +=
            if event.target == EventTarget::One { refused.min(1) } else { refused };
    }
}

/// The preference for an event without a deadline ends after this time.
const LEFT: Duration = Duration::from_millis(10);
