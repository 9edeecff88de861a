//! Probes of processor and memory: what a placement on a core of its own asks for.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use selvedge_units::{Duration, Instant};

use super::{Outcome, Unavailable};
use crate::clock::Clock;
use crate::latency;
use crate::wake::sleeper;

/// `SCHED_EXT`, which libc does not know.
const SCHED_EXT: i32 = 7;

/// Runs a probe on a thread of its own, which ends with whatever it was granted.
fn aside(probe: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let gone = |_| Err(Unavailable::new("the probe's thread ended", "report this"));
    std::thread::spawn(probe).join().unwrap_or_else(gone)
}

/// A thread on one processor only.
pub fn pin() -> Outcome {
    aside(|| {
        // SAFETY: a set of processors is plain bits, for which zero is a valid value.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        let size = size_of_val(&set);
        // SAFETY: the kernel writes at most `size` bytes to `set`; 0 means this thread.
        let got = unsafe { libc::sched_getaffinity(0, size, &raw mut set) };
        // SAFETY: reads the set only; the number is below its bits.
        let all: Vec<usize> = (0..libc::CPU_SETSIZE as usize)
            .filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) })
            .collect();
        let Some(&last) = all.last().filter(|_| got == 0) else {
            return Err(Unavailable::last("allow sched_getaffinity in the sandbox"));
        };
        // SAFETY: as above; the number came from the set.
        unsafe {
            libc::CPU_ZERO(&mut set);
            libc::CPU_SET(last, &mut set);
        }
        // SAFETY: the kernel reads `size` bytes of `set`; 0 means this thread.
        if unsafe { libc::sched_setaffinity(0, size, &raw const set) } != 0 {
            return Err(Unavailable::last("allow sched_setaffinity in the sandbox"));
        }
        if all.len() < 2 {
            let why = "there is one processor only, so a core of its own leaves none";
            return Err(Unavailable::new(why, "give the machine or the container two or more"));
        }
        Ok(format!("{} processors; a thread was pinned to {last}", all.len()))
    })
}

/// All memory of the process locked, without reading it in.
pub fn lock_memory() -> Outcome {
    const REMEDY: &str = "give it CAP_IPC_LOCK, or raise the limit: ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)";
    // SAFETY: no pointers; pages that are locked stay where they are.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) } == 0;
    let missing = Unavailable::last(REMEDY);
    // SAFETY: undoes the above.
    unsafe { libc::munlockall() };
    if locked { Ok("mlockall granted".to_owned()) } else { Err(missing) }
}

/// The first-in first-out class.
pub fn fifo() -> Outcome {
    aside(|| policy(libc::SCHED_FIFO, 1, REAL_TIME).map(|()| "SCHED_FIFO granted".to_owned()))
}

const REAL_TIME: &str = "run as root or with CAP_SYS_NICE (systemd: LimitRTPRIO=99); in a cgroup of \
                         version 1 it needs cpu.rt_runtime_us > 0";

fn policy(policy: i32, priority: i32, remedy: &str) -> Result<(), Unavailable> {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: the kernel reads `param`; 0 means this thread.
    let set = unsafe { libc::sched_setscheduler(0, policy, &raw const param) } == 0;
    if set { Ok(()) } else { Err(Unavailable::last(remedy)) }
}

/// A reservation of 1 ms in 10.
pub fn deadline() -> Outcome {
    aside(|| {
        // SAFETY: `sched_attr` is plain data, for which all bytes zero are a valid value.
        let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
        attr.size = size_of::<libc::sched_attr>() as u32;
        attr.sched_policy = libc::SCHED_DEADLINE as u32;
        (attr.sched_runtime, attr.sched_deadline) = (1_000_000, 10_000_000);
        attr.sched_period = attr.sched_deadline;
        // SAFETY: the kernel reads `size` bytes of `attr`; 0 means this thread; no flags.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) } == 0 {
            Ok("SCHED_DEADLINE granted, 1 ms in 10 ms".to_owned())
        } else {
            Err(Unavailable::last(REAL_TIME))
        }
    })
}

