//! ECalls: calls from programs to system services and events back, over memory that both share, after
//! Q-Fabric's chapter 3.
//!
//! A [`Host`] has [`Service`]s, which programs find by name ([`services`]); a [`Client`] calls one, or
//! subscribes: then there is memory each way, as a ring or as a bit pattern ([`Layout`]). Calls are **fast** (nobody is
//! woken), **deferred** (until the next call, a time, or the next dispatch; they come together), direct, or **generic** (by
//! name, with a reply). Events have deadlines and are handed out earliest first; a service may ask the processor's
//! scheduler to prefer who gets one, by the event-aware rules of `selvedge-data-cpu`.
//!
//! Whoever shares memory with us may write anything into it: it is copied, then checked.

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
