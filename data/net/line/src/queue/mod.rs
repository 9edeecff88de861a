//! The queue in front of a link. A kind of queue is one file and one line of the table in [`QueueModel`].

mod codel;
mod discipline;
mod drop_tail;
mod dual_pi2;
mod fq_codel;

use std::collections::VecDeque;
use std::fmt::Debug;

use selvedge_units::{Bytes, Instant};

pub use self::codel::CodelParams;
pub use self::discipline::DisciplineParams;
pub use self::dual_pi2::DualPi2Params;
pub use self::fq_codel::FqCodelParams;
use crate::packet::{Drop, Packet};

/// A kind of queue, with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueModel {
    /// First come, first served; what does not fit is dropped.
    DropTail {
        /// The most that waits, in bytes and in packets.
        limit: Limit,
    },
    /// CoDel (RFC 8289), as the Linux kernel's `codel`.
    Codel(CodelParams),
    /// FQ-CoDel (RFC 8290), as the Linux kernel's `fq_codel`.
    FqCodel(FqCodelParams),
    /// DualPI2 (RFC 9332), for flows that mark with ECT(1) beside all others.
    DualPi2(DualPi2Params),
    /// A queue for each flow, served by a discipline of the scheduler.
    Discipline(DisciplineParams),
}

/// The most that a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Bytes.
    pub bytes: Bytes,
    /// Packets.
    pub packets: u32,
}

impl Limit {
    /// So many packets of any size.
    #[must_use]
    pub const fn packets(packets: u32) -> Self {
        Self { bytes: Bytes(u64::MAX), packets }
    }

    /// So many bytes, in packets of any number.
    #[must_use]
    pub const fn bytes(bytes: Bytes) -> Self {
        Self { bytes, packets: u32::MAX }
    }
}

/// Packets that a queue or link dropped, until the caller has seen them.
pub(crate) type Dropped<P> = VecDeque<(Packet<P>, Drop)>;

/// A queue. Each packet that goes in comes out, or is added to the dropped ones.
pub(crate) trait Queue<P>: Debug + Send {
    fn enqueue(&mut self, now: Instant, packet: Packet<P>, dropped: &mut Dropped<P>);

    /// The packet that is to be sent now.
    fn dequeue(&mut self, now: Instant, dropped: &mut Dropped<P>) -> Option<Packet<P>>;

    fn backlog(&self) -> Bytes;

    fn packets(&self) -> usize;
}

impl QueueModel {
    pub(crate) fn queue<P: Debug + Send + 'static>(&self) -> Box<dyn Queue<P>> {
        match self.clone() {
            Self::DropTail { limit } => Box::new(drop_tail::DropTail::new(limit)),
            Self::Codel(params) => Box::new(codel::CodelQueue::new(params)),
            Self::FqCodel(params) => Box::new(fq_codel::FqCodel::new(params)),
            Self::DualPi2(params) => Box::new(dual_pi2::DualPi2::new(params)),
            Self::Discipline(params) => Box::new(discipline::Scheduled::new(params)),
        }
    }
}
