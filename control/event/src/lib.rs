//! Events: typed records on named channels.
//!
//! A **format** states the content of a record, in the language of E-code's declarations. It is sent as
//! text, once, before its first event. A record is sent as it lies in its sender's memory. The receiver
//! makes a **plan** once, which converts the sender's layout to its own, as ECho's PBIO did. Equal formats
//! cost one copy; members that one side does not know cost nothing and break nothing. **Attributes** are
//! names with values that accompany an event without being part of its format.
//!
//! A [`Channel`] is one host's end: sinks with a bound and an overflow rule each, events in the order of
//! their deadlines, filters in E-code. An [`Exchange`] has a host's channels and their members on other
//! hosts. It does no I/O: a transport's loop takes its frames from [`Exchange::poll_transmit`].
//!
//! After Q-Fabric's sections 2.2 and 4.2. The envelope is encoded by `postcard`: a stable, compact
//! form for serde, borrowed when read. No library fits the records themselves: those that allow for
//! growth write each field with a tag, or need a schema compiler.
//!
//! Pure: no clock, no I/O, no threads.
#![forbid(unsafe_code)]

mod attribute;
mod channel;
mod event;
mod exchange;
mod filter;
mod format;
mod formats;
mod frame;
mod handlers;
mod message;
mod plan;
mod queue;
mod reliable;
mod transmit;

pub use attribute::{AttributeError, Attributes, AttributesBuf, Value};
pub use channel::{
    BOUND_MAX, Channel, PublishError, SinkCounts, SubscribeError, Subscription, Wake,
};
pub use event::{ChannelId, Delivery, Event, SinkId};
pub use exchange::{
    ANSWERS, CHANNEL_NAME_MAX, Exchange, FailureDetector, HEARTBEAT, HOLD_MAX, Interest, LEASE,
    MEMBERS_MAX, MemberView, Notice, NoticeKind, OpenError, Permit, REFRESH, Right, View,
};
pub use filter::{
    Filter, SINKS_MAX, SharedBlocks, SharedMismatch, SinkState, environment, program,
};
pub use format::{Format, FormatError, FormatId};
pub use formats::{FormatReceiver, FormatSender, ReadError};
pub use handlers::{Continue, HandlerEvent, Handlers};
pub use message::{DecodeError, EncodeError, MESSAGE_MAX, Message};
pub use plan::{Mismatch, Plan};
pub use queue::Overflow;
pub use reliable::{HELD_BYTES_MAX, HELD_MAX, RESUME};
pub use transmit::{Class, Destination, HostId, Transmit, TransportEvent};
