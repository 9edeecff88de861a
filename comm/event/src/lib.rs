//! Event channels between hosts: an exchange that all threads of a process share, over a Zenoh peer.
//!
//! ```no_run
//! use selvedge_control_event::{Attributes, Event, Format, Overflow, Subscription, Wake};
//! use selvedge_comm_event::{Host, Settings};
//!
//! let host = Host::start(&Settings::default())?;
//! let format = Format::parse("load", "input { int cpu; long memory; };")?;
//! let load = host.open("load", &format, Wake::All)?;
//!
//! // In any program that has opened "load":
//! let wish = Subscription { bound: 100, overflow: Overflow::DropOldest, filter: None };
//! let mut sink = load.subscribe(wish)?;
//!
//! load.publish(Event { deadline: None, attributes: Attributes::default(), record: &[0; 16] })?;
//! let event = sink.take(Some(std::time::Duration::from_secs(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs of one user and machine meet by themselves; others by [`Settings`]. Handles are `Clone` and
//! `Send`; events come by [`Sink::take`] with a deadline, by `Sink` as a stream for any runtime, or by
//! [`Joined::on_event`], or without a wake-up by [`Joined::on_event_at_once`]. Publishing runs on the caller's thread and never waits for a sink.
//!
//! docs/events.md has the settings file, the wire and the limits. After Q-Fabric's sections 3.4 and 4.2.

mod address;
mod batch;
mod bell;
mod carrier;
mod core;
mod engine;
mod handler;
mod host;
mod inbox;
mod joined;
mod keys;
mod listing;
mod manage;
mod meeting;
mod near;
mod proof;
mod received;
mod say;
mod settings;
mod sink;

pub use address::{Address, AddressError};
pub use handler::{FilterError, Meter};
pub use host::{AskError, Host, Notices, StartError, Told, engine_configuration};
pub use joined::{AtOnce, Callback, Joined};
pub use keys::HostName;
pub use listing::{
    CarriedBy, DeployedListing, Deployment, Listing, MemberListing, Place, SinkListing, listed,
};
pub use meeting::MeetingError;
pub use near::Rings;
pub use received::Received;
pub use settings::{
    DeployRights, MemberRights, NameError, Role, Settings, SettingsError, Tls, TokenError,
    read_token,
};
pub use sink::Sink;
