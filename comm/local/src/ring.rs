//! What both ends of a ring know of it: whose it is, how its sink wants it, and why it can't be had.

use selvedge_control_event::Overflow;
use selvedge_data_memory::RegionError;
use selvedge_os::memory::MemoryError;
use selvedge_units::{Bytes, Duration};

use crate::message::WakeMethod;

/// Another member, as this one numbers them: never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// How a sink wants its events.
#[derive(Clone, Copy, Debug)]
pub struct SinkOptions {
    /// How many of each source may wait, 1 to 65536.
    pub bound: usize,
    /// What happens beyond that, and when `room` is full.
    pub full: Overflow,
    /// Memory for each source's events, each with 24 bytes beside its own: up to a power of two. No event can
    /// be longer.
    pub room: Bytes,
    /// How it is called when it sleeps.
    pub wake_method: WakeMethod,
    /// How long it watches its rings before it sleeps.
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

/// Why a ring, or a way to call its reader, can't be had.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// What lies in it.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The kernel makes none.
    #[error("can't make an event: {0}")]
    Event(#[from] std::io::Error),
    /// It can't carry a value.
    #[error("signal {0} is no real-time signal")]
    Signal(i32),
    /// It has to pass one.
    #[error("a sink that wants an event passed none")]
    NoEvent,
    /// There is nobody to call.
    #[error("the process is gone")]
    Gone,
}
