//! The state that all handles of a process share: the exchange, behind a lock that is held for one
//! step at a time. The engine's threads never wait for the lock: they leave messages in the inbox.
//! The thread that has the lock takes them out before and after its own step.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_control_event::{ChannelId, Exchange, Notice, SinkCounts, SinkId};
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::eventfd::EventFd;
use selvedge_units::Instant;

use crate::carrier::{Carrier, POLL_EVERY};
use crate::inbox::Inbox;
use crate::keys::ParticipantName;
use crate::manage::Manager;
use crate::received::Received;
use crate::sink_signal::SinkSignal;

/// A sink with a function that gets its events at once, on the thread that brought them.
pub(crate) struct DirectSink {
    pub(crate) channel: ChannelId,
    pub(crate) sink: SinkId,
    /// The function, with the memory for its events.
    pub(crate) call: Mutex<(Received, Call)>,
}

pub(crate) type Call = Box<dyn FnMut(&Received) + Send>;

/// A sink that a thread or task may wait for.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) channel: ChannelId,
    pub(crate) sink: SinkId,
    pub(crate) signal: Arc<SinkSignal>,
}

pub(crate) type Configure = Box<dyn Fn() -> Option<String> + Send>;

/// The state behind the lock.
pub(crate) struct Core {
    pub(crate) exchange: Exchange,
    pub(crate) carrier: Box<Carrier>,
    /// Returns the engine's current configuration; `None` if there is no host to connect to.
    pub(crate) configure: Configure,
    pub(crate) next_look: Instant,
    pub(crate) waiting: Vec<Waiting>,
    /// Sources that wait until members of a channel have caught up.
    pub(crate) waiting_publishers: Vec<(ChannelId, Arc<SinkSignal>)>,
    pub(crate) direct: Vec<Arc<DirectSink>>,
    /// The number of handles that have a channel open.
    pub(crate) handle_counts: HashMap<ChannelId, usize>,
    pub(crate) listeners: Vec<flume::Sender<Notice>>,
    pub(crate) manager: Manager,
}

/// The state that handles refer to.
pub(crate) struct Shared {
    core: Mutex<Core>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) clock: Clock,
    pub(crate) me: ParticipantName,
    /// Wakes the owner thread.
    pub(crate) ticker: Arc<SinkSignal>,
    pub(crate) is_over: AtomicBool,
}

impl Shared {
    pub(crate) fn new(core: Core, inbox: Arc<Inbox>, clock: Clock, me: ParticipantName) -> Self {
        let (ticker, is_over) = (Arc::new(SinkSignal::default()), AtomicBool::new(false));
        Self { core: Mutex::new(core), inbox, clock, me, ticker, is_over }
    }

    /// Does one step with the exchange, and handles messages that arrived before and meanwhile.
    pub(crate) fn with<R>(&self, step: impl FnOnce(&mut Core, Instant) -> R) -> R {
        let (result, due) = {
            let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            let next = core.exchange.poll_timeout();
            if !self.inbox.is_empty() {
                self.handle(&mut core, now);
            }
            let result = step(&mut core, now);
            core.transmit(now);
            (result, self.after(&mut core, next))
        };
        self.call(due);
        if !self.inbox.is_empty() {
            self.turn();
        }
        result
    }

    /// The fates of a sink's events.
    pub(crate) fn sink_counts(&self, channel: ChannelId, sink: SinkId) -> SinkCounts {
        let counts = self.with(|core, _| core.exchange.channel_mut(channel)?.sink_counts(sink));
        counts.unwrap_or_default()
    }

    /// Handles arrived messages, unless another thread is doing so: then that one takes them.
    pub(crate) fn turn(&self) {
        loop {
            let mut core = match self.core.try_lock() {
                Ok(core) => core,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The thread that has the lock checks again after it has released it.
                Err(TryLockError::WouldBlock) => return,
            };
            let next = core.exchange.poll_timeout();
            self.handle(&mut core, self.clock.now());
            let due = self.after(&mut core, next);
            drop(core);
            self.call(due);
            if self.inbox.is_empty() {
                return;
            }
        }
    }

    /// Calls functions with their events. A function that is running finds them itself.
    fn call(&self, due: Vec<Arc<DirectSink>>) {
        for direct in due {
            loop {
                let Ok(mut call) = direct.call.try_lock() else { break };
                let (event, function) = &mut *call;
                while self.next_for(&direct, event) {
                    function(event);
                }
                drop(call);
                // For events between the last check and now another thread found the function locked.
                let core = &mut *self.core.lock().unwrap_or_else(PoisonError::into_inner);
                let open = core.exchange.channel_mut(direct.channel);
                if !open.is_some_and(|open| open.has_event(direct.sink)) {
                    break;
                }
            }
        }
    }

    fn next_for(&self, direct: &DirectSink, into: &mut Received) -> bool {
        let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let next = core.exchange.poll_timeout();
        let Some(delivery) = core.exchange.poll_event(now, direct.channel, direct.sink) else {
            return false;
        };
        into.set(&delivery);
        if is_sooner(core.exchange.poll_timeout(), next) {
            self.ticker.raise();
        }
        true
    }

    fn handle(&self, core: &mut Core, now: Instant) {
        let Core { exchange, carrier, manager, .. } = core;
        carrier.run(now, exchange);
        while let Some((from, bytes)) = exchange.poll_control() {
            let name = self.inbox.name(from);
            manager.receive(now, from, name.as_ref(), &bytes, exchange, carrier);
        }
        core.transmit(now);
    }

