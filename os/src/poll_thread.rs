//! A thread that takes turns: it works, then sleeps until it is due again, a descriptor is readable, or another thread
//! rings.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_units::{Duration, Instant};

use crate::clock::{Clock, timespec};
use crate::eventfd::EventFd;

/// The longest that the thread sleeps.
const LONGEST: Duration = Duration::from_secs(1);

/// The thread. Dropped, it ends after the turn that it is in.
#[derive(Debug)]
pub struct PollThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    event: EventFd,
}

impl PollThread {
    /// Starts a thread of this name. Each turn returns when the next one is due at the latest, and the descriptors that
    /// make it due as soon as one is readable.
    ///
    /// # Errors
    /// If no more threads may be started or file descriptors opened.
    pub fn start<D: AsFd>(
        name: &str,
        clock: Clock,
        mut turn: impl FnMut() -> (Instant, Vec<D>) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), event: EventFd::new()? });
        let own = Arc::clone(&shared);
        let run = move || {
            while !own.stop.load(Ordering::Acquire) {
                own.event.clear();
                let (next, watched) = turn();
                own.wait(next.since(clock.now()), &watched);
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Makes the next turn due at once; rung during a turn, another one follows it.
    pub fn ring(&self) {
        self.shared.event.ring();
    }
}

impl Drop for PollThread {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.ring();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn wait<D: AsFd>(&self, wait: Duration, watched: &[D]) {
        let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds: Vec<_> = watched.iter().map(|one| readable(one.as_fd())).collect();
        fds.push(readable(self.event.as_fd()));
        // Interrupted, the next turn only comes sooner.
        let _ = poll(&mut fds, Some(&timespec(wait.min(LONGEST).0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

    const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(60);

    /// A thread that is due only when `next` has passed, and what its turns send.
    fn thread(next: Instant, watched: Option<UdpSocket>) -> (PollThread, Receiver<Instant>) {
        let (clock, watched) = (Clock::new(), watched.map(Arc::new));
        let (send, turns) = channel();
        let turn = move || {
            // Nobody may wait for it any more.
            let _ = send.send(clock.now());
            (next, watched.clone().into_iter().collect())
        };
        (PollThread::start("turns", clock, turn).expect("it starts"), turns)
    }

    /// The shortest time between two turns among some.
    fn shortest(turns: &Receiver<Instant>, mut between: impl FnMut()) -> Duration {
        let mut last = turns.recv_timeout(TIMEOUT).expect("the first turn");
        let mut shortest = Duration(u64::MAX);
        for _ in 0..10 {
            between();
            let now = turns.recv_timeout(TIMEOUT).expect("another turn");
            (shortest, last) = (shortest.min(now.since(last)), now);
        }
        shortest
    }

    #[test]
    fn a_ring_wakes_it_and_rings_during_a_turn_are_kept() {
        let (thread, turns) = thread(Instant::MAX, None);
        assert!(shortest(&turns, || thread.ring()) < LONGEST);
    }

    #[test]
    fn it_turns_when_it_is_due() {
        let (_thread, turns) = thread(Instant::ZERO, None);
        assert!(shortest(&turns, || ()) < LONGEST);
    }

    #[test]
    fn a_readable_descriptor_wakes_it() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let (_thread, turns) = thread(Instant::MAX, Some(socket));
        // Nobody reads it: it stays readable.
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[1], at).unwrap();
        assert!(shortest(&turns, || ()) < LONGEST);
    }

    #[test]
    fn without_any_of_these_it_sleeps_its_longest_and_ends_when_dropped() {
        let (thread, turns) = thread(Instant::MAX, None);
        let first = turns.recv_timeout(TIMEOUT).expect("the first turn");
        let second = turns.recv_timeout(TIMEOUT).expect("the second turn");
        assert!(second.since(first) >= LONGEST);
        drop(thread);
        let rest = std::iter::repeat_with(|| turns.recv_timeout(TIMEOUT)).find_map(Result::err);
        assert_eq!(rest, Some(RecvTimeoutError::Disconnected));
    }
}
