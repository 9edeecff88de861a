//! What both ends of a ring share: the peer's number, the sink's options, and the errors.

use selvedge_control_event::Overflow;
use selvedge_data_memory::RegionError;
use selvedge_os::memory::MemoryError;
use selvedge_units::{Bytes, Duration};

use crate::message::WakeMethod;

/// Another member, as numbered by this one; numbers are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// A sink's options for its events.
#[derive(Clone, Copy, Debug)]
pub struct SinkOptions {
    /// The largest number of waiting events of each source, 1 to 65536.
    pub bound: usize,
    /// The rule beyond that, and when `room` is full.
    pub full: Overflow,
    /// Memory for each source's events, each with 24 bytes beside its own; rounded up to a power of
    /// two. No event can be longer.
    pub room: Bytes,
    /// How the sink is woken when it sleeps.
    pub wake_method: WakeMethod,
    /// How long the sink polls its rings before it sleeps.
    pub spin: Duration,
}

impl Default for SinkOptions {
    fn default() -> Self {
        Self {
            bound: 1024,
            full: Overflow::DropOldest,
            room: Bytes(256 * 1024),
            wake_method: WakeMethod::default(),
            spin: Duration::ZERO,
        }
    }
}

/// Why a ring, or a way to wake its reader, can't be made.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The memory can't be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The content of the memory is invalid.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The kernel can't make an eventfd.
    #[error("can't make an event: {0}")]
    Event(#[from] std::io::Error),
    /// The signal can't carry a value.
    #[error("signal {0} is no real-time signal")]
    Signal(i32),
    /// The sink must pass an eventfd.
    #[error("a sink that wants an event passed none")]
    NoEvent,
    /// The process to be woken is gone.
    #[error("the process is gone")]
    Gone,
}
