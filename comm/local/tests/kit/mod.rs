//! A directory to meet in, and waiting with a time limit.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use selvedge_comm_local::{Sink, SinkOptions, Source, SourceOptions};
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

/// A directory of its own, removed afterwards.
pub(crate) struct Place(pub PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("slv-local-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut builder = std::fs::DirBuilder::new();
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).unwrap();
        Self(path)
    }

    pub(crate) fn source(&self, options: SourceOptions) -> Source {
        Source::join(&self.0, "load", options).unwrap()
    }

    pub(crate) fn sink(&self, options: SinkOptions) -> Sink {
        Sink::join(&self.0, "load", options).unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Long enough for any machine; reaching it is a failure.
pub(crate) fn patience() -> Instant {
    Clock::shared().now() + Duration::from_secs(30)
}

/// All waiting events.
pub(crate) fn taken(sink: &mut Sink) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(event) = sink.take() {
        all.push(event.bytes.to_vec());
    }
    all
}
