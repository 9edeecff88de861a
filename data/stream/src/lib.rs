//! What travels: frames and their kinds, the contract of a stream, and the places a frame waits in.
//!
//! Data comes from `media` (through a ring and a pool) and goes to `sched` and the link of `node`.
//! Nothing here reads a clock or does I/O.

#![cfg_attr(not(any(test, loom)), no_std)]

extern crate alloc;

mod contract;
mod descriptor;
pub mod fetch;
mod frame;
mod group;
mod histogram;
mod ledger;
mod mail;
mod packets;
mod pool;
#[cfg(not(loom))]
mod region;
mod ring;
pub mod rtp;
mod sync;

pub use contract::{Class, Contract, Late, Window, WindowError, Windows};
pub use descriptor::{Descriptor, Refusal, Refusals};
pub use frame::{DropReason, Frame, Kind, PayloadSpan, References};
pub use group::GroupTracker;
pub use histogram::Histogram;
pub use ledger::{Fate, Ledger, Recent, Totals};
#[cfg(not(loom))]
pub use mail::mail_region;
pub use mail::{MAIL_ASLEEP, Mail, MailError, MailReader, MailSpec, MailWriter, mailbox};
pub use packets::{PACKET_HEADER_LEN, PacketCursor, PacketWriteError, PacketWriter, Packets};
#[cfg(not(loom))]
pub use pool::{Claims, pool_region};
pub use pool::{PoolError, PoolReader, PoolWriter, Reservation, SpanError, pool};
#[cfg(not(loom))]
pub use region::{Plain, Region, RegionError};
pub use ring::{Consumer, Producer, ring};
#[cfg(not(loom))]
pub use ring::{Lender, ring_region};
