//! Whether the kernel interrupts a program's system call for a thread that is due, whatever the thread's class.
//!
//! Kernels that don't let the system call run on, and look for due threads only at some of its places.

/// Versions of kernels that interrupt system calls say one of these words.
const INTERRUPTING: [&str; 3] = ["PREEMPT", "PREEMPT_RT", "PREEMPT_LAZY"];
/// The word of a kernel for which the boot decides, and the options by which it then interrupts them.
const DYNAMIC: &str = "PREEMPT_DYNAMIC";
const OPTIONS: [&str; 2] = ["preempt=full", "preempt=lazy"];

/// Whether this kernel does. One that the boot decides for, and whose boot options say nothing, counts as one that does not:
/// its default is known only to root.
#[must_use]
pub fn interrupts_system_calls() -> bool {
    let version = rustix::system::uname().version().to_string_lossy().into_owned();
    let options = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    interrupts(&version, &options)
}

fn interrupts(version: &str, options: &str) -> bool {
    let has = |text: &str, words: &[&str]| text.split_whitespace().any(|one| words.contains(&one));
    has(version, &INTERRUPTING) || has(version, &[DYNAMIC]) && has(options, &OPTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_or_else_the_boot_decides() {
        for (version, options, is_so) in [
            ("#1 SMP PREEMPT_DYNAMIC Debian 6.1.148-1 (2025-08-26)", "quiet", false),
            ("#1 SMP PREEMPT_DYNAMIC Debian 6.1.148-1 (2025-08-26)", "quiet preempt=full", true),
            ("#1 SMP PREEMPT_DYNAMIC Debian 6.1.148-1 (2025-08-26)", "preempt=none", false),
            ("#1 SMP PREEMPT_RT Debian 6.1.148-1 (2025-08-26)", "", true),
            ("#1 SMP PREEMPT Mon", "", true),
            ("#1 SMP PREEMPT_LAZY", "", true),
            ("#1 SMP Mon", "preempt=full", false),
        ] {
            assert_eq!(interrupts(version, options), is_so, "{version}, {options}");
        }
    }
}
