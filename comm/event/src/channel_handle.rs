//! A channel that this process has opened: it publishes events and subscribes sinks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant as StdInstant;

use crate::core::{Call, Core, DirectSink, Shared, Waiting};
use crate::handler::{self, FilterError};
use crate::keys::ParticipantName;
use crate::received::Received;
use crate::sink::Sink;
use crate::sink_signal::SinkSignal;
use selvedge_control_code::CodeError;
use selvedge_control_event::{
    ChannelId, Event, Filter, Format, PublishError, SinkCounts, SubscribeError, Subscription, View,
};
use selvedge_units::Duration;

/// How often a source checks whether a sink of its own process has room.
const POLL_EVERY: Duration = Duration::from_millis(1);

/// A channel that is open here. All clones are one handle. The process leaves the channel when its
/// last handle and its last sink are gone.
pub struct ChannelHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) channel: ChannelId,
    pub(crate) format: Arc<Format>,
}

impl std::fmt::Debug for ChannelHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Joined({:?}, format {})", self.channel, self.format.id())
    }
}

impl Clone for ChannelHandle {
    fn clone(&self) -> Self {
        self.shared.with(|core, _| *core.handle_counts.entry(self.channel).or_default() += 1);
        let (shared, format) = (Arc::clone(&self.shared), Arc::clone(&self.format));
        Self { shared, channel: self.channel, format }
    }
}

impl Drop for ChannelHandle {
    fn drop(&mut self) {
        let channel = self.channel;
        self.shared.with(|core, _| {
            let handle_counts = core.handle_counts.entry(channel).or_default();
            *handle_counts = handle_counts.saturating_sub(1);
            core.close_if_unused(channel);
        });
    }
}

impl ChannelHandle {
    /// The format of its records here.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Sends an event to the sinks here and to the hosts that want it, and returns at once; returns
    /// both numbers. The event may be lost on its way, if the network or a host is overloaded.
    ///
    /// # Errors
    /// If the sinks here can't take the event; then no other host gets it either.
    pub fn publish(&self, event: Event<'_>) -> Result<(usize, usize), PublishError> {
        self.shared.with(|core, now| core.exchange.publish(now, self.channel, event))
    }

    /// As [`publish`](Self::publish), but the event is kept until each host that wants it has taken it; see
    /// [`Exchange::publish_reliably`](selvedge_control_event::Exchange::publish_reliably) for the bounds.
    ///
    /// # Errors
    /// If the sinks here can't take the event; then no other host gets it either.
    pub fn publish_reliably(&self, event: Event<'_>) -> Result<(usize, usize), PublishError> {
        self.shared.with(|core, now| core.exchange.publish_reliably(now, self.channel, event))
    }

    /// As [`publish_reliably`](Self::publish_reliably), at the pace of the slowest member. It waits
    /// until all members have taken enough, at most `patience`, or for ever. So a source may go as
    /// fast as it can, and no member misses an event. It does not wait for a member that is lost.
    ///
    /// # Errors
    /// [`PublishError::Behind`] or [`PublishError::Blocked`] if a member, or a sink here, was too
    /// slow for that time; then no sink has got the event.
    pub fn publish_paced(
        &self,
        event: Event<'_>,
        wait: Option<Duration>,
    ) -> Result<(usize, usize), PublishError> {
        let send = |core: &mut Core, now| core.exchange.publish_paced(now, self.channel, event);
        let sent = self.shared.with(send);
        if !matches!(sent, Err(PublishError::Behind | PublishError::Blocked(_))) {
            return sent;
        }
        let until = wait.and_then(|wait| StdInstant::now().checked_add(wait.into()));
        let signal = Arc::new(SinkSignal::default());
        self.shared
            .with(|core, _| core.waiting_publishers.push((self.channel, Arc::clone(&signal))));
        let sent = loop {
            signal.listen(None);
            let sent = self.shared.with(send);
            let look = match sent {
                // Sinks here do not raise the signal, so the source polls.
                Err(PublishError::Blocked(_)) => Some(StdInstant::now() + POLL_EVERY.to_std()),
                Err(PublishError::Behind) => None,
                done => break done,
            };
            signal.wait(look.into_iter().chain(until).min());
            if until.is_some_and(|until| StdInstant::now() >= until) {
                break sent;
            }
        };
        self.shared
            .with(|core, _| core.waiting_publishers.retain(|(_, one)| !Arc::ptr_eq(one, &signal)));
        sent
    }

