//! When a source last gave a frame, for those who watch it from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tells when a source last gave a frame. Cheap to clone; the clones stay in step.
#[derive(Clone, Debug)]
pub struct Liveness {
    opened: Instant,
    /// Nanoseconds from opening to the last frame, plus one; 0: none yet.
    last: Arc<AtomicU64>,
}

impl Liveness {
    pub(super) fn new() -> Self {
        Self { opened: Instant::now(), last: Arc::default() }
    }

    pub(super) fn frame(&self) {
        let ns = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX - 1);
        // Nothing else is published by it.
        self.last.store(ns + 1, Ordering::Relaxed);
    }

    /// When the last frame came; `None` if none came yet.
    #[must_use]
    pub fn last_frame_at(&self) -> Option<Instant> {
        let ns = self.last.load(Ordering::Relaxed).checked_sub(1)?;
        Some(self.opened + Duration::from_nanos(ns))
    }
}
