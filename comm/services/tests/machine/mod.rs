//! What the tests require of the machine: the right to load programs, a network namespace, a control group.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::PathBuf;
use std::process::Command;

use libbpf_rs::query::ProgInfoIter;
use selvedge_comm_services::ProgramError;
use selvedge_comm_services::{Service, ServiceError, Watch, WatchOptions};
use selvedge_tests_wait::{TIMEOUT, holds_within, until_some};

/// Whether programs can be loaded here. If not, the reason must be one of the documented ones.
pub(crate) fn permitted() -> bool {
    match Watch::start(WatchOptions::new(Service::Net)) {
        Ok(_) => true,
        Err(
            error @ (ServiceError::Program(ProgramError::NotPermitted | ProgramError::NoTypes(_))
            | ServiceError::PidNamespace),
        ) => {
            let remedies = ["root", "BTF", "--pid=host"];
            assert!(remedies.iter().any(|remedy| error.to_string().contains(remedy)), "{error}");
            eprintln!("SKIPPED: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// Another process; killed when dropped.
pub(crate) struct Running(pub(crate) std::process::Child);

impl Running {
    /// Waits for the end of the process, with the usual time limit.
    pub(crate) fn end(&mut self, what: &str) -> std::process::ExitStatus {
        until_some(what, || self.0.try_wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The programs of this name in the kernel, whichever process loaded them.
pub(crate) fn programs(name: &str) -> Vec<u32> {
    ProgInfoIter::default()
        .filter(|info| info.name.to_string_lossy() == name)
        .map(|info| info.id)
        .collect()
}

/// Moves this thread into a network namespace of its own, with lo up.
pub(crate) struct Namespace(());

impl Namespace {
    pub(crate) fn enter() -> Option<Self> {
        // SAFETY: changes this thread's network only; the test's thread ends with the test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            eprintln!("SKIPPED: no name space: {}", std::io::Error::last_os_error());
            return None;
        }
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("ip is in tools/packages.txt").success());
        Some(Self(()))
    }
}

/// A control group with a memory limit, and a file to be written in it.
pub(crate) struct MemoryGroup {
    folder: PathBuf,
    file: PathBuf,
}

impl MemoryGroup {
    pub(crate) fn new(limit: u64) -> Option<Self> {
        let name = format!("selvedge-test-{}", std::process::id());
        let places =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        for (root, setting) in places {
            let folder = PathBuf::from(root).join(&name);
            if std::fs::create_dir(&folder).is_err() {
                continue;
            }
            if std::fs::write(folder.join(setting), limit.to_string()).is_ok() {
                let file = std::env::temp_dir().join(format!("{name}.data"));
                return Some(Self { folder, file });
            }
            let _ = std::fs::remove_dir(&folder);
        }
        eprintln!("SKIPPED: no control group with a limit of memory can be made");
        None
    }

    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    pub(crate) fn file(&self) -> &PathBuf {
        &self.file
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
        // The kernel may take a moment; a second failure would hide the first.
        holds_within(TIMEOUT, || std::fs::remove_dir(&self.folder).is_ok());
    }
}
