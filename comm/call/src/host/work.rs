//! A host's thread: takes calls, runs services that are due, hands their events out, and sleeps until there
//! is more to do.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_units::{Duration, Instant};

use super::Shared;
use super::served::Served;
use crate::queue::{ByTime, EVENTS_MAX, Event, Raiser};
use crate::subscriber::{Heard, Held};

/// What the thread has.
pub(super) struct Work {
    shared: Arc<Shared>,
    dispatcher: Option<Arc<Dispatcher>>,
    services: Vec<Served>,
    events: ByTime<Event>,
    /// Calls that wait for their time.
    held: ByTime<Held>,
    clock: Clock,
}

impl Work {
    pub(super) fn new(shared: Arc<Shared>, dispatcher: Option<Arc<Dispatcher>>) -> Self {
        let (events, held) = (ByTime::new(EVENTS_MAX), ByTime::new(EVENTS_MAX));
        Self { shared, dispatcher, services: Vec::new(), events, held, clock: Clock::shared() }
    }

    pub(super) fn run(mut self) {
        exact_timers();
        loop {
            {
                let mut control = self.shared.control();
                if control.stop {
                    return;
                }
                self.services.append(&mut control.new);
                control.counts.clear();
                let counts = self
                    .services
                    .iter()
                    .map(|one| (one.registered.name.clone(), one.registered.counts));
                control.counts.extend(counts);
            }
            let now = self.clock.now();
            let more = self.take_calls(now);
            self.run_services(now, &more);
            self.dispatch();
            if more.iter().any(|more| *more) {
                // What else is there is taken before it sleeps; others had their turn.
                self.wait(Some(now));
            } else {
                let next = self.next();
                self.wait(next);
            }
        }
    }

    /// Hands in the calls that lie in memory, and those whose time has come; which services had some.
    fn take_calls(&mut self, now: Instant) -> Vec<bool> {
        let mut had = vec![false; self.services.len()];
        while let Some(held) = self.held.pop_due(now) {
            let Some(at) = self.services.iter().position(|one| one.registered.name == held.service)
            else {
                continue;
            };
            held.hand_in(now, &mut self.services[at].registered);
            had[at] = true;
        }
        for (at, served) in self.services.iter_mut().enumerate() {
            served.connections.retain_mut(|connection| {
                match connection.take_calls(now, &mut served.registered, &mut self.held) {
                    Ok(calls) => {
                        had[at] |= calls > 0;
                        true
                    }
                    Err(()) => {
                        served.registered.counts.broken += 1;
                        connection.leave(&mut served.registered, self.dispatcher.as_deref());
                        false
                    }
                }
            });
        }
        had
    }

    fn run_services(&mut self, now: Instant, had_calls: &[bool]) {
        for (at, served) in self.services.iter_mut().enumerate() {
            let due = served.next.is_some_and(|next| next <= now);
            if !due && !had_calls[at] && !served.is_readable() {
                continue;
            }
            let subscribers = served.connections.iter().filter(|one| one.is_subscriber()).count();
            let mut raiser =
                Raiser { queue: &mut self.events, service: at, subscribers, raised: 0, dropped: 0 };
            served.next = served.registered.service.run(now, &mut raiser);
            let Raiser { raised, dropped, .. } = raiser;
            served.registered.counts.raised += raised;
            served.registered.counts.dropped += dropped;
        }
    }

    /// Hands the events out that were raised.
    fn dispatch(&mut self) {
        while let Some(event) = self.events.pop() {
            let served = &mut self.services[event.service];
            if event.deadline.is_some_and(|deadline| deadline < self.clock.now()) {
                served.registered.counts.expired += 1;
                continue;
            }
            served.hand_out(&event, self.dispatcher.as_deref(), self.clock);
        }
        for served in &mut self.services {
            for connection in &mut served.connections {
                connection.flush();
            }
        }
    }

    /// When something is due.
    fn next(&self) -> Option<Instant> {
        let services = self.services.iter().filter_map(|served| served.next);
        services.chain(self.held.first()).min()
    }

    /// Sleeps until then, or until something comes; takes what came by sockets.
    fn wait(&mut self, until: Option<Instant>) {
        let until = until.unwrap_or(Instant::MAX);
        let all = || self.services.iter().flat_map(|served| &served.connections);
        let quiet = all().all(|connection| connection.prepare_sleep(until));
        let left = if quiet { until.since(self.clock.now()) } else { Duration::ZERO };
        let mut fds = vec![PollFd::new(&self.shared.stir, PollFlags::IN)];
        for served in &self.services {
            fds.push(PollFd::new(&served.listener, PollFlags::IN));
            // One without a descriptor has a place all the same.
            let watched =
                served.registered.service.watch().unwrap_or_else(|| self.shared.stir.as_fd());
            fds.push(PollFd::from_borrowed_fd(watched, PollFlags::IN));
            for connection in &served.connections {
                let [socket, event] = connection.fds();
                fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
                fds.push(PollFd::from_borrowed_fd(event, PollFlags::IN));
            }
        }
        let limit = timespec(left.0);
        let limit = (!quiet || until != Instant::MAX).then_some(&limit);
        let polled = poll(&mut fds, limit);
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        for connection in all() {
            connection.finish_sleep();
        }
        match polled {
            Ok(0) => return,
            Ok(_) => {}
            // A signal, or out of kernel memory: no busy loop.
            Err(_) => {
                self.clock.sleep_until(self.clock.now() + Duration::from_millis(1));
                return;
            }
        }
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            self.shared.stir.clear();
        }
        let now = self.clock.now();
        for at in 0..self.services.len() {
            let (comes, _) = (ready.next() == Some(true), ready.next());
            let served = &mut self.services[at];
            served.connections.retain_mut(|connection| {
                let (says, _) = (ready.next() == Some(true), ready.next());
                let heard = if says {
                    connection.hear(now, &mut served.registered, self.dispatcher.as_deref())
                } else {
                    Heard::Nothing
                };
                match heard {
                    Heard::Nothing => {}
                    // What it raises for that is raised now.
                    Heard::Call => served.next = Some(Instant::ZERO),
                    Heard::End => {
                        connection.leave(&mut served.registered, self.dispatcher.as_deref())
                    }
                }
                heard != Heard::End
            });
            if comes {
                served.accept();
            }
        }
    }
}
