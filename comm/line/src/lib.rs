//! A bad link for any two programs, in real time: models of links between two network namespaces.
//!
//! [`Ends`] are two namespaces with a pair of devices for each link. What a program at one end sends comes out
//! of its device's port, [`Relay`] hands it to the [`Line`](selvedge_data_net_line::Line) of that direction,
//! and puts it into the other device when the line says so. [`Session`] runs the relay and the programs,
//! answers requests for changes ([`changes`]), and ends with the programs. [`Recorder`] writes what became of
//! each packet. [`survey`] notes what a real path does, for a line to do the same.
//!
//! One thread does all of this but the writing. Nothing outlives its process: devices belong to descriptors,
//! programs to a process namespace, and namespaces to both.

#![forbid(unsafe_code)]

pub mod changes;
mod ends;
mod link;
mod packet;
mod record;
mod relay;
mod session;
pub mod survey;

pub use ends::{Address, DeviceKind, Ends, EndsError, LINKS_MAX, Side, address};
pub use link::{Direction, Link};
pub use packet::{flow, is_housekeeping};
pub use record::{RecordError, Recorder};
pub use relay::{DirectionReport, Relay};
pub use session::{Outcome, Programs, Session, SessionError};
