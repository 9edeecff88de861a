//! Traffic beside streams: transfers by models of TCP, requests, noise, recorded packets, and channels of events.

pub(crate) mod events;
mod hostile;
mod on_off;
mod replay;
mod tcp;

pub use events::EventEnd;
pub use hostile::Hostile;
pub use on_off::OnOff;
pub use replay::{Recording, RecordingError, Replay};
pub use tcp::{Connection, Control, Load, TcpParams};
