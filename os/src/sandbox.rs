//! The rights that a process gives up for good before it reads data from strangers: capabilities, files, and
//! all system calls except those for the network, memory, clocks, threads and the descriptors that it holds.
//!
//! By capset(2), landlock(7) and seccomp(2) for the calling process. No right is given back.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
pub use rustix::thread::CapabilitySet;
use rustix::thread::{
    CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

use crate::check;

/// Why a process can't be confined.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The kernel refused.
    #[error("can't {doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The filter of system calls can't be built.
    #[error("can't filter system calls: {0}; use a kernel with CONFIG_SECCOMP_FILTER")]
    Filter(#[from] seccompiler::Error),
}

fn failed<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> SandboxError {
    move |source| SandboxError::System { doing, source: source.into() }
}

/// Keeps only these of the capabilities of this thread, and of all that it starts from now on.
///
/// # Errors
/// [`SandboxError::System`].
pub fn keep_capabilities(keep: CapabilitySet) -> Result<(), SandboxError> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        // Past the last capability; or this thread may not, and has none to pass on.
        if !keep.contains(one) && remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    clear_ambient_capability_set().map_err(failed("give up capabilities"))?;
    let have = capabilities(None).map_err(failed("look at capabilities"))?;
    let kept = CapabilitySets {
        effective: have.effective & keep,
        permitted: have.permitted & keep,
        inheritable: have.inheritable & keep,
    };
    set_capabilities(None, kept).map_err(failed("give up capabilities"))
}

/// Prevents this process, and all that it starts, from gaining rights by executing programs.
///
/// # Errors
/// [`SandboxError::System`].
pub fn gain_nothing() -> Result<(), SandboxError> {
    set_no_new_privs(true).map_err(failed("give up new rights"))
}

/// Closes all descriptors except standard input, output and error.
pub fn close_others() {
    // SAFETY: at this point the process owns no descriptor that it opened itself; it calls this first.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// Confines this process: no capabilities, no new programs or processes, no code that is not loaded yet, no
/// writing of files, no access to other processes. It can read only these files and those below them; on a
/// kernel without Landlock it can read all files that its user may.
///
/// # Errors
/// [`SandboxError`]; the process must end then.
pub fn confine(readable: &[&Path]) -> Result<(), SandboxError> {
    // A core dump is a file, too.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(failed("do without core files"))?;
    gain_nothing()?;
    keep_capabilities(CapabilitySet::empty())?;
    restrict_files(readable).map_err(failed("restrict files"))?;
    // The C library starts threads by a call whose flags no filter sees, unless that call does not exist.
    let absent = rules([(libc::SYS_clone3, vec![])])?;
    apply(absent, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    let mut allowed = rules(ALLOWED.iter().map(|&number| (number, vec![])))?;
    allowed.extend(rules(limited())?);
    apply(allowed, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;
/// A condition for an argument: its index, its width, the comparison, and the value.
type Condition = (u8, SeccompCmpArgLen, SeccompCmpOp, u64);

/// The calls that are allowed with any arguments; several a line.
#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    // Descriptors.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_close, libc::SYS_fstat,
    libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_lseek, libc::SYS_fcntl, libc::SYS_dup, libc::SYS_dup3,
    libc::SYS_pipe2, libc::SYS_eventfd2, libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    // The network.
    libc::SYS_socketpair, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept,
    libc::SYS_accept4, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_sendmsg, libc::SYS_recvmsg,
    libc::SYS_sendmmsg, libc::SYS_recvmmsg, libc::SYS_shutdown, libc::SYS_getsockname, libc::SYS_getpeername,
    libc::SYS_setsockopt, libc::SYS_getsockopt,
    // Memory.
    libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_brk,
    // Threads and signals of its own.
    libc::SYS_clone3, libc::SYS_futex, libc::SYS_set_robust_list, libc::SYS_rseq, libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_getpid,
    libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid,
    // Clocks, and information about the machine.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_clock_nanosleep, libc::SYS_nanosleep,
    libc::SYS_gettimeofday, libc::SYS_getrandom, libc::SYS_getrusage, libc::SYS_uname, libc::SYS_sysinfo,
    // The same under older names.
    #[cfg(target_arch = "x86_64")] libc::SYS_poll,
    #[cfg(target_arch = "x86_64")] libc::SYS_select,
    #[cfg(target_arch = "x86_64")] libc::SYS_epoll_wait,
    #[cfg(target_arch = "x86_64")] libc::SYS_pipe,
    #[cfg(target_arch = "x86_64")] libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")] libc::SYS_stat,
    #[cfg(target_arch = "x86_64")] libc::SYS_time,
];

/// Ioctls of sockets, and the test for a terminal.
const IOCTLS: [u64; 7] = [
    libc::FIONREAD,
    libc::FIONBIO,
    libc::TCGETS,
    libc::SIOCGIFINDEX,
    libc::SIOCGIFNAME,
    libc::SIOCGIFFLAGS,
    libc::SIOCGIFADDR,
];

/// The calls that are allowed with some arguments: each line is one case.
fn limited() -> Vec<(i64, Vec<Condition>)> {
    let is = |at, value: i32| (at, Dword, Eq, u64::from(value.cast_unsigned()));
    let without = |at, bits: i32| (at, Dword, MaskedEq(u64::from(bits.cast_unsigned())), 0);
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned());
    let reads = |at| without(at, libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC);
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut ways = vec![
        (libc::SYS_socket, vec![is(0, libc::AF_INET)]),
        (libc::SYS_socket, vec![is(0, libc::AF_INET6)]),
        // The C library queries the kernel for the existing address families.
        (libc::SYS_socket, vec![is(0, libc::AF_NETLINK), is(2, libc::NETLINK_ROUTE)]),
        (libc::SYS_mmap, vec![without(2, libc::PROT_EXEC)]),
        (libc::SYS_mprotect, vec![without(2, libc::PROT_EXEC)]),
        (libc::SYS_clone, vec![(0, Qword, MaskedEq(thread), thread)]),
        (libc::SYS_tgkill, vec![is(0, own)]),
        (libc::SYS_prctl, vec![is(0, libc::PR_SET_NAME)]),
        (libc::SYS_prctl, vec![is(0, libc::PR_SET_VMA)]),
        (libc::SYS_prlimit64, vec![is(0, 0), (2, Qword, Eq, 0)]),
        (libc::SYS_openat, vec![reads(2)]),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, vec![reads(1)]),
    ];
    ways.extend(IOCTLS.map(|number| (libc::SYS_ioctl, vec![(1, Dword, Eq, number)])));
    ways
}

/// Rules for calls by number; any arguments are allowed where no condition is given.
fn rules(
    ways: impl IntoIterator<Item = (i64, Vec<Condition>)>,
) -> Result<Rules, seccompiler::Error> {
    let mut rules = Rules::new();
    for (number, conditions) in ways {
        let of_call = rules.entry(number).or_default();
        let conditions = conditions
            .into_iter()
            .map(|(at, width, compare, value)| SeccompCondition::new(at, width, compare, value))
            .collect::<Result<Vec<_>, _>>()?;
        if !conditions.is_empty() {
            of_call.push(SeccompRule::new(conditions)?);
        }
    }
    Ok(rules)
}

/// Filters the calls of all threads of this process.
fn apply(rules: Rules, others: SeccompAction, these: SeccompAction) -> Result<(), SandboxError> {
    let machine = std::env::consts::ARCH.try_into().map_err(seccompiler::Error::from)?;
    let filter =
        SeccompFilter::new(rules, others, these, machine).map_err(seccompiler::Error::from)?;
    let program = BpfProgram::try_from(filter).map_err(seccompiler::Error::from)?;
    Ok(apply_filter_all_threads(&program)?)
}

/// `landlock_ruleset_attr` of the first version.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
}

