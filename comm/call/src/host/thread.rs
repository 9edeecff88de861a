//! A host's thread: it delivers calls, runs services that are due, delivers their events, and
//! sleeps until there is more to do.

use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_units::{Duration, Instant};

use super::Shared;
use super::registered::RegisteredService;
use crate::queue::{EVENTS_MAX, Event, EventCollector, TimeQueue};
use crate::subscriber::{DeferredCall, HandledMessage};

/// The state of the thread.
pub(super) struct HostThread {
    shared: Arc<Shared>,
    dispatcher: Option<Arc<Dispatcher>>,
    services: Vec<RegisteredService>,
    events: TimeQueue<Event>,
    /// Calls that wait for their time.
    held: TimeQueue<DeferredCall>,
    clock: Clock,
}

impl HostThread {
    pub(super) fn new(shared: Arc<Shared>, dispatcher: Option<Arc<Dispatcher>>) -> Self {
        let (events, held) = (TimeQueue::new(EVENTS_MAX), TimeQueue::new(EVENTS_MAX));
        Self { shared, dispatcher, services: Vec::new(), events, held, clock: Clock::shared() }
    }

    pub(super) fn run(mut self) {
        exact_timers();
        loop {
            {
                let mut control = self.shared.control.lock();
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
                // Other input is handled before the thread continues; the others had their turn.
                self.wait(Some(now));
            } else {
                let next = self.next();
                self.wait(next);
            }
        }
    }

    /// Delivers the calls that wait in memory, and the deferred ones that are due; returns which
    /// services had some.
    fn take_calls(&mut self, now: Instant) -> Vec<bool> {
        let mut had = vec![false; self.services.len()];
        while let Some(held) = self.held.pop_due(now) {
            let Some(at) = self.services.iter().position(|one| one.registered.name == held.service)
            else {
                continue;
            };
            held.deliver_call(now, &mut self.services[at].registered);
            had[at] = true;
        }
        for (at, registered) in self.services.iter_mut().enumerate() {
            registered.connections.retain_mut(|connection| {
                match connection.take_calls(now, &mut registered.registered, &mut self.held) {
                    Ok(calls) => {
                        had[at] |= calls > 0;
                        true
                    }
                    Err(()) => {
                        registered.registered.counts.broken += 1;
                        connection.leave(&mut registered.registered, self.dispatcher.as_deref());
                        false
                    }
                }
            });
        }
        had
    }

    fn run_services(&mut self, now: Instant, had_calls: &[bool]) {
        for (at, registered) in self.services.iter_mut().enumerate() {
            let due = registered.next.is_some_and(|next| next <= now);
            if !due && !had_calls[at] && !registered.is_readable() {
                continue;
            }
            let subscribers =
                registered.connections.iter().filter(|one| one.is_subscriber()).count();
            let mut raiser = EventCollector {
                queue: &mut self.events,
                service: at,
                subscribers,
                raised: 0,
                dropped: 0,
            };
            registered.next = registered.registered.service.run(now, &mut raiser);
            let EventCollector { raised, dropped, .. } = raiser;
            registered.registered.counts.raised += raised;
            registered.registered.counts.dropped += dropped;
        }
    }

    /// Delivers the raised events.
    fn dispatch(&mut self) {
        while let Some(event) = self.events.pop() {
            let registered = &mut self.services[event.service];
            if event.deadline.is_some_and(|deadline| deadline < self.clock.now()) {
                registered.registered.counts.expired += 1;
                continue;
            }
            registered.deliver_event(&event, self.dispatcher.as_deref(), self.clock);
        }
        let all = self.services.iter_mut().flat_map(|registered| &mut registered.connections);
        all.for_each(|connection| connection.flush());
    }

    /// When the next service or call is due.
    fn next(&self) -> Option<Instant> {
        let services = self.services.iter().filter_map(|registered| registered.next);
        services.chain(self.held.first()).min()
    }

    /// Sleeps until `until`, or until there is input; handles input from sockets.
    fn wait(&mut self, until: Option<Instant>) {
        let until = until.unwrap_or(Instant::MAX);
        let all = || self.services.iter().flat_map(|registered| &registered.connections);
        let quiet = all().all(|connection| connection.prepare_sleep(until));
        let left = if quiet { until.since(self.clock.now()) } else { Duration::ZERO };
        let mut fds = vec![PollFd::new(&self.shared.wake_event, PollFlags::IN)];
        for registered in &self.services {
            fds.push(PollFd::new(&registered.listener, PollFlags::IN));
            // A service without a descriptor takes a place all the same.
            let watched = registered
                .registered
                .service
                .watch()
                .unwrap_or_else(|| self.shared.wake_event.as_fd());
            fds.push(PollFd::from_borrowed_fd(watched, PollFlags::IN));
            for connection in &registered.connections {
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
            // A signal, or out of kernel memory: avoid a busy loop.
            Err(_) => {
                self.clock.sleep_until(self.clock.now() + Duration::from_millis(1));
                return;
            }
        }
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            self.shared.wake_event.clear();
        }
        let (now, dispatcher) = (self.clock.now(), self.dispatcher.as_deref());
        for registered in &mut self.services {
            let (comes, _) = (ready.next() == Some(true), ready.next());
            registered.connections.retain_mut(|connection| {
                let (says, _) = (ready.next() == Some(true), ready.next());
                if !says {
                    return true;
                }
                let heard = connection.handle_message(now, &mut registered.registered, dispatcher);
                match heard {
                    HandledMessage::Nothing => {}
                    // The events that the service raises for this call are raised now.
                    HandledMessage::Call => registered.next = Some(Instant::ZERO),
                    HandledMessage::End => connection.leave(&mut registered.registered, dispatcher),
                }
                heard != HandledMessage::End
            });
            if comes {
                registered.accept();
            }
        }
    }
}
