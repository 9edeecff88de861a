//! A sink: events that wait for one reader. A thread takes them, waiting with a deadline, or a task
//! does as a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant as StdInstant;

use futures_core::Stream;
use selvedge_control_event::{ChannelId, SinkCounts, SinkId};
use selvedge_units::Duration;

use crate::core::Shared;
use crate::received::Received;
use crate::sink_signal::SinkSignal;

/// A sink of a channel; dropping it unsubscribes it.
pub struct Sink {
    pub(crate) shared: Arc<Shared>,
    pub(crate) channel: ChannelId,
    pub(crate) sink: SinkId,
    pub(crate) signal: Arc<SinkSignal>,
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sink({:?}, {:?})", self.channel, self.sink)
    }
}

impl Sink {
    /// The next event, if one waits.
    pub fn try_take(&mut self) -> Option<Received> {
        let mut event = Received::default();
        self.try_take_into(&mut event).then_some(event)
    }

    /// As [`try_take`](Self::try_take), into memory that is reused; returns true if there was an event.
    pub fn try_take_into(&mut self, into: &mut Received) -> bool {
        let (channel, sink) = (self.channel, self.sink);
        self.shared.with(|core, now| {
            let delivery = core.exchange.poll_event(now, channel, sink);
            delivery.map(|delivery| into.set(&delivery)).is_some()
        })
    }

    /// The next event; waits for it at most `wait`, for ever if `None`.
    pub fn take(&mut self, wait: Option<Duration>) -> Option<Received> {
        let mut event = Received::default();
        self.take_into(&mut event, wait).then_some(event)
    }

    /// As [`take`](Self::take), into memory that is reused; returns true if there was an event.
    pub fn take_into(&mut self, into: &mut Received, wait: Option<Duration>) -> bool {
        let until = wait.and_then(|wait| StdInstant::now().checked_add(wait.into()));
        loop {
            if self.try_take_into(into) {
                return true;
            }
            self.signal.listen(None);
            let found = self.try_take_into(into);
            let rang = found || self.signal.wait(until);
            self.signal.leave();
            if found || !rang {
                return found;
            }
        }
    }

    /// The fates of its events.
    pub fn sink_counts(&self) -> SinkCounts {
        self.shared.sink_counts(self.channel, self.sink)
    }
}

impl Stream for Sink {
    type Item = Received;

    /// Never ends: events may always come.
    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Received>> {
        if let Some(event) = self.try_take() {
            return Poll::Ready(Some(event));
        }
        self.signal.listen(Some(context.waker().clone()));
        // An event that arrived since then did not raise the signal.
        self.try_take().map_or(Poll::Pending, |event| {
            self.signal.leave();
            Poll::Ready(Some(event))
        })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let (channel, sink) = (self.channel, self.sink);
        self.shared.with(|core, _| {
            core.waiting.retain(|one| (one.channel, one.sink) != (channel, sink));
            core.exchange.unsubscribe(channel, sink);
            core.close_if_unused(channel);
        });
    }
}