    /// Notifies waiters of their events; returns the sinks whose functions must be called.
    fn after(&self, core: &mut Core, next: Option<Instant>) -> Vec<Arc<DirectSink>> {
        while let Some(notice) = core.exchange.poll_notice() {
            core.listeners.retain(|listener| {
                !matches!(
                    listener.try_send(notice.clone()),
                    Err(flume::TrySendError::Disconnected(_))
                )
            });
        }
        let Core { exchange, waiting, waiting_publishers, .. } = core;
        for (channel, signal) in waiting_publishers.iter().filter(|(_, signal)| signal.has_waiter())
        {
            if exchange.has_drained(*channel) {
                signal.raise();
            }
        }
        for one in waiting.iter().filter(|one| one.signal.has_waiter()) {
            let channel = exchange.channel_mut(one.channel);
            if channel.is_some_and(|channel| channel.has_event(one.sink)) {
                one.signal.raise();
            }
        }
        let has_timer = !core.carrier.needs_timer();
        if !has_timer || is_sooner(exchange.poll_timeout(), next) || core.manager.is_changed {
            self.ticker.raise();
        }
        let mut due = Vec::new();
        for direct in &core.direct {
            let open = core.exchange.channel_mut(direct.channel);
            if open.is_some_and(|open| open.has_event(direct.sink)) {
                due.push(Arc::clone(direct));
            }
        }
        due
    }

    /// The thread of the rings: reads them. `stop` becomes readable at the end.
    pub(crate) fn read_rings(&self, rings: &OwnedFd, stop: &EventFd) {
        let wait = timespec(POLL_EVERY.0);
        while !self.is_over.load(Ordering::SeqCst) {
            let is_quiet = self.with(|core, now| {
                self.handle(core, now);
                core.carrier.ring_transport().is_none_or(|near| near.links().prepare_wait())
            });
            if !is_quiet {
                // Lets other threads of the same priority run.
                std::thread::yield_now();
                continue;
            }
            let mut fds =
                [rings.as_fd(), stop.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            let _ = poll(&mut fds, Some(&wait));
        }
    }

    /// The owner thread: calls the exchange at its timeouts.
    pub(crate) fn run_timer(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            self.ticker.listen(None);
            let at = self.with(|core, now| {
                if core.exchange.poll_timeout().is_some_and(|at| at <= now) {
                    self.handle(core, now);
                }
                let Core { exchange, carrier, manager, .. } = &mut *core;
                let more = manager.run(now, exchange, |exchange| carrier.transmit(now, exchange));
                core.settle(&self.ticker);
                core.look(now);
                core.transmit(now);
                let at = core.exchange.poll_timeout();
                let at = at.map_or(core.next_look, |at| at.min(core.next_look));
                let at = core.carrier.flush_due(now).map_or(at, |due| due.min(at));
                if more { now } else { at }
            });
            let left = at.since(self.clock.now()).into();
            self.ticker.wait(std::time::Instant::now().checked_add(left));
        }
    }
}

/// Whether an instant is before another, which may be never.
fn is_sooner(at: Option<Instant>, other: Option<Instant>) -> bool {
    at.is_some_and(|at| other.is_none_or(|other| at < other))
}

impl Core {
    /// Sends the frames of the exchange.
    fn transmit(&mut self, now: Instant) {
        self.carrier.transmit(now, &mut self.exchange);
    }

    /// Checks whether the engine is stuck.
    fn look(&mut self, now: Instant) {
        if now < self.next_look {
            return;
        }
        self.next_look = now + POLL_EVERY;
        if self.carrier.is_disconnected(now)
            && let Some(configuration) = (self.configure)()
        {
            tracing::info!("nobody is connected; the session is opened again");
            self.carrier.reopen(now, &configuration);
        }
    }

    /// Counts the channels that handlers opened and left, and watches the handlers' sinks.
    fn settle(&mut self, ticker: &Arc<SinkSignal>) {
        if !std::mem::take(&mut self.manager.is_changed) {
            return;
        }
        for channel in std::mem::take(&mut self.manager.opened) {
            *self.handle_counts.entry(channel).or_default() += 1;
        }
        for channel in std::mem::take(&mut self.manager.closed) {
            // A channel that a handler only receives from has no count.
            if let Some(handle_counts) = self.handle_counts.get_mut(&channel) {
                *handle_counts = handle_counts.saturating_sub(1);
            }
            self.close_if_unused(channel);
        }
        let sinks: Vec<_> = self.manager.sinks().collect();
        self.waiting.retain(|one| {
            !Arc::ptr_eq(&one.signal, ticker) || sinks.contains(&(one.channel, one.sink))
        });
        for (channel, sink) in sinks {
            if !self.waiting.iter().any(|one| (one.channel, one.sink) == (channel, sink)) {
                self.waiting.push(Waiting { channel, sink, signal: Arc::clone(ticker) });
            }
        }
    }

    /// Leaves a channel that has no handles and no sinks here.
    pub(crate) fn close_if_unused(&mut self, channel: ChannelId) {
        let is_used =
            self.handle_counts.get(&channel).is_some_and(|handle_counts| *handle_counts > 0);
        if !is_used && self.exchange.channel_mut(channel).is_some_and(|open| !open.has_sinks()) {
            self.handle_counts.remove(&channel);
            self.manager.forget(channel);
            self.exchange.leave(channel);
        }
    }
}
