//! `bpf(2)`: creating a map, loading a program, running it. Only the parts that handlers need.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: i64 = 0;
const PROG_LOAD: i64 = 5;
const PROG_TEST_RUN: i64 = 10;

const MAP_TYPE_ARRAY: u32 = 2;
/// The map's value can be mapped into a process.
const F_MMAPABLE: u32 = 1 << 10;
/// The licence that byte code must have for reserved helpers.
const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// An error of `bpf(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bpf(2) says \"{}\"", std::io::Error::from_raw_os_error(self.errno))]
pub struct BpfError {
    /// The number of the error.
    pub errno: i32,
}

impl BpfError {
    /// Whether a right is missing, or the machine lets no user do it.
    pub fn is_forbidden(self) -> bool {
        matches!(self.errno, libc::EPERM | libc::EACCES | libc::ENOSYS)
    }
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

fn bpf<T>(command: i64, attributes: &mut T) -> Result<i64, BpfError> {
    // SAFETY: the kernel reads and writes at most `size_of::<T>()` bytes of the attributes; the callers own
    // the addresses in them, and keep what they point to for the call.
    let done = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    };
    if done < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        return Err(BpfError { errno });
    }
    Ok(done)
}

fn owned(descriptor: i64) -> OwnedFd {
    // SAFETY: a descriptor that bpf(2) has just made for us.
    unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }
}

fn name() -> [u8; 16] {
    *b"selvedge_ecode\0\0"
}

/// An array of one value that can be mapped.
pub(crate) fn memory_map(size: u32) -> Result<OwnedFd, BpfError> {
    let mut attributes = MapCreate {
        map_type: MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: size,
        max_entries: 1,
        map_flags: F_MMAPABLE,
        name: name(),
        ..MapCreate::default()
    };
    bpf(MAP_CREATE, &mut attributes).map(owned)
}

/// Loads byte code; the log is requested if there is a buffer for it.
pub(crate) fn load(
    kind: u32,
    flags: u32,
    code: &[u64],
    log: Option<&mut [u8]>,
) -> Result<OwnedFd, BpfError> {
    let mut attributes = ProgLoad {
        prog_type: kind,
        insn_cnt: code.len() as u32,
        insns: code.as_ptr() as u64,
        license: LICENCE.as_ptr() as u64,
        prog_flags: flags,
        name: name(),
        ..ProgLoad::default()
    };
    if let Some(log) = log {
        attributes.log_level = 1;
        attributes.log_size = log.len() as u32;
        attributes.log_buf = log.as_mut_ptr() as u64;
    }
    bpf(PROG_LOAD, &mut attributes).map(owned)
}

/// Runs a program once, without any data.
pub(crate) fn run(program: BorrowedFd<'_>) -> Result<(), BpfError> {
    let prog_fd = program.as_raw_fd() as u32;
    bpf(PROG_TEST_RUN, &mut TestRun { prog_fd, ..TestRun::default() }).map(|_| ())
}

/// Runs a program of a packet hook `repeat` times; returns the mean, in nanoseconds.
pub(crate) fn run_often(program: BorrowedFd<'_>, repeat: u32) -> Result<u32, BpfError> {
    let packet = [0_u8; 64];
    let mut attributes = TestRun {
        prog_fd: program.as_raw_fd() as u32,
        data_size_in: packet.len() as u32,
        data_in: packet.as_ptr() as u64,
        repeat,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attributes)?;
    Ok(attributes.duration)
}
