//! Networks in virtual time: hosts, links and traffic under a seed.
//!
//! A [`Network`] is built of hosts, of links (each two `Line`s of `data/net/line`), of flows, and of
//! [`Endpoint`]s that send and receive them. A [`Simulation`] runs it: an hour of a network is a loop over
//! its events, on one thread, without a clock and without floating point, and gives the same [`Results`]
//! everywhere. An endpoint may send real datagrams ([`Payload::Bytes`]), so the product's own code runs in
//! it ([`media`]). It is the network simulator of Aurora (2:2.3, 2.7, 3.5).

#![forbid(unsafe_code)]

mod agenda;
mod capture;
mod endpoint;
pub mod fuzz;
pub mod media;
mod network;
mod packet;
mod promise;
mod results;
pub mod scenario;
mod simulation;
mod traffic;

pub use capture::Capture;
pub use endpoint::Endpoint;
pub use network::{Network, NetworkError};
pub use packet::{Ack, Datagram, EndpointId, FlowId, HostId, Payload, Segment};
pub use promise::{Breach, Promise};
pub use results::{Event, Flow, HopResult, Observer, Results, Step};
pub use simulation::{Limits, RunError, Simulation};
pub use traffic::{
    Connection, ConnectionEnd, Control, EventEnd, Hostile, Load, MeasuredReceiver, MeasuredSender,
    Messages, OnOff, Program, Recording, RecordingError, Replay, TcpParams,
};
