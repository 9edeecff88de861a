//! What this machine allows, found out by trying it.

use std::path::Path;

use selvedge_units::Duration;

use crate::class::{self, Class};
use crate::protocol::Placement;

/// Whether a placement works here, or what it lacks and how to get it.
///
/// # Errors
/// A sentence for people.
pub fn try_placement(placement: Placement) -> Result<(), String> {
    match placement {
        Placement::None => Ok(()),
        Placement::Scx => scx(),
        Placement::Fifo => on_a_thread(|| class::set(0, Class::Fifo(1)))
            .map_err(|error| explain("real-time priorities (SCHED_FIFO)", LIMIT, &error)),
        Placement::Deadline => {
            let (period, service) = (Duration::from_millis(100), Duration::from_millis(1));
            on_a_thread(move || class::reserve(0, period, service))
                .map_err(|error| explain("reservations (SCHED_DEADLINE)", "", &error))
        }
    }
}

/// The best that works, of `scx` only if it is built in: with `sched_ext` threads switch without a dispatcher, over FIFO several
/// tasks are told apart by their windows, reservations know no windows.
///
/// # Errors
/// What each lacks.
pub fn best(in_kernel: bool) -> Result<Placement, String> {
    let mut lacks = Vec::new();
    for placement in [Placement::Scx, Placement::Fifo, Placement::Deadline] {
        if placement == Placement::Scx && !in_kernel {
            lacks.push("scx: this program was built without the kernel placement".to_owned());
            continue;
        }
        match try_placement(placement) {
            Ok(()) => return Ok(placement),
            Err(why) => lacks.push(format!("{}: {why}", placement.name())),
        }
    }
    Err(lacks.join("\n"))
}

/// Whether the kernel has `sched_ext`, and nobody else's scheduler runs in it. Loading one takes
/// the capabilities of root.
fn scx() -> Result<(), String> {
    let folder = Path::new("/sys/kernel/sched_ext");
    if !folder.exists() {
        return Err(
            "this kernel has no sched_ext; Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT \
                    has it"
                .to_owned(),
        );
    }
    let running = std::fs::read_to_string(folder.join("root/ops")).unwrap_or_default();
    if !matches!(running.trim(), "" | "selvedge_dwcs") {
        return Err(format!("sched_ext runs the scheduler \"{}\"; end it first", running.trim()));
    }
    if class::this_user() != 0 {
        return Err("only root may load a scheduler into the kernel".to_owned());
    }
    Ok(())
}

/// What else would do, for SCHED_FIFO.
const LIMIT: &str = ", or with an rtprio limit of 50 or more in /etc/security/limits.conf";

fn explain(what: &str, or_else: &str, error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => format!(
            "{what} are refused to this user; run it as root, or with the capability \
             CAP_SYS_NICE{or_else}; in a control group with cpu.rt_runtime_us of 0 give it some"
        ),
        Some(libc::EBUSY) => {
            format!("{what}: the kernel has promised all that it has; end another program first")
        }
        _ => format!("{what}: {error}"),
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
        let why = explain("x", "", &std::io::Error::from_raw_os_error(libc::EPERM));
        assert!(why.contains("CAP_SYS_NICE") && why.contains("root"));
        assert_eq!(try_placement(Placement::None), Ok(()));
        if let Err(why) = try_placement(Placement::Scx) {
            assert!(why.contains("sched_ext"));
        }
    }

    #[test]
    fn trying_changes_nothing() {
        let before = class::policy(0).unwrap();
        let _ = best(true);
        assert_eq!(class::policy(0).unwrap(), before);
    }
}