    /// Subscribes a sink.
    ///
    /// # Errors
    /// If the channel has no room for another sink.
    pub fn subscribe(&self, wish: Subscription) -> Result<Sink, SubscribeError> {
        let signal = Arc::new(SinkSignal::default());
        let sink = self.shared.with(|core, _| {
            let sink = core.exchange.subscribe(self.channel, wish)?;
            core.waiting.push(Waiting { channel: self.channel, sink, signal: Arc::clone(&signal) });
            Ok(sink)
        })?;
        Ok(Sink { shared: Arc::clone(&self.shared), channel: self.channel, sink, signal })
    }

    /// Calls a function with each event, on the thread that brings it: at once, without a wake-up.
    /// The function must be short, since the engine and sources wait for it; it may publish.
    /// Dropping the result ends the calls.
    ///
    /// # Errors
    /// If the channel has no room for a sink.
    pub fn on_event_direct(
        &self,
        wish: Subscription,
        call: impl FnMut(&Received) + Send + 'static,
    ) -> Result<DirectCallback, SubscribeError> {
        let direct = self.shared.with(|core, _| {
            let sink = core.exchange.subscribe(self.channel, wish)?;
            let call = std::sync::Mutex::new((Received::default(), Box::new(call) as Call));
            let direct = Arc::new(DirectSink { channel: self.channel, sink, call });
            core.direct.push(Arc::clone(&direct));
            Ok(direct)
        })?;
        Ok(DirectCallback { shared: Arc::clone(&self.shared), direct })
    }

    /// Calls a function with each event, on a thread of its own, the earliest deadline first.
    /// Dropping the result ends the calls.
    ///
    /// # Errors
    /// If the channel has no room for a sink.
    pub fn on_event(
        &self,
        wish: Subscription,
        mut call: impl FnMut(&Received) + Send + 'static,
    ) -> Result<Callback, SubscribeError> {
        let mut sink = self.subscribe(wish)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, signal) = (Arc::clone(&is_over), Arc::clone(&sink.signal));
        let thread = std::thread::Builder::new().name("selvedge-sink".to_owned());
        let thread = thread.spawn(move || {
            let mut event = Received::default();
            while !over.load(Ordering::SeqCst) {
                if sink.take_into(&mut event, None) {
                    call(&event);
                }
            }
        });
        let thread = thread.map_err(|_| SubscribeError::Full)?;
        Ok(Callback { is_over, signal, thread: Some(thread) })
    }

    /// Compiles a filter in E-code for this channel to machine code.
    ///
    /// # Errors
    /// The error in the source, or why it can't run.
    pub fn filter(&self, name: &str, source: &str) -> Result<Filter, FilterError> {
        let program = selvedge_control_event::program(name, source, &self.format)?;
        let (handler, _) = handler::ready(program)?;
        self.shared.with(|core, _| Ok(Filter::new(handler, name, core.exchange.blocks_mut())?))
    }

    /// Checks a filter for this channel.
    ///
    /// # Errors
    /// The error in the source.
    pub fn check(&self, name: &str, source: &str) -> Result<(), CodeError> {
        selvedge_control_event::program(name, source, &self.format).map(drop)
    }

    /// Sets or removes the filter that chooses among other hosts.
    pub fn set_out_filter(&self, filter: Option<Filter>) {
        self.shared.with(|core, _| core.exchange.set_out_filter(self.channel, filter));
    }

    /// The other hosts that have the channel open.
    pub fn members(&self) -> Vec<ParticipantName> {
        let hosts: Vec<_> =
            self.shared.with(|core, _| core.exchange.members(self.channel).collect());
        hosts.into_iter().filter_map(|host| self.shared.inbox.name(host)).collect()
    }

    /// Calls `look` with a view of the channel.
    pub fn view<R>(&self, look: impl FnOnce(&View<'_>) -> R) -> Option<R> {
        self.shared.with(|core, _| core.exchange.view(self.channel).map(|view| look(&view)))
    }
}

/// A function that is called at once, until this is dropped.
pub struct DirectCallback {
    shared: Arc<Shared>,
    direct: Arc<DirectSink>,
}

impl std::fmt::Debug for DirectCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AtOnce({:?}, {:?})", self.direct.channel, self.direct.sink)
    }
}

impl DirectCallback {
    /// The fates of its events.
    pub fn sink_counts(&self) -> SinkCounts {
        self.shared.sink_counts(self.direct.channel, self.direct.sink)
    }
}

impl Drop for DirectCallback {
    fn drop(&mut self) {
        let (channel, sink) = (self.direct.channel, self.direct.sink);
        self.shared.with(|core, _| {
            core.direct.retain(|one| !Arc::ptr_eq(one, &self.direct));
            core.exchange.unsubscribe(channel, sink);
            core.close_if_unused(channel);
        });
    }
}

/// A function that is called with events, until this is dropped.
#[derive(Debug)]
pub struct Callback {
    is_over: Arc<AtomicBool>,
    signal: Arc<SinkSignal>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Callback {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.signal.end();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}
