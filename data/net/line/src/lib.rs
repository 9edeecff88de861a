//! Models of bad links, for the simulator and for real programs alike: rate, delay, loss, queues.
//!
//! A [`Line`] is one direction of a link, made of a [`LineModel`]. The caller hands in packets
//! (`handle_packet`), and takes out those that have arrived (`poll_packet`) at the times of `poll_timeout`.
//! Time is an argument; random numbers come from a seed, and each use has a stream of its own
//! ([`Random`]). There is no I/O and no floating point: the same seed gives the same packets everywhere.
//! It is the network of Aurora's simulator (2:2.3, 2.7) with the links of today.

#![forbid(unsafe_code)]

mod delay;
mod line;
mod loss;
mod packet;
mod queue;
mod random;
mod recording;
mod survey;
mod trace;

pub use delay::{DelayModel, Jitter};
pub use line::{Arrived, Line, LineCounts, LineModel, Outages};
pub use loss::LossModel;
pub use packet::{Drop, Ecn, Packet};
pub use queue::{CodelParams, DisciplineParams, DualPi2Params, FqCodelParams, Limit, QueueModel};
pub use random::Random;
pub use recording::Recording;
pub use survey::{Prober, Reflector, Survey, SurveyedDirection};
pub use trace::{LINES_MAX, Rate, Trace, TraceError};
