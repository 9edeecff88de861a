//! Why something with the kernel did not work, and what would help.

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
    /// The process may not, or the kernel refused them.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The kernel has no BPF qdiscs.
    #[error(
        "this kernel ({release}) has no BPF qdiscs: {missing}; Linux 6.16 or later with CONFIG_NET_SCH_BPF=y has"
    )]
    NoQdiscs {
        /// `uname -r`.
        release: String,
        /// What was looked for.
        missing: &'static str,
    },
    /// A program's data is not as long as it should be.
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

/// Why a device was not given the qdisc, or not given back.
#[derive(Debug, Error)]
pub enum AttachError {
    /// The setup makes no sense.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// There is no such device.
    #[error("there is no device \"{name}\"; there are {devices}")]
    NoDevice {
        /// As it was asked for.
        name: String,
        /// Those that there are.
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
    /// It has one that somebody gave it.
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
    /// It has not.
    #[error("{device} does not have Selvedge's qdisc, but {kind}")]
    NotAttached {
        /// The device.
        device: String,
        /// What it has.
        kind: String,
    },
    /// Nowhere to keep the program.
    #[error("{} is not a BPF file system, in which the qdisc outlives this process; mount it: mount -t bpf bpf {}", .0.display(), .0.display())]
    NoBpfFs(PathBuf),
    /// The program was not loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device could not be asked, or refused.
    #[error("{what}: {why}")]
    Device {
        /// What was tried.
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

/// Why an attached qdisc could not be looked at or changed.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is none, or no such device.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The process may not look into it.
    #[error("{}: only root may look at the qdisc or change it; run it as root", .0.display())]
    NotPermitted(PathBuf),
    /// What it keeps is not there.
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
    /// Its maps are of another size.
    #[error(
        "the qdisc of {0} was attached by another version; attach it anew: selvedge kernel detach \
         {0}, then attach"
    )]
    Version(String),
    /// There is no such stream.
    #[error("there is no stream \"{name}\"; there are {streams}")]
    NoStream {
        /// As asked for.
        name: String,
        /// Those that there are.
        streams: String,
    },
    /// The filter is another stream's.
    #[error("{filter} is a filter of \"{stream}\" already")]
    Taken {
        /// The filter.
        filter: Filter,
        /// Whose it is.
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
        /// In the trace.
        found: usize,
        /// At most.
        most: usize,
    },
    /// The trace asks for another discipline than the program was loaded with.
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
    /// A run of it failed.
    #[error("{what}: {why}")]
    Run {
        /// Which.
        what: &'static str,
        /// The error.
        why: io::Error,
    },
    /// It told more than there is room for, or nothing.
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