/// The class of schedulers in BPF, and whether one is in charge.
pub fn sched_ext() -> Outcome {
    aside(|| {
        const REMEDY: &str = "use Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT=y (Debian 13 has \
                              it); until then CPU scheduling falls back to SCHED_DEADLINE or SCHED_FIFO";
        policy(SCHED_EXT, 0, REMEDY).map_err(|missing| Unavailable {
            why: format!("the kernel refuses the scheduling class SCHED_EXT: {}", missing.why),
            ..missing
        })?;
        let read = |file: &str| std::fs::read_to_string(format!("/sys/kernel/sched_ext/{file}"));
        let state = read("state").unwrap_or_default();
        if state.trim() == "enabled" {
            let name = read("root/ops").unwrap_or_default();
            let why = format!("the scheduler {} is in charge already", name.trim());
            return Err(Unavailable::new(why, "stop it first: one at a time"));
        }
        Ok("the class is there, and no scheduler in charge".to_owned())
    })
}

/// Memory that two mappings share, as two processes would.
pub fn shared_memory() -> Outcome {
    const LEN: usize = 4096;
    const REMEDY: &str = "allow memfd_create and mmap in the sandbox";
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"selvedge-probe".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Unavailable::last(REMEDY));
    }
    // SAFETY: just made, and nobody else's.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a descriptor and a length.
    if unsafe { libc::ftruncate(memory.as_raw_fd(), LEN as libc::off_t) } != 0 {
        return Err(Unavailable::last(REMEDY));
    }
    let (write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: new mappings wherever the kernel likes.
    let map =
        || unsafe { libc::mmap(std::ptr::null_mut(), LEN, write, shared, memory.as_raw_fd(), 0) };
    let (one, other) = (map(), map());
    if one == libc::MAP_FAILED || other == libc::MAP_FAILED {
        return Err(Unavailable::last(REMEDY));
    }
    // SAFETY: both point to LEN bytes that are mapped until below, and that nobody else knows.
    let same = unsafe {
        one.cast::<u64>().write_volatile(0x5e1f);
        other.cast::<u64>().read_volatile() == 0x5e1f
    };
    // SAFETY: mapped above, used no more.
    unsafe {
        libc::munmap(one, LEN);
        libc::munmap(other, LEN);
    }
    if same {
        Ok("memfd, mapped twice".to_owned())
    } else {
        Err(Unavailable::new("what one mapping wrote the other does not read", REMEDY))
    }
}

/// How late a thread wakes from sleeps of 1 ms that asks for what the engine's asks for, for so long in
/// all.
///
/// # Errors
/// If there can be no event or no thread.
pub fn lateness(lasts: Duration) -> io::Result<Vec<Duration>> {
    let measure = move || {
        latency::ask();
        let clock = Clock::new();
        let (mut sleeper, _waker) = sleeper(clock, Duration::ZERO)?;
        let end = clock.now() + lasts;
        let mut late = Vec::new();
        while clock.now() < end {
            let until: Instant = clock.now() + Duration::from_millis(1);
            sleeper.wait_until(until);
            late.push(clock.now().since(until));
        }
        Ok(late)
    };
    let gone = |_| Err(io::Error::other("the probe's thread ended"));
    std::thread::Builder::new().spawn(measure)?.join().unwrap_or_else(gone)
}

/// How late a thread like the engine's wakes up.
pub fn wake_ups() -> Outcome {
    let mut late =
        lateness(Duration::from_millis(60)).map_err(|why| Unavailable::new(why, "end others"))?;
    late.sort_unstable();
    let micros = |span: Option<&Duration>| span.map_or(0, |span| span.0 / 1000);
    let (median, worst) = (micros(late.get(late.len() / 2)), micros(late.last()));
    Ok(format!(
        "{median} us late at the median, {worst} us at worst, of {} sleeps of 1 ms",
        late.len()
    ))
}
