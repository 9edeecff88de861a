//! Frames and their kinds, the contract of a stream, its references between pictures, the ledger of
//! its frames' fates, and the RTP header with its tag.
//!
//! Data comes from `media` through the rings and pools of `data/memory`, and goes to `data/sched` and
//! `data/link`. Nothing here reads a clock or does I/O.

#![cfg_attr(not(any(test, loom)), no_std)]

extern crate alloc;

mod contract;
mod counts;
mod descriptor;
mod frame;
mod frame_list;
mod frame_writer;
mod group;
mod histogram;
mod ledger;
mod packets;
mod receiver_report;
mod references;
pub mod rtp;
mod spec;

pub use contract::{Class, Contract, Late, Window, WindowError, Windows};
pub use counts::{Counters, Counts};
pub use descriptor::{Descriptor, Refusal, Refusals};
pub use frame::{DropReason, Frame, Kind};
pub use frame_list::{FrameList, FrameListError, LISTED_FRAME_MAX, LISTED_FRAMES_MAX, ListedFrame};
pub use frame_writer::{FrameWriter, Numbering, PacketShape};
pub use group::GroupTracker;
pub use histogram::Histogram;
pub use ledger::{Fate, Ledger, Recent, Totals};
pub use packets::{PACKET_HEADER_LEN, PacketCursor, PacketWriteError, PacketWriter, Packets};
pub use receiver_report::ReceiverReport;
pub use references::References;
pub use spec::{KEYS, Key, Spec, SpecError, SpecSnapshot, Values, WhenFull};
