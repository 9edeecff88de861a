//! The rights that this machine grants, found by trying.

use std::fmt;
use std::path::Path;

use selvedge_units::Duration;

use crate::class::{self, Class};
use crate::protocol::Placement;

/// The missing part of a placement, and how to get it.
#[derive(Debug, thiserror::Error)]
pub enum Lack {
    /// The kernel has no `sched_ext`.
    #[error("this kernel has no sched_ext; Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT has it")]
    NoSchedExt,
    /// Another scheduler runs in the kernel.
    #[error("sched_ext runs the scheduler \"{0}\"; end it first")]
    Taken(String),
    /// It needs the capabilities of root.
    #[error("only root may load a scheduler into the kernel")]
    NotRoot,
    /// The program can't load it.
    #[error("this program was built without the kernel placement")]
    NotBuilt,
    /// This user has no right to it.
    #[error(
        "{what} are refused to this user; run it as root, or with the capability \
         CAP_SYS_NICE{or_else}; in a control group with cpu.rt_runtime_us of 0 give it some"
    )]
    NotPermitted {
        /// The refused right.
        what: &'static str,
        /// The alternative.
        or_else: &'static str,
    },
    /// The kernel can't promise more.
    #[error("{0}: the kernel has promised all that it has; end another program first")]
    Promised(&'static str),
    /// The kernel returns another error.
    #[error("{what}: {error}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error.
        error: std::io::Error,
    },
}

/// The missing part of each placement, where none works: a line each.
#[derive(Debug)]
pub struct NoPlacement(Vec<(Placement, Lack)>);

impl fmt::Display for NoPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |(placement, lack): &(Placement, Lack)| format!("{}: {lack}", placement.name());
        f.write_str(&self.0.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

impl std::error::Error for NoPlacement {}

/// Whether a placement works here.
pub fn try_placement(placement: Placement) -> Result<(), Lack> {
    match placement {
        Placement::None => Ok(()),
        Placement::Scx => scx(),
        Placement::Fifo => on_a_thread(|| class::set(0, Class::Fifo(1)))
            .map_err(|error| lack("real-time priorities (SCHED_FIFO)", LIMIT, error)),
        Placement::Deadline => {
            let (period, service) = (Duration::from_millis(100), Duration::from_millis(1));
            on_a_thread(move || class::reserve(0, period, service))
                .map_err(|error| lack("reservations (SCHED_DEADLINE)", "", error))
        }
    }
}

/// The best that works; `scx` only if it is built in. With `sched_ext` threads switch without a dispatcher,
/// FIFO distinguishes several tasks by their windows, reservations know no windows.
///
/// # Errors
/// The missing part of each.
pub fn best(in_kernel: bool) -> Result<Placement, NoPlacement> {
    let mut lacks = Vec::new();
    for placement in [Placement::Scx, Placement::Fifo, Placement::Deadline] {
        let tried = match placement {
            Placement::Scx if !in_kernel => Err(Lack::NotBuilt),
            _ => try_placement(placement),
        };
        match tried {
            Ok(()) => return Ok(placement),
            Err(lack) => lacks.push((placement, lack)),
        }
    }
    Err(NoPlacement(lacks))
}

/// Whether the kernel has `sched_ext`, and no other scheduler runs in it. Loading one needs the capabilities
/// of root.
fn scx() -> Result<(), Lack> {
    let folder = Path::new("/sys/kernel/sched_ext");
    if !folder.exists() {
        return Err(Lack::NoSchedExt);
    }
    let running = std::fs::read_to_string(folder.join("root/ops")).unwrap_or_default();
    if !matches!(running.trim(), "" | "selvedge_dwcs") {
        return Err(Lack::Taken(running.trim().to_owned()));
    }
    if class::this_user() != 0 {
        return Err(Lack::NotRoot);
    }
    Ok(())
}

/// The alternative, for SCHED_FIFO.
const LIMIT: &str = ", or with an rtprio limit of 50 or more in /etc/security/limits.conf";

fn lack(what: &'static str, or_else: &'static str, error: std::io::Error) -> Lack {
    match error.raw_os_error() {
        Some(libc::EPERM) => Lack::NotPermitted { what, or_else },
        Some(libc::EBUSY) => Lack::Promised(what),
        _ => Lack::System { what, error },
    }
}

/// Tries on a thread of its own, so that this one keeps its class.
fn on_a_thread(what: impl FnOnce() -> std::io::Result<()> + Send + 'static) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().spawn(what)?;
    thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the trial thread panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_said_with_a_remedy() {
        let why = lack("x", "", std::io::Error::from_raw_os_error(libc::EPERM)).to_string();
        assert!(why.contains("CAP_SYS_NICE") && why.contains("root"));
        assert!(try_placement(Placement::None).is_ok());
        if let Err(why) = try_placement(Placement::Scx) {
            assert!(why.to_string().contains("sched_ext") || matches!(why, Lack::NotRoot), "{why}");
        }
    }

    #[test]
    fn trying_changes_nothing() {
        let before = class::policy(0).unwrap();
        let _ = best(true);
        assert_eq!(class::policy(0).unwrap(), before);
    }
}
