//! Loads BPF objects into the kernel: compiled programs are opened, configured for a purpose and loaded. The
//! messages of libbpf and the verifier are not printed, but kept for the error that may follow.
//!
//! Used by `selvedge-place-kernel` and `selvedge-comm-services`. Everything loaded is released with the
//! object and its links, or with the process, unless its owner pins it.

#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::io;

use libbpf_rs::btf::Btf;
use libbpf_rs::{Object, ObjectBuilder, OpenObject, PrintLevel};
use thiserror::Error;

/// The lines of libbpf's log in an error.
const LOG_LINES: usize = 12;
/// The verifier's refusals come with a log, and as EACCES or EPERM as well: a log of this number of lines is
/// one.
const VERIFIED: usize = 6;

/// Why programs were not loaded.
#[derive(Debug, Error)]
pub enum ProgramError {
    /// The process has no right to load them.
    #[error(
        "the kernel refuses it to this user; run as root, or with the capabilities CAP_BPF, \
         CAP_NET_ADMIN and CAP_PERFMON"
    )]
    NotPermitted,
    /// The kernel has no type information.
    #[error(
        "this kernel ({0}) gives no type information (/sys/kernel/btf/vmlinux); one with \
         CONFIG_DEBUG_INFO_BTF=y does, as Debian's"
    )]
    NoTypes(String),
    /// The kernel refused them.
    #[error("the kernel refused the program: {why}{log}")]
    Refused {
        /// The error.
        why: io::Error,
        /// The messages of libbpf and the verifier, on lines of their own.
        log: String,
    },
}

/// Opens an object under a name, lets `fix` change its parts before loading, and loads it.
///
/// # Errors
/// [`ProgramError`] if it can't be opened or the kernel refuses it, or the error of `fix`.
pub fn load<E: From<ProgramError>>(
    name: &str,
    program: &[u8],
    fix: impl FnOnce(&mut OpenObject) -> Result<(), E>,
) -> Result<Object, E> {
    listen();
    let open = ObjectBuilder::default().name(name).and_then(|builder| builder.open_memory(program));
    let mut open = open.map_err(refused)?;
    fix(&mut open)?;
    Ok(open.load().map_err(refused)?)
}

/// The kernel's types.
///
/// # Errors
/// [`ProgramError::NoTypes`].
pub fn types() -> Result<Btf<'static>, ProgramError> {
    Btf::from_vmlinux().map_err(|_| ProgramError::NoTypes(release()))
}

/// `uname -r`.
#[must_use]
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

thread_local! {
    /// The messages of libbpf on this thread since the last error or load.
    static LIBBPF_LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps libbpf's messages, for the error that may follow.
fn listen() {
    LIBBPF_LOG.with_borrow_mut(Vec::clear);
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line: String| {
        LIBBPF_LOG.with_borrow_mut(|lines| {
            lines.extend(line.lines().map(str::to_owned));
            let surplus = lines.len().saturating_sub(LOG_LINES);
            lines.drain(..surplus);
        });
    })));
}

/// The meaning of a libbpf error, with its earlier messages.
#[must_use]
pub fn refused(error: libbpf_rs::Error) -> ProgramError {
    let lines = LIBBPF_LOG.take();
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && lines.len() < VERIFIED {
        return ProgramError::NotPermitted;
    }
    let log = lines.iter().map(|line| format!("\n  {}", line.trim_end())).collect();
    ProgramError::Refused { why: io_error(error), log }
}

/// The system's error in a libbpf error.
#[must_use]
pub fn io_error(error: libbpf_rs::Error) -> io::Error {
    let kind = match error.kind() {
        libbpf_rs::ErrorKind::NotFound => io::ErrorKind::NotFound,
        libbpf_rs::ErrorKind::PermissionDenied => io::ErrorKind::PermissionDenied,
        libbpf_rs::ErrorKind::AlreadyExists => io::ErrorKind::AlreadyExists,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("{error:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_refused_with_what_was_said() {
        let loaded = load::<ProgramError>("nothing", b"not an object", |_| Ok(()));
        let why = loaded.expect_err("it is none").to_string();
        assert!(why.starts_with("the kernel refused the program: "), "{why}");
        assert!(why.lines().count() > 1, "what libbpf said: {why}");
    }

    #[test]
    fn a_refusal_without_a_log_is_a_missing_right() {
        let denied = || libbpf_rs::Error::from(io::Error::from_raw_os_error(1));
        assert!(matches!(refused(denied()), ProgramError::NotPermitted));
        LIBBPF_LOG
            .with_borrow_mut(|lines| lines.extend((0..VERIFIED).map(|n| format!("line {n}  "))));
        let ProgramError::Refused { log, why } = refused(denied()) else { panic!("with a log") };
        assert_eq!(why.kind(), io::ErrorKind::PermissionDenied);
        assert!(log.starts_with("\n  line 0\n  line 1\n"), "{log}");
        assert!(matches!(refused(denied()), ProgramError::NotPermitted), "told once");
    }
}
