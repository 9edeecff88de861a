//! Where nodes of a test live: with folders of their own for sockets and temporary files, so that what
//! they leave behind can be seen, processes included.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use selvedge_tests_wait::holds_within;

use crate::support::{Folder, Running, program};

/// A coprocessor whose node was killed ends by itself after ten seconds.
const ORPHANED: Duration = Duration::from_secs(50);

pub(crate) struct Ground {
    folder: Folder,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        for name in ["run", "tmp"] {
            fs::create_dir(folder.join(name)).expect("the folder is new");
        }
        folder.write("secret", "5a".repeat(32) + "\n");
        Self { folder }
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        self.folder.write(name, text)
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = program(env!("CARGO_BIN_EXE_selvedge"));
        command.args(args).env_remove("SELVEDGE_LOG");
        command.env("XDG_RUNTIME_DIR", self.join("run")).env("TMPDIR", self.join("tmp"));
        Running::start(&mut command)
    }

    /// A receiver that writes what comes to a file.
    pub(crate) fn play(&self, source: &str, record: &Path) -> Running {
        let record = record.to_str().expect("a plain path");
        let secret = self.join("secret");
        let mut args = vec!["play", "--json", source, "--record", record];
        if source.starts_with("stack://") {
            args.extend(["--secret", secret.to_str().expect("a plain path")]);
        }
        self.start(&args)
    }

    /// Who was started here, or by one of those, and runs.
    fn processes(&self) -> Vec<String> {
        let mark = self.join("run").into_os_string().into_encoded_bytes();
        let is_ours = |id: &u32| {
            let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark)
        };
        let all = fs::read_dir("/proc").expect("the system shows its processes").flatten();
        let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let line = |id| fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        ids.filter(is_ours).map(|id| format!("{id} {}", line(id).replace('\0', " "))).collect()
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.join("run"), self.join("tmp")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if is_folder { &mut folders } else { &mut found }.push(entry.path());
            }
        }
        found
    }

    /// Now that all have been asked to end, nothing of them is left.
    pub(crate) fn leaves_nothing(self) {
        let mut left = Vec::new();
        let gone = holds_within(ORPHANED, || {
            left = self.processes();
            left.is_empty()
        });
        assert!(gone, "processes are left: {left:#?}");
        assert_eq!(self.files(), Vec::<PathBuf>::new());
        let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let ours = shared.filter(|entry| entry.file_name().to_string_lossy().contains("selvedge"));
        assert_eq!(ours.count(), 0, "shared memory has no name");
    }
}
