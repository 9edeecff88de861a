//! Traffic beside streams: transfers by models of TCP, requests, noise, recorded packets, and channels of events.

pub(crate) mod events;
mod hostile;
mod messages;
mod on_off;
mod replay;
mod tcp;

pub use events::EventEnd;
pub use hostile::Hostile;
pub(crate) use hostile::Victim;
pub(crate) use messages::forger;
pub use messages::{Messages, Program};
pub use on_off::OnOff;
pub use replay::{Recording, RecordingError, Replay};
pub use tcp::{Connection, Control, Load, TcpParams};
