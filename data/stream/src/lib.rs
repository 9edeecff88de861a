//! What travels: frames and their kinds, the contract of a stream, and the places a frame waits in.
//!
//! Data comes from `media` (through a ring and a pool) and goes to `sched` and the link of `node`.
//! Nothing here reads a clock or does I/O.

#![cfg_attr(not(any(test, loom)), no_std)]

extern crate alloc;

mod contract;
pub mod fetch;
mod frame;
mod group;
mod histogram;
mod ledger;
mod packets;
mod pool;
mod ring;
pub mod rtp;
mod sync;

pub use contract::{Class, Contract, Late, Window, WindowError, Windows};
pub use frame::{DropReason, Frame, Kind, PayloadSpan, References};
pub use group::GroupTracker;
pub use histogram::Histogram;
pub use ledger::{Fate, Ledger, Recent, Totals};
pub use packets::{PACKET_HEADER_LEN, PacketCursor, PacketWriteError, PacketWriter, Packets};
pub use pool::{PoolError, PoolReader, PoolWriter, Reservation, SpanError, pool};
pub use ring::{Consumer, Producer, ring};
