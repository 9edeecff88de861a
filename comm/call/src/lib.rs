//! ECalls: calls from programs to system services, and events back, over shared memory, after
//! Q-Fabric's chapter 3.
//!
//! A [`Host`] has [`Service`]s, which programs find by name ([`services`]). A [`Client`] calls one,
//! or subscribes: then there is memory in each direction, as a ring or as a bit pattern
//! ([`Layout`]). Calls are **fast** (no wake-up), **deferred** (until the next call, a time, or the
//! next dispatch; they come together), direct, or **generic** (by name, with a reply). Events have
//! deadlines and are delivered earliest first. A service may request that the processor's scheduler
//! prefer an event's subscriber, by the event-aware rules of `selvedge-data-cpu`.
//!
//! The other process may write anything into shared memory: the content is copied, then checked.

#![forbid(unsafe_code)]

mod bit_pattern;
mod client;
mod host;
mod message;
mod queue;
mod registered;
mod segment;
pub mod service;
mod subscriber;
mod subscription;

pub use client::{Client, ClientError, Description, generic};
pub use host::{Host, RegisterError, directory, services};
pub use message::Preference;
#[doc(hidden)]
pub use message::is_message;
pub use registered::ServiceCounts;
pub use segment::{Layout, PutError, SegmentError};
pub use selvedge_comm_local::WakeMethod;
pub use service::{
    Call, CallError, CallKind, DATA_MAX, EventSink, EventTarget, NAME_MAX, Service,
    ServiceEventDraft,
};
pub use subscription::{Deferral, ServiceEvent, SubscribeOptions, Subscription};
