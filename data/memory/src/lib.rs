//! The places where frames wait and are handed over: rings of descriptors, pools of payloads, mailboxes of
//! messages. Each has one writer and one reader, no locks, and one layout, in process and in memory that two
//! processes share.
//!
//! Data comes from sources and goes to links; `os` maps the memory. Nothing here reads a clock or
//! does I/O.

#![cfg_attr(not(any(test, loom)), no_std)]

extern crate alloc;

mod bell;
pub mod fetch;
mod header;
mod mail;
mod pool;
#[cfg(not(loom))]
mod region;
mod ring;
mod sync;

pub use bell::Bell;
pub use header::{Header, HeaderError};
#[cfg(not(loom))]
pub use mail::mailbox_region;
pub use mail::{MailboxError, MailboxMessage, MailboxReader, MailboxSpec, MailboxWriter, mailbox};
pub use pool::{PayloadSpan, PoolError, PoolReader, PoolWriter, Reservation, SpanError, pool};
#[cfg(not(loom))]
pub use pool::{UntrustedPoolReader, pool_region};
#[cfg(not(loom))]
pub use region::{Plain, Region, RegionError};
pub use ring::{Consumer, Producer, ring};
#[cfg(not(loom))]
pub use ring::{UntrustedConsumer, ring_region};
