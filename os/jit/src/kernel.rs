//! Handlers in the kernel: one array map is the handler's memory, mapped here as well.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use selvedge_control_code::ebpf::{Bytecode, KernelError, emit};
use selvedge_control_code::{Fault, Host, Memory, Program, outcome};

use crate::Handler;
use crate::system::{self, BpfError};

/// Where in the kernel a handler is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Nowhere; it is called by [`Kernel::call`].
    Call,
    /// Where packets go out or come in (`tc`). Not attached here; it can be run often in a row.
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
            // Programs of this kind may sleep, and the kernel wants it said.
            Self::Call => 1 << 4,
            Self::Traffic | Self::Trace => 0,
        }
    }
}

/// Why a handler is not in the kernel.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It has what the kernel has not.
    #[error(transparent)]
    Emit(#[from] KernelError),
    /// No handler may be loaded here.
    #[error("handlers can't be loaded into this kernel: {0}; run it as root, or in the process")]
    Forbidden(BpfError),
    /// No memory for it.
    #[error("no memory of {size} bytes for the handler: {why}")]
    Memory {
        /// What was asked for.
        size: u32,
        /// What the kernel says.
        why: BpfError,
    },
    /// Its memory has another size than it needs.
    #[error(
        "the handler needs {needed} bytes of memory, and has {room}; use shorter arrays and fewer \
         static variables"
    )]
    Room {
        /// What it needs.
        needed: u32,
        /// What there is.
        room: usize,
    },
    /// The verifier refused it: it is too complex for it, or a fault of ours.
    #[error("the kernel's verifier refuses the handler: {why}; it says: {log}; make it smaller")]
    Verifier {
        /// What the kernel says.
        why: BpfError,
        /// The end of the verifier's log.
        log: String,
    },
}

/// How long a handler took in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The mean of all runs; whole nanoseconds, as the kernel has it.
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
    /// Makes byte code and loads it.
    ///
    /// # Errors
    /// If the handler has what the kernel has not, or the kernel does not take it.
    pub fn new(program: Program, hook: Hook) -> Result<Self, LoadError> {
        let code = emit(&program)?;
        let size = code.memory_size();
        let memory = |why: BpfError| match why.is_forbidden() {
            true => LoadError::Forbidden(why),
            false => LoadError::Memory { size, why },
        };
        let map = system::memory_map(size).map_err(memory)?;
        let mut mapped = Mapped::new(map.as_fd(), size as usize)
            .map_err(|why| LoadError::Memory { size, why })?;
        let first = Memory::new(&program);
        mapped.bytes_mut()[..first.bytes().len()].copy_from_slice(first.bytes());
        let loaded = load(&code, map.as_fd(), hook)?;
        let instructions = code.instructions().len();
        Ok(Self { program, instructions, loaded, _map: map, mapped })
    }

    /// How many instructions it is.
    pub fn instructions(&self) -> usize {
        self.instructions
    }

    /// Runs a handler of [`Hook::Traffic`] so many times in a row, and says how long each took.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn measure(&mut self, times: u32) -> Result<Measured, BpfError> {
        let nanoseconds = system::run_often(self.loaded.as_fd(), times)?;
        Ok(Measured { each: selvedge_units::Duration(u64::from(nanoseconds)) })
    }
}

/// Loads a handler whose memory is the only value of somebody else's array map, `room` bytes large,
/// for a program of the same hook to call (by a tail call out of a function of its own). What the
/// memory holds first is up to the caller: [`Memory::new`].
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
    // Again, for the log; its end says what was wrong.
    let mut log = vec![0; 1 << 20];
    let again = system::load(hook.kind(), hook.flags(), &words, Some(&mut log));
    let why = again.err().unwrap_or(why);
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(&log[..end]);
    let last_line = text.lines().rfind(|line| !line.starts_with("processed"));
    let log = last_line.unwrap_or("nothing").trim().to_owned();
    Err(LoadError::Verifier { why, log })
}

/// Whether handlers can be loaded here: tries with a program that does nothing.
///
/// # Errors
/// What the kernel says.
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
#[derive(Debug)]
struct Mapped {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to this value alone. The kernel writes to it only while a program
// runs, and programs are run by methods that borrow the owner for writing.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    fn new(map: BorrowedFd<'_>, size: usize) -> Result<Self, BpfError> {
        // SAFETY: a fresh shared mapping at an address that the kernel chooses.
        let mapped = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap(std::ptr::null_mut(), size, access, MapFlags::SHARED, map, 0)
        };
        let mapped = mapped.map_err(|errno| BpfError { errno: errno.raw_os_error() })?;
        let start = NonNull::new(mapped.cast()).ok_or(BpfError { errno: libc::EFAULT })?;
        Ok(Self { start, size })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped with this size for as long as `self` lives; nothing writes to it while it
        // is borrowed, see above.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and unmapped only here.
        let done = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        debug_assert!(done.is_ok(), "a mapping of ours can be unmapped");
    }
}
