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

mod board;
mod client;
mod host;
mod queue;
mod registered;
mod say;
mod segment;
pub mod service;
mod subscriber;
mod subscription;

pub use client::{Client, ClientError, Description, generic};
pub use host::{Host, RegisterError, directory, services};
pub use registered::ServiceCounts;
pub use say::Preference;
#[doc(hidden)]
pub use say::is_message;
pub use segment::{Layout, PutError, SegmentError};
pub use selvedge_comm_local::WakeMethod;
pub use service::{Call, CallError, DATA_MAX, Kind, NAME_MAX, Raise, Raised, Service, Target};
pub use subscription::{ServiceEvent, Subscription, When, Wish};
