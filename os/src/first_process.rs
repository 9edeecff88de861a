//! A command in a process namespace of its own: with the first process of it, which is this program again,
//! the kernel ends all others, whatever groups and sessions they made.
//!
//! [`FirstProcess`] starts it and holds one end of a pipe. The first process, in [`serve`], starts the
//! command, reaps what its processes leave, and ends when the command does, or when the pipe's other end is
//! closed, as the kernel does if its parent is killed.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread;

use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, wait};

use crate::namespace::NetworkNamespace;

/// A running command. Dropping it ends all its processes.
#[derive(Debug)]
pub struct FirstProcess {
    child: Child,
    /// The first process ends when this is closed.
    lifeline: Option<File>,
}

impl FirstProcess {
    /// Starts this program as the first process, in a network namespace. `arguments` must lead it to
    /// [`serve`]; the number of the pipe's descriptor is added as the last one.
    ///
    /// # Errors
    /// If the kernel creates no process namespace, or does not start the program.
    pub fn start(network: &NetworkNamespace, mut command: Command) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        fcntl_setfd(&reader, FdFlags::empty())?;
        command.arg(reader.as_raw_fd().to_string());
        let in_new_mounts = || {
            // SAFETY: takes no pointer; this process has one thread and its own table of descriptors.
            if unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0 {
                // What is mounted here must not be seen outside. Where no `/proc` may be mounted, that of
                // outside stays.
                let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                let _ = mount_change(c"/", private)
                    .and_then(|()| mount(c"proc", c"/proc", c"proc", flags, None::<&CStr>));
            }
            Ok(())
        };
        // SAFETY: between fork and exec it only makes system calls, with constant strings.
        unsafe { command.pre_exec(in_new_mounts) };
        let child = network.inside(move || {
            // SAFETY: takes no pointer. Only children of this thread are affected, and it ends after this
            // one.
            match unsafe { libc::unshare(libc::CLONE_NEWPID) } {
                0 => command.spawn(),
                _ => Err(io::Error::last_os_error()),
            }
        })??;
        Ok(Self { child, lifeline: Some(writer.into()) })
    }

    /// How the command ended, once it has and all its processes are gone.
    ///
    /// # Errors
    /// None while it is this process's child.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Sends SIGTERM to all its processes.
    pub fn terminate(&mut self) {
        if let Some(lifeline) = &mut self.lifeline {
            // One that has ended does not read.
            let _ = lifeline.write(b"t");
        }
    }

    /// Ends all its processes at once.
    pub fn kill(&mut self) {
        self.lifeline = None;
        // It may have ended.
        let _ = self.child.kill();
    }
}

impl Drop for FirstProcess {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Why a process is not the first one of a process namespace.
#[derive(Debug, thiserror::Error)]
pub enum FirstProcessError {
    /// Another program started it, or a user by hand.
    #[error(
        "process {0} is not the first one of a namespace; this command is for `selvedge line` alone"
    )]
    NotFirst(i32),
    /// There is no such descriptor.
    #[error("descriptor {0} is not open: {1}; this command is for `selvedge line` alone")]
    Lifeline(RawFd, io::Error),
    /// The command can't be started.
    #[error("can't start \"{0}\": {1}")]
    Start(String, io::Error),
}

/// Runs a command as the first process of a namespace, until it ends; returns its status, by the convention
/// of shells. `lifeline` is the number that [`FirstProcess::start`] added.
///
/// # Errors
/// [`FirstProcessError`].
pub fn serve(lifeline: RawFd, mut command: Command) -> Result<u8, FirstProcessError> {
    // SIGTERM to all processes would reach the whole machine's elsewhere.
    if getpid() != Pid::INIT {
        return Err(FirstProcessError::NotFirst(getpid().as_raw_nonzero().get()));
    }
    let lifeline = inherited(lifeline).map_err(|e| FirstProcessError::Lifeline(lifeline, e))?;
    thread::spawn(move || handle_commands(lifeline));
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|error| FirstProcessError::Start(name, error))?;
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == child.id().cast_signed() => {
                let status = ExitStatus::from_raw(status.as_raw());
                return Ok(shell_status(status));
            }
            // Orphans of its processes.
            Ok(_) | Err(Errno::INTR) => {}
            // Nothing is left to wait for; that can't be before the child has been.
            Err(_) => return Ok(1),
        }
    }
}

/// A status by the convention of shells: 128 and a signal's number.
#[must_use]
pub fn shell_status(status: ExitStatus) -> u8 {
    let signal = || status.signal().map_or(1, |signal| 128 + signal);
    u8::try_from(status.code().unwrap_or_else(signal)).unwrap_or(1)
}

/// Passes SIGTERM on at each byte, and ends the namespace with the pipe.
fn handle_commands(lifeline: OwnedFd) {
    let mut lifeline = File::from(lifeline);
    let mut byte = [0];
    while matches!(lifeline.read(&mut byte), Ok(1)) {
        // There may be no processes left.
        let _ = kill_process_group(Pid::INIT, Signal::TERM);
    }
    std::process::exit(1);
}

/// A descriptor that the parent left open for this process; not for its children.
fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the parent opened it for this process alone, which asks once, at its start; a number that is
    // not open fails below, and is then not closed either.
    let descriptor = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
    fcntl_getfd(&*descriptor)?;
    fcntl_setfd(&*descriptor, FdFlags::CLOEXEC)?;
    Ok(std::mem::ManuallyDrop::into_inner(descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_the_first_signals_nobody() {
        let refused = serve(3, Command::new("true")).expect_err("tests are not the first process");
        assert!(refused.to_string().contains("is not the first one"), "{refused}");
    }

    #[test]
    fn descriptors_that_are_not_open_are_refused() {
        for number in [-1, 0, 2, 1_000_000] {
            assert!(inherited(number).is_err(), "{number}");
        }
    }

    #[test]
    fn a_signal_counts_from_128() {
        assert_eq!(shell_status(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(shell_status(ExitStatus::from_raw(9)), 137);
    }
}
