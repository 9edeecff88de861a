//! Event channels between hosts: an exchange that all threads of a process share, over a Zenoh peer.
//!
//! ```no_run
//! use selvedge_control_event::{Attributes, Event, Format, Overflow, Subscription, Wake};
//! use selvedge_comm_event::{Participant, Settings};
//!
//! let host = Participant::start(&Settings::default())?;
//! let format = Format::parse("load", "input { int cpu; long memory; };")?;
//! let load = host.open("load", &format, Wake::All)?;
//!
//! // In any program that has opened "load":
//! let wish = Subscription { bound: 100, overflow: Overflow::DropOldest, filter: None };
//! let mut sink = load.subscribe(wish)?;
//!
//! load.publish(Event { deadline: None, attributes: Attributes::default(), record: &[0; 16] })?;
//! let event = sink.take(Some(selvedge_units::Duration::from_secs(1)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Programs of one user and machine meet by themselves; others by [`Settings`]. Handles are `Clone` and
//! `Send`. Events arrive by [`Sink::take`] with a deadline, by `Sink` as a stream for any runtime, by
//! [`ChannelHandle::on_event`], or without a wake-up by [`ChannelHandle::on_event_direct`]. Publishing runs
//! on the caller's thread and never waits for a sink.
//!
//! docs/events.md has the settings file, the wire format and the limits. After Q-Fabric's sections
//! 3.4 and 4.2.

mod address;
mod batch;
mod carrier;
mod channel_handle;
mod core;
mod engine;
mod handler;
mod inbox;
mod keys;
mod listing;
mod manage;
mod meeting;
mod message;
mod participant;
mod proof;
mod received;
mod ring_transport;
mod settings;
mod sink;
mod sink_signal;

pub use address::{Address, AddressError};
pub use channel_handle::{Callback, ChannelHandle, DirectCallback};
pub use handler::{FilterError, Meter};
pub use keys::ParticipantName;
pub use listing::{CarriedBy, DeployedListing, Deployment, Listing, MemberListing, Place, listed};
pub use meeting::MeetingError;
pub use participant::{
    NamedNotice, Notices, Participant, RequestError, StartError, engine_configuration,
};
pub use received::Received;
pub use ring_transport::Rings;
pub use settings::{
    DeployRights, MemberRights, NameError, ReadError, Role, Settings, SettingsError, Tls,
    TokenError, read_token,
};
pub use sink::Sink;
