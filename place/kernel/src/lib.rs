//! The scheduler inside the kernel: DWCS as a qdisc in BPF, its loader, and tests of a kernel's abilities.
//!
//! Here a packet is a frame. It comes from any socket of the machine, whose program need not know Selvedge.
//! Its stream is found by mark, socket, cgroup or UDP port. It waits in the kernel and is sent, or dropped
//! late, by the rules of `selvedge-data-sched`, bit for bit (`bpf/dwcs.h` is their counterpart in C,
//! [`replay`] compares them). On a stock machine this is the placement nearest to the wire: NI coprocessors
//! section 3, with the kernel in the card's place.
//!
//! - [`Setup`]: streams, filters, rate. [`attach`](attach()): loads the program, gives it a device, and leaves;
//!   the qdisc lives on without this process. [`detach`](detach()) gives the device back its own.
//! - [`Attached`]: the counts of each stream, read while it runs; binds filters to streams.
//! - [`TaskScheduler`]: processor time in the kernel, by `sched_ext`; its decisions are those of
//!   `selvedge-data-cpu` (`bpf/tasks.h`).
//! - [`Replay`]: a trace through the same program without packets. The feature `replays` adds `PacketReplay`,
//!   with real ones, and decisions about tasks in unit slots.

#![forbid(unsafe_code)]

mod attach;
mod attached;
mod error;
mod filter;
pub mod link;
mod object;
#[cfg(feature = "replays")]
#[path = "../tests/replay/packets.rs"]
mod packets;
mod probe;
mod qdisc;
mod replay;
mod setup;
mod tasks;

pub use attach::{attach, detach};
pub use attached::{Attached, Report, StreamReport};
pub use error::{AttachError, LoadError, OpenError, ReplayError};
pub use filter::{Filter, FilterError};
#[cfg(feature = "replays")]
pub use packets::{PacketReplay, Received};
pub use probe::probe;
pub use replay::Replay;
pub use selvedge_os_bpf::ProgramError;
pub use setup::{STREAMS_MAX, Setup, SetupError, StreamSetup};
#[cfg(feature = "replays")]
pub use tasks::{KernelDecision, Step};
pub use tasks::{TaskScheduler, TasksError};
