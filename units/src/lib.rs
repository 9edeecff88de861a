//! Integer types with units, the vocabulary of every room: instants, durations, sizes, rates, shares.
//!
//! Arithmetic between them is the physics (`Bytes / Bitrate = Duration`), exact or rounded in the
//! direction that the method names; none of it can overflow silently: operators saturate.
//! Time is nanoseconds since the start of a run; no type here reads a clock.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(feature = "nearest")]
extern crate alloc;

mod named;
#[cfg(feature = "nearest")]
mod nearest;
mod rate;
mod text;
mod time;

#[cfg(feature = "nearest")]
pub use nearest::nearest;
pub use rate::{Bitrate, Bytes, Share};
pub use text::ParseUnitError;
pub use time::{Duration, Instant};
