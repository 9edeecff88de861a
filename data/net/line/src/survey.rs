//! What a real path does, by probes over UDP: the near end's [`Prober`] sends, the far end's [`Reflector`] answers,
//! and a [`Survey`] is what comes of it, in the words of the models.
//!
//! A small probe every 10 ms is echoed with the far end's time, which shows losses and how delays vary, each way. The
//! clocks are not shared, so half of the shortest round trip is taken as the delay of each way. Each second a train of
//! full packets is sent there, and half a second later one back; the time between its packets at the receiver is
//! the rate (packet dispersion: Dovrolis et al., "Packet-dispersion techniques and a capacity-estimation
//! methodology", 2004). A delay counts only for probes of the half second without a train of its way.

mod datagram;
mod estimate;
mod prober;
mod reflector;

pub use estimate::{Survey, SurveyedDirection};
pub use prober::Prober;
pub use reflector::Reflector;
