//! What a system service is: a name, calls that it answers, events that it raises. After Q-Fabric's
//! sections 3.2 and 3.2.1.
//!
//! # How to write one
//! Implement [`Service`] for a type of yours, and hand it to a host (`Host::register`). The host owns one
//! thread that does everything: it hands in calls, and runs the service when it is due, when its
//! descriptor is readable, or when calls have come. So
//!
//! - nothing here may block or take long; what may, belongs into a thread or into the kernel, which
//!   makes the descriptor of [`Service::watch`] readable;
//! - no locks are needed: `&mut self` is the only user;
//! - time is an argument: `CLOCK_MONOTONIC`, as [`Instant`].
//!
//! ```
//! use selvedge_comm_call::{Call, CallError, EventSink, ServiceEventDraft, Service};
//! use selvedge_units::{Instant, Duration};
//!
//! /// Tells its subscribers every so often how many calls it had.
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
/// The most bytes of a call, a reply or an event.
pub const DATA_MAX: usize = 15 * 1024;

/// How a call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Nobody was woken for it: it was looked at because the service ran anyway.
    Fast,
    /// It was held back, alone or with others, until the caller's next call, a time, or the next
    /// dispatch.
    Deferred,
    /// The host was woken for it; nobody waits for a reply.
    Direct,
    /// By the service's name over the socket; the caller waits for the reply.
    Generic,
}

/// A call of an application.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The caller's process, as the kernel tells it.
    pub pid: u32,
    /// Its user, likewise.
    pub uid: u32,
    /// How it came.
    pub kind: CallKind,
    /// Whether the reply goes anywhere; if not, there is no need to write one.
    pub wants_reply: bool,
    /// What it says, up to [`DATA_MAX`] bytes, in the service's call format. **Never believe it**: it is a
    /// copy that cannot change any more, but it may be anything.
    pub data: &'a [u8],
}

/// Why a service does not do what was asked; the caller is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The call's bytes make no sense.
    #[error("the call is malformed: {0}")]
    Malformed(String),
    /// The caller may not.
    #[error("not allowed: {0}")]
    Denied(String),
    /// It can't now.
    #[error("it can't be done now: {0}; try again later")]
    Busy(String),
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

/// Whom an event is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventTarget {
    /// Every subscriber (the paper's pid -1).
    All,
    /// One subscriber, in turn.
    One,
    /// Those of one process.
    Pid(u32),
}

/// An event that a service raises: the paper's `raise_event(service_id, pid, data_pointer, deadline,
/// cpu)`.
#[derive(Clone, Copy, Debug)]
pub struct ServiceEventDraft<'a> {
    /// Whom it is for.
    pub target: EventTarget,
    /// The record, in the service's event format; up to [`DATA_MAX`] bytes.
    pub data: &'a [u8],
    /// Which entry of a subscriber's bit pattern it goes to; `None`: the first that is free. Rings
    /// have no entries.
    pub entry: Option<u32>,
    /// When it is of no more use. Events are handed out earliest deadline first, and dropped and
    /// counted when it is too late.
    pub deadline: Option<Instant>,
    /// Whether the processor's scheduler is to prefer the subscriber until it has seen the event.
    pub cpu: bool,
}

impl<'a> ServiceEventDraft<'a> {
    /// For all subscribers, without a deadline.
    #[must_use]
    pub const fn to_all(data: &'a [u8]) -> Self {
        Self { target: EventTarget::All, data, entry: None, deadline: None, cpu: false }
    }

    /// For one subscriber, in turn.
    #[must_use]
    pub const fn to_one(data: &'a [u8]) -> Self {
        Self { target: EventTarget::One, ..Self::to_all(data) }
    }

    /// For the subscribers of one process.
    #[must_use]
    pub const fn to_pid(pid: u32, data: &'a [u8]) -> Self {
        Self { target: EventTarget::Pid(pid), ..Self::to_all(data) }
    }

    /// With a deadline.
    #[must_use]
    pub const fn due(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// For this entry of a bit pattern: a priority, or a type.
    #[must_use]
    pub const fn at(mut self, entry: u32) -> Self {
        self.entry = Some(entry);
        self
    }

    /// With the scheduler's help.
    #[must_use]
    pub const fn preferred(mut self) -> Self {
        self.cpu = true;
        self
    }
}

/// Takes the events that a service raises. They are handed out when the service has returned.
pub trait EventSink {
    /// Raises an event; one that is longer than [`DATA_MAX`] is dropped and counted.
    fn raise(&mut self, event: ServiceEventDraft<'_>);

    /// How many subscribers there are: nothing needs to be raised for none.
    fn subscribers(&self) -> usize;
}

/// A system service. See the [module](self) for how to write one.
pub trait Service: Send {
    /// Its name, unique on a host: 1 to [`NAME_MAX`] bytes of `a`-`z`, `0`-`9`, `-`, `_`, `.`.
    fn name(&self) -> &str;

    /// What it does, in a line, for lists.
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
    /// If it will not, or can't; a caller that waits is told.
    fn call(&mut self, now: Instant, call: &Call<'_>, reply: &mut Vec<u8>)
    -> Result<(), CallError>;

    /// Does what is due; when to be run next at the latest (`None`: only when [`watch`](Self::watch) or
    /// calls say so). Also called after calls were handed in, so that they may raise events. Must not
    /// block.
    fn run(&mut self, now: Instant, events: &mut dyn EventSink) -> Option<Instant> {
        let _ = (now, events);
        None
    }

    /// A descriptor that is readable when there is something to do, such as a BPF ring buffer's epoll
    /// descriptor, a netlink socket, an eventfd. It is watched by level: [`run`](Self::run) has to
    /// empty it.
    fn watch(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// A process has subscribed.
    fn subscribed(&mut self, pid: u32) {
        let _ = pid;
    }

    /// A process has left, or is gone.
    fn unsubscribed(&mut self, pid: u32) {
        let _ = pid;
    }
}
