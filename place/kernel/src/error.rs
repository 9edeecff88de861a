//! Why an operation with the kernel failed, and how to correct it.

use std::io;
use std::path::PathBuf;

use selvedge_data_sched::Discipline;
use selvedge_os_bpf::ProgramError;
use thiserror::Error;

use crate::filter::Filter;
use crate::setup::SetupError;

/// Why the programs were not loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The process has no right to load them, or the kernel refused them.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel has no BPF qdiscs.
    #[error(
        "this kernel ({release}) has no BPF qdiscs: {missing}; Linux 6.16 or later with CONFIG_NET_SCH_BPF=y has"
    )]
    NoQdiscs {
        /// `uname -r`.
        release: String,
        /// The missing part.
        missing: &'static str,
    },
    /// A program's data has an unexpected length.
    #[error("the program's {map} has {found} bytes, not {expected}: it is of another version")]
    Layout {
        /// The map.
        map: &'static str,
        /// In bytes.
        found: usize,
        /// In bytes.
        expected: usize,
    },
}

/// Why a device was not given the qdisc, or its own was not restored.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The setup is invalid.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// There is no such device.
    #[error("there is no device \"{name}\"; there are {devices}")]
    NoDevice {
        /// The requested name.
        name: String,
        /// The existing devices.
        devices: String,
    },
    /// It has the qdisc already.
    #[error(
        "{device} has Selvedge's qdisc already ({kind}); detach it first: selvedge kernel detach {device}"
    )]
    Already {
        /// The device.
        device: String,
        /// The qdisc.
        kind: String,
    },
    /// It has a qdisc that somebody set up.
    #[error(
        "{device} has the qdisc {kind} that somebody has set up; remove it first \
         (tc qdisc del dev {device} root), since detaching could not bring it back"
    )]
    Occupied {
        /// The device.
        device: String,
        /// The qdisc.
        kind: String,
    },
    /// It does not have Selvedge's qdisc.
    #[error("{device} does not have Selvedge's qdisc, but {kind}")]
    NotAttached {
        /// The device.
        device: String,
        /// The qdisc that it has.
        kind: String,
    },
    /// There is no place to keep the program.
    #[error("{} is not a BPF file system, in which the qdisc outlives this process; mount it: mount -t bpf bpf {}", .0.display(), .0.display())]
    NoBpfFs(PathBuf),
    /// The program was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device could not be queried, or the operation was refused.
    #[error("{what}: {why}")]
    Device {
        /// The operation.
        what: String,
        /// The error.
        why: io::Error,
    },
    /// A pinned object could not be made or removed.
    #[error("{}: {why}", path.display())]
    Pin {
        /// Its path.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// All numbers are taken.
    #[error(
        "there are {0} of Selvedge's qdiscs on this machine already, the most that there can be"
    )]
    Full(u32),
}

/// Why an attached qdisc could not be read or changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// It has none, or there is no such device.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The process has no right to read it.
    #[error("{}: only root may look at the qdisc or change it; run it as root", .0.display())]
    NotPermitted(PathBuf),
    /// A pinned map is missing.
    #[error(
        "{}: {why}; the qdisc was attached where this file system cannot be seen, or by another version",
        path.display()
    )]
    Pinned {
        /// The pinned map.
        path: PathBuf,
        /// The error.
        why: io::Error,
    },
    /// Its maps have another size.
    #[error(
        "the qdisc of {0} was attached by another version; attach it anew: selvedge kernel detach \
         {0}, then attach"
    )]
    Version(String),
    /// There is no such stream.
    #[error("there is no stream \"{name}\"; there are {streams}")]
    NoStream {
        /// The requested name.
        name: String,
        /// The existing streams.
        streams: String,
    },
    /// Another stream has the filter.
    #[error("{filter} is a filter of \"{stream}\" already")]
    Taken {
        /// The filter.
        filter: Filter,
        /// The stream that has it.
        stream: String,
    },
    /// There is no such filter.
    #[error("{0} is no stream's filter")]
    NoFilter(Filter),
}

/// Why a trace was not replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The program has no such discipline.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The trace has more streams than the program.
    #[error("{found} streams; the kernel's program has {most}")]
    Streams {
        /// The number in the trace.
        found: usize,
        /// The most that the program takes.
        most: usize,
    },
    /// The trace requires another discipline than the program was loaded with.
    #[error("the trace's discipline is {trace}, the program was loaded for {loaded}")]
    Discipline {
        /// The trace's.
        trace: Discipline,
        /// The program's.
        loaded: Discipline,
    },
    /// The program was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The qdisc was not attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A run of the program failed.
    #[error("{what}: {why}")]
    Run {
        /// The run.
        what: &'static str,
        /// The error.
        why: io::Error,
    },
    /// It reported more events than there is room for, or none.
    #[error("slot {slot}: the program told {events} events ({lost} more had no room)")]
    Counters {
        /// The slot.
        slot: u64,
        /// Events.
        events: u32,
        /// Events lost.
        lost: u32,
    },
}