/// `landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

/// All accesses to files that the first version of Landlock knows, and the allowed ones.
const ALL_ACCESS: u64 = (1 << 13) - 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const RULE_PATH_BENEATH: libc::c_int = 1;

/// Lets this thread, and those that it starts, open only these files and those below them, for reading.
fn restrict_files(readable: &[&Path]) -> io::Result<()> {
    let attributes = RulesetAttributes { handled_access_fs: ALL_ACCESS };
    let size = size_of::<RulesetAttributes>();
    // SAFETY: the kernel reads `size` bytes of `attributes`, which lives through the call.
    let made = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0_u32)
    };
    let absent = [Errno::NOSYS, Errno::OPNOTSUPP].map(|errno| Some(errno.raw_os_error()));
    let ruleset = match made {
        -1 if absent.contains(&io::Error::last_os_error().raw_os_error()) => return Ok(()),
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: the kernel has just returned this descriptor.
        made => unsafe { OwnedFd::from_raw_fd(made as i32) },
    };
    for path in readable {
        let Ok(name) = CString::new(path.as_os_str().as_encoded_bytes()) else { continue };
        // A file that does not exist can't be read in any case.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::open(name, flags, Mode::empty()) else { continue };
        let folder = if path.is_dir() { READ_DIR } else { 0 };
        let beneath =
            PathBeneath { allowed_access: READ_FILE | folder, parent_fd: file.as_raw_fd() };
        // SAFETY: both descriptors are open, and `beneath` lives through the call.
        check(unsafe {
            libc::syscall(
                libc::SYS_landlock_add_rule,
                ruleset.as_raw_fd(),
                RULE_PATH_BENEATH,
                &raw const beneath,
                0_u32,
            )
        })?;
    }
    // SAFETY: the descriptor is open; no memory is passed.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) })
}
