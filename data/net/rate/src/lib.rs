//! The rate of a path that nobody knows, measured while it is used.
//!
//! The receiving end ([`Arrivals`]) notes when each numbered packet arrived and makes a [`Report`] ten times a
//! second, earlier where packets are missing. The sending end ([`Estimator`]) compares it with what it sent. A
//! queue shows in the delay; while one stands, packets arrive at the rate of the narrowest link, which is
//! the rate that is looked for. So the estimator keeps a short queue, and needs no other probe: where the queue
//! is gone the path can carry more, and the rate grows, the faster the longer that is so. Slower flows keep a longer
//! queue, so flows that share one come nearer to the same rate.
//!
//! Beside a flow that fills each buffer a short queue would starve. Where the queue stays although the estimator
//! leaves room for it to drain, another fills it; then a window is kept that shrinks on loss, as TCP's does.
//!
//! It is the network monitor of Q-Fabric (2.2) for a path, and the congestion control that Aurora asked for
//! (2:3.5). Nothing here trusts the far end: what arrived is looked up among what was sent.

#![forbid(unsafe_code)]

mod arrivals;
mod base_delay;
mod estimator;
mod loss;
mod params;
mod report;
mod sent;
mod serialization;
mod target;
mod usage;
mod variation;
mod window;

pub use arrivals::Arrivals;
pub use base_delay::{BaseDelay, Delay};
pub use estimator::{Estimator, State};
pub use loss::Loss;
pub use params::RateParams;
pub use report::{Arrival, Report, ReportError};
pub use sent::{SentError, UNDER_WAY_MAX};
