//! Probes of processor and memory: the features that a placement on a core of its own needs.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use rustix::thread::{CpuSet, sched_getaffinity};
use selvedge_units::{Duration, Instant};

use super::{Outcome, Unavailable};
use crate::clock::{Clock, pin_to_core};
use crate::latency;
use crate::memory::{Access, Mapping, Memfd};
use crate::sched::{reserve, set_class};
use crate::wake::sleeper;

/// `SCHED_EXT`, which libc does not know.
const SCHED_EXT: i32 = 7;

/// Runs a probe on a thread of its own, whose grants end with it.
fn aside(probe: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let gone = |_| Err(Unavailable::new("the probe's thread ended", "report this"));
    std::thread::spawn(probe).join().unwrap_or_else(gone)
}

/// A thread on one processor only.
pub fn pin() -> Outcome {
    aside(|| {
        let failed = |why| Unavailable::new(why, "allow sched_getaffinity in the sandbox");
        let set = sched_getaffinity(None).map_err(failed)?;
        let count = set.count();
        let last = (0..CpuSet::MAX_CPU).rfind(|&cpu| set.is_set(cpu)).unwrap_or_default();
        if !pin_to_core(last) {
            return Err(Unavailable::last("allow sched_setaffinity in the sandbox"));
        }
        if count < 2 {
            let why = "there is one processor only, so a core of its own leaves none";
            return Err(Unavailable::new(why, "give the machine or the container two or more"));
        }
        Ok(format!("{count} processors; a thread was pinned to {last}"))
    })
}

/// All memory of the process locked, without reading it in.
pub fn lock_memory() -> Outcome {
    const REMEDY: &str = "give it CAP_IPC_LOCK, or raise the limit: ulimit -l unlimited (systemd: LimitMEMLOCK=infinity)";
    let locked = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::ONFAULT);
    let _ = munlockall();
    locked.map(|()| "mlockall granted".to_owned()).map_err(|why| Unavailable::new(why, REMEDY))
}

/// The first-in first-out class.
pub fn fifo() -> Outcome {
    aside(|| policy(libc::SCHED_FIFO, 1, REAL_TIME).map(|()| "SCHED_FIFO granted".to_owned()))
}

const REAL_TIME: &str = "run as root or with CAP_SYS_NICE (systemd: LimitRTPRIO=99); in a cgroup of \
                         version 1 it needs cpu.rt_runtime_us > 0";

fn policy(policy: i32, priority: i32, remedy: &str) -> Result<(), Unavailable> {
    set_class(0, policy, priority).map_err(|why| Unavailable::new(why, remedy))
}

/// A reservation of 1 ms in 10.
pub fn deadline() -> Outcome {
    aside(|| {
        let granted = reserve(0, Duration::from_millis(10), Duration::from_millis(1));
        granted.map_err(|why| Unavailable::new(why, REAL_TIME))?;
        Ok("SCHED_DEADLINE granted, 1 ms in 10 ms".to_owned())
    })
}

/// The class of schedulers in BPF, and whether one is active.
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
    let failed = |why: &dyn std::fmt::Display| Unavailable::new(why, REMEDY);
    let one = Memfd::create("selvedge-probe", LEN).map_err(|why| failed(&why))?;
    let other = Mapping::new(one.file(), 0, LEN, Access::Read).map_err(|why| failed(&why))?;
    one.put(0, 0x5e1f);
    let same = other.word(0) == 0x5e1f;
    if same {
        Ok("memfd, mapped twice".to_owned())
    } else {
        Err(Unavailable::new("what one mapping wrote the other does not read", REMEDY))
    }
}

/// How late a thread with the engine's settings wakes from sleeps of 1 ms, during `lasts` in all.
///
/// # Errors
/// If an event or a thread can't be created.
pub fn lateness(lasts: Duration) -> io::Result<Vec<Duration>> {
    let measure = move || {
        latency::ask();
        own_lateness(lasts)
    };
    let gone = |_| Err(io::Error::other("the probe's thread ended"));
    std::thread::Builder::new().spawn(measure)?.join().unwrap_or_else(gone)
}

/// How late this thread, in the class that it has, wakes from sleeps of 1 ms, during `lasts` in all.
///
/// # Errors
/// If an event can't be created.
pub fn own_lateness(lasts: Duration) -> io::Result<Vec<Duration>> {
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
