//! Models of TCP, for load that reacts to the network as most traffic does: NewReno (RFC 5681, RFC 6582,
//! without SACK) and CUBIC (RFC 9438, with SACK), timeouts by RFC 6298, timestamps by RFC 7323.
//!
//! `Application -> Sender -> segments -> Receiver -> acknowledgements -> Sender`. Connections are open from
//! the start. What NewReno does is Hoe's fast recovery, which Aurora's simulator brought (2:3.5).

mod connection;
mod cubic;
mod ranges;
mod receiver;
mod round_trip;
mod sender;
mod window;

use selvedge_units::{Bytes, Duration};

pub use connection::{Connection, Load};
pub use selvedge_control_config::network::Control;

/// What a connection is set to, at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpParams {
    /// The control of congestion. NewReno works without SACK, CUBIC with it.
    pub control: Control,
    /// The most payload of a segment: 1 B to 64 kB, else the nearest.
    pub segment: Bytes,
    /// All headers of a packet, from the IP header on.
    pub header: Bytes,
    /// Segments of the initial window.
    pub initial_window: u32,
    /// A receiver acknowledges every so many segments, 1 or more, if they come in order.
    pub ack_every: u32,
    /// Or after this time.
    pub ack_delay: Duration,
    /// The shortest timeout.
    pub timeout_min: Duration,
    /// The most that is under way.
    pub window_max: Bytes,
}

impl TcpParams {
    /// IPv4 and TCP with timestamps in 1500 bytes; every second segment is acknowledged, or after 200 ms, as
    /// ns-3 does; the shortest timeout is RFC 6298's 1 s, the largest window Linux's 6 MiB.
    #[must_use]
    pub const fn new(control: Control) -> Self {
        Self {
            control,
            segment: Bytes(1_448),
            header: Bytes(52),
            initial_window: 10,
            ack_every: 2,
            ack_delay: Duration::from_millis(200),
            timeout_min: Duration::from_secs(1),
            window_max: Bytes(6 << 20),
        }
    }

    fn segment_size(&self) -> u64 {
        self.segment.0.clamp(1, 64_000)
    }

    /// Blocks of SACK give distances in 32 bits.
    fn window(&self) -> u64 {
        self.window_max.0.min(u32::MAX.into())
    }

    fn has_sack(&self) -> bool {
        self.control == Control::Cubic
    }
}
