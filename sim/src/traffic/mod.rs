//! Traffic beside the product's own: transfers by models of TCP, requests, noise, and recorded packets.

mod hostile;
mod on_off;
mod replay;
mod tcp;

pub use hostile::Hostile;
pub use on_off::OnOff;
pub use replay::{Recording, RecordingError, Replay};
pub use tcp::{Connection, Control, Load, TcpParams};
