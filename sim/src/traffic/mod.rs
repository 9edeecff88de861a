//! Traffic beside streams: transfers by models of TCP, requests, noise, recorded packets, channels of events, stacks and
//! connections.

mod connections;
pub(crate) mod events;
mod hostile;
mod measured;
mod messages;
mod on_off;
mod replay;
mod tcp;

pub use connections::ConnectionEnd;
pub use events::EventEnd;
pub use hostile::Hostile;
pub(crate) use hostile::Victim;
pub use measured::{MeasuredReceiver, MeasuredSender};
pub use messages::{Messages, Program};
pub(crate) use messages::{Wire, forger};
pub use on_off::OnOff;
pub use replay::{Recording, RecordingError, Replay};
pub use tcp::{Connection, Control, Load, TcpParams};
