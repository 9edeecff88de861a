//! The interface of a system service: a name, calls that it answers, events that it raises. After
//! Q-Fabric's sections 3.2 and 3.2.1.
//!
//! # How to write one
//! Implement [`Service`] for a type of yours, and pass it to a host (`Host::register`). The host
//! owns one thread that does everything: it delivers calls, and runs the service when it is due,
//! when its descriptor is readable, or when calls have come. So
//!
//! - nothing here may block or take long; such work belongs into a thread or into the kernel, which
//!   makes the descriptor of [`Service::watch`] readable;
//! - no locks are needed: `&mut self` is the only user;
//! - time is an argument: `CLOCK_MONOTONIC`, as [`Instant`].
//!
//! ```
//! use selvedge_comm_call::{Call, CallError, EventSink, ServiceEventDraft, Service};
//! use selvedge_units::{Instant, Duration};
//!
//! /// Reports to its subscribers, ten times a second, how many calls it got.
//! struct Counter(u64);
//!
//! impl Service for Counter {
//!     fn name(&self) -> &str {
//!         "counter"
//!     }
//!     fn event_format(&self) -> &str {
//!         "input { long calls; };"
//!     }
//!     fn call(&mut self, _: Instant, call: &Call<'_>, reply: &mut Vec<u8>) -> Result<(), CallError> {
//!         self.0 += 1;
//!         if call.wants_reply {
//!             reply.extend_from_slice(&self.0.to_ne_bytes());
//!         }
//!         Ok(())
//!     }
//!     fn run(&mut self, now: Instant, events: &mut dyn EventSink) -> Option<Instant> {
//!         events.raise(ServiceEventDraft::to_all(&self.0.to_ne_bytes()).due(now + Duration::from_millis(10)));
//!         Some(now + Duration::from_millis(100))
//!     }
//! }
//! ```

use std::os::fd::BorrowedFd;

use selvedge_units::Instant;

/// The longest name of a service, in bytes.
pub const NAME_MAX: usize = 64;
/// The largest size of a call, a reply or an event, in bytes.
pub const DATA_MAX: usize = 15 * 1024;

/// How a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Without a wake-up: the host found it when the service ran anyway.
    Fast,
    /// Held back, alone or with others, until the caller's next call, a time, or the next dispatch.
    Deferred,
    /// With a wake-up of the host; no caller waits for a reply.
    Direct,
    /// By the service's name over the socket; the caller waits for the reply.
    Generic,
}

/// A call of an application.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The caller's process, as the kernel reports it.
    pub pid: u32,
    /// The caller's user, as the kernel reports it.
    pub uid: u32,
    /// How it was made.
    pub kind: CallKind,
    /// Whether the reply is sent; if not, there is no need to write one.
    pub wants_reply: bool,
    /// The payload, up to [`DATA_MAX`] bytes, in the service's call format. **Never trust it**: it
    /// is a copy that cannot change any more, but it may contain anything.
    pub data: &'a [u8],
}

/// Why a service refuses a call; the caller receives it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call's bytes are malformed.
    #[error("the call is malformed: {0}")]
    Malformed(String),
    /// The caller lacks the right.
    #[error("not allowed: {0}")]
    Denied(String),
    /// The service can't do it now.
    #[error("it can't be done now: {0}; try again later")]
    Busy(String),
    /// Another reason.
    #[error("{0}")]
    Failed(String),
}

/// The recipients of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTarget {
    /// Every subscriber (the paper's pid -1).
    All,
    /// One subscriber, in turn.
    One,
    /// The subscribers of one process.
    Pid(u32),
}

/// An event that a service raises: the paper's `raise_event(service_id, pid, data_pointer, deadline,
/// cpu)`.
#[derive(Clone, Copy, Debug)]
pub struct ServiceEventDraft<'a> {
    /// The recipients.
    pub target: EventTarget,
    /// The record, in the service's event format; up to [`DATA_MAX`] bytes.
    pub data: &'a [u8],
    /// The entry of a subscriber's bit pattern; `None`: the first free one. Rings have no entries.
    pub entry: Option<u32>,
    /// The deadline. Events are delivered earliest deadline first; late ones are dropped and counted.
    pub deadline: Option<Instant>,
    /// Whether the processor's scheduler should prefer the subscriber until it has seen the event.
    pub cpu: bool,
}

impl<'a> ServiceEventDraft<'a> {
    /// An event for all subscribers, without a deadline.
    #[must_use]
    pub const fn to_all(data: &'a [u8]) -> Self {
        Self { target: EventTarget::All, data, entry: None, deadline: None, cpu: false }
    }

    /// An event for one subscriber, in turn.
    #[must_use]
    pub const fn to_one(data: &'a [u8]) -> Self {
        Self { target: EventTarget::One, ..Self::to_all(data) }
    }

    /// An event for the subscribers of one process.
    #[must_use]
    pub const fn to_pid(pid: u32, data: &'a [u8]) -> Self {
        Self { target: EventTarget::Pid(pid), ..Self::to_all(data) }
    }

    /// Adds a deadline.
    #[must_use]
    pub const fn due(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the entry of a bit pattern: a priority, or a type.
    #[must_use]
    pub const fn at(mut self, entry: u32) -> Self {
        self.entry = Some(entry);
        self
    }

    /// Requests the scheduler's preference.
    #[must_use]
    pub const fn preferred(mut self) -> Self {
        self.cpu = true;
        self
    }
}

/// Takes the events that a service raises. They are delivered when the service has returned.
pub trait EventSink {
    /// Raises an event; one that is longer than [`DATA_MAX`] is dropped and counted.
    fn raise(&mut self, event: ServiceEventDraft<'_>);

    /// The number of subscribers: without any, no event needs to be raised.
    fn subscribers(&self) -> usize;
}

/// A system service. See the [module](self) for how to write one.
pub trait Service: Send {
    /// Its name, unique on a host: 1 to [`NAME_MAX`] bytes of `a`-`z`, `0`-`9`, `-`, `_`, `.`.
    fn name(&self) -> &str;

    /// Its purpose in one line, for lists.
    fn description(&self) -> &str {
        ""
    }

    /// The format of its calls, as E-code declares it; empty if they are bytes.
    fn call_format(&self) -> &str {
        ""
    }

    /// The format of its events, as E-code declares it; empty if they are bytes.
    fn event_format(&self) -> &str {
        ""
    }

    /// Answers a call. Must not block. The reply, up to [`DATA_MAX`] bytes, is appended to `reply`.
    ///
    /// # Errors
    /// If the service refuses or fails; a waiting caller receives the error.
    fn call(&mut self, now: Instant, call: &Call<'_>, reply: &mut Vec<u8>)
    -> Result<(), CallError>;

    /// Does what is due; returns the latest time of the next run (`None`: only when
    /// [`watch`](Self::watch) or calls require it). Also called after calls were delivered, so that
    /// they may raise events. Must not block.
    fn run(&mut self, now: Instant, events: &mut dyn EventSink) -> Option<Instant> {
        let _ = (now, events);
        None
    }

    /// A descriptor that is readable when there is something to do, such as a BPF ring buffer's
    /// epoll descriptor, a netlink socket or an eventfd. It is level-triggered: [`run`](Self::run)
    /// has to empty it.
    fn watch(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Notifies the service that a process has subscribed.
    fn subscribed(&mut self, pid: u32) {
        let _ = pid;
    }

    /// Notifies the service that a process has left, or is gone.
    fn unsubscribed(&mut self, pid: u32) {
        let _ = pid;
    }
}
