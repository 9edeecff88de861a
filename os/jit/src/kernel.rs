//! Handlers in the kernel: one array map is the handler's memory, mapped here as well.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::mm::{MapFlags, ProtFlags, mmap};
use selvedge_control_code::ebpf::{Bytecode, KernelError, emit};
use selvedge_control_code::{Fault, Host, Memory, Program, outcome};

use crate::Handler;
use crate::mapped::Mapped;
use crate::system::{self, BpfError};

/// The place in the kernel where a handler runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Nowhere; it is called by [`Kernel::call`].
    Call,
    /// Where packets are sent or received (`tc`). Not attached here; it can be run many times in a row.
    Traffic,
    /// At the kernel's tracepoints (`raw_tp`), called by a program there.
    Trace,
}

impl Hook {
    fn kind(self) -> u32 {
        match self {
            Self::Call => 31,
            Self::Traffic => 3,
            Self::Trace => 17,
        }
    }

    fn flags(self) -> u32 {
        match self {
            // Programs of this kind may sleep, which the kernel must know.
            Self::Call => 1 << 4,
            Self::Traffic | Self::Trace => 0,
        }
    }
}

/// Why a handler is not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It uses a feature that the kernel lacks.
    #[error(transparent)]
    Emit(#[from] KernelError),
    /// No handler may be loaded here.
    #[error("handlers can't be loaded into this kernel: {0}; run it as root, or in the process")]
    Forbidden(BpfError),
    /// There is no memory for it.
    #[error("no memory of {size} bytes for the handler: {why}")]
    Memory {
        /// The requested size.
        size: u32,
        /// The kernel's error.
        why: BpfError,
    },
    /// Its memory has another size than it needs.
    #[error(
        "the handler needs {needed} bytes of memory, and has {room}; use shorter arrays and fewer \
         static variables"
    )]
    Room {
        /// The size that it needs.
        needed: u32,
        /// The size that there is.
        room: usize,
    },
    /// The verifier refused it: it is too complex, or this compiler has a bug.
    #[error("the kernel's verifier refuses the handler: {why}; it says: {log}; make it smaller")]
    Verifier {
        /// The kernel's error.
        why: BpfError,
        /// The end of the verifier's log.
        log: String,
    },
}

/// The time that a handler took in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The mean of all runs, in whole nanoseconds, as the kernel reports it.
    pub each: selvedge_units::Duration,
}

/// A handler in the kernel.
#[derive(Debug)]
pub struct Kernel {
    program: Program,
    instructions: usize,
    loaded: OwnedFd,
    _map: OwnedFd,
    mapped: Mapped,
}

impl Kernel {
    /// Generates byte code and loads it.
    ///
    /// # Errors
    /// If the handler uses a feature that the kernel lacks, or the kernel refuses it.
    pub fn new(program: Program, hook: Hook) -> Result<Self, LoadError> {
        let code = emit(&program)?;
        let size = code.memory_size();
        let memory = |why: BpfError| match why.is_forbidden() {
            true => LoadError::Forbidden(why),
            false => LoadError::Memory { size, why },
        };
        let map = system::memory_map(size).map_err(memory)?;
        let mut mapped =
            map_value(map.as_fd(), size as usize).map_err(|why| LoadError::Memory { size, why })?;
        let first = Memory::new(&program);
        mapped.bytes_mut()[..first.bytes().len()].copy_from_slice(first.bytes());
        let loaded = load(&code, map.as_fd(), hook)?;
        let instructions = code.instructions().len();
        Ok(Self { program, instructions, loaded, _map: map, mapped })
    }

    /// The number of its instructions.
    pub fn instructions(&self) -> usize {
        self.instructions
    }

    /// Runs a handler of [`Hook::Traffic`] `times` times in a row, and returns how long each took.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn measure(&mut self, times: u32) -> Result<Measured, BpfError> {
        let nanoseconds = system::run_often(self.loaded.as_fd(), times)?;
        Ok(Measured { each: selvedge_units::Duration(u64::from(nanoseconds)) })
    }
}

/// Loads a handler whose memory is the only value of the caller's array map, `room` bytes large. A program of
/// the same hook calls it (by a tail call from a function of its own). The caller chooses the first content
/// of the memory: [`Memory::new`].
///
/// # Errors
/// As [`Kernel::new`]; [`LoadError::Room`] where the handler needs more than `room`.
pub fn install(
    program: &Program,
    hook: Hook,
    map: BorrowedFd<'_>,
    room: usize,
) -> Result<OwnedFd, LoadError> {
    let code = emit(program)?;
    if code.memory_size() as usize > room {
        return Err(LoadError::Room { needed: code.memory_size(), room });
    }
    load(&code, map, hook)
}

fn load(code: &Bytecode, map: BorrowedFd<'_>, hook: Hook) -> Result<OwnedFd, LoadError> {
    let words = code.encode(map.as_raw_fd());
    let why = match system::load(hook.kind(), hook.flags(), &words, None) {
        Ok(loaded) => return Ok(loaded),
        Err(why) => why,
    };
    if why.errno == libc::EPERM {
        return Err(LoadError::Forbidden(why));
    }
    // Again, for the log; its end states the fault.
    let mut log = vec![0; 1 << 20];
    let again = system::load(hook.kind(), hook.flags(), &words, Some(&mut log));
    let why = again.err().unwrap_or(why);
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let last_line = text.lines().rfind(|line| !line.starts_with("processed"));
    let log = last_line.unwrap_or("nothing").trim().to_owned();
    Err(LoadError::Verifier { why, log })
}

/// Checks whether handlers can be loaded here, with a program that does nothing.
///
/// # Errors
/// The kernel's error.
pub fn available() -> Result<(), BpfError> {
    // mov r0, 0; exit
    let code = [0xb7, 0x95];
    system::load(Hook::Call.kind(), Hook::Call.flags(), &code, None).map(|_| ())
}

impl Handler for Kernel {
    fn program(&self) -> &Program {
        &self.program
    }

    fn memory(&self) -> &[u8] {
        &self.mapped.bytes()[..self.program.memory_size()]
    }

    fn memory_mut(&mut self) -> &mut [u8] {
        let size = self.program.memory_size();
        &mut self.mapped.bytes_mut()[..size]
    }

    /// # Panics
    /// If the kernel does not run a program of [`Hook::Call`] that it has loaded, or if this one
    /// was loaded for another hook.
    fn call(&mut self, _: &mut dyn Host) -> Result<i64, Fault> {
        system::run(self.loaded.as_fd()).expect("a loaded program of this kind can be run");
        outcome(self.memory())
    }
}

/// The map's value, in this process.
fn map_value(map: BorrowedFd<'_>, size: usize) -> Result<Mapped, BpfError> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh shared mapping at an address that the kernel chooses.
    let mapped = unsafe { mmap(std::ptr::null_mut(), size, access, MapFlags::SHARED, map, 0) };
    let start = mapped.map_err(|errno| BpfError { errno: errno.raw_os_error() })?;
    // SAFETY: just mapped with this size, to be read and written, and ours alone. The kernel writes to
    // it only while a program runs, and programs are run by methods that borrow the owner for writing.
    unsafe { Mapped::of(start, size) }.ok_or(BpfError { errno: libc::EFAULT })
}
