//! Changes of a running service that need no answer. They are posted into the kernel without a
//! system call each, or made by a system call if there is no ring. `bpf/posts.h` is the other side.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, MapFlags, Object};
use selvedge_os_bpf::io_error;
use selvedge_units::Duration;

use super::Watch;
use crate::change_ring::{ChangeRing, POST};
use crate::error::ServiceError;
use crate::layout::{POSTS, Settings};
use crate::load::handle;

/// The kernel's PID_MAX_LIMIT.
const THREAD_MAX: u32 = 4 << 20;
/// A bound that keeps sums with the clock from wrapping.
const SPAN_MAX: Duration = Duration(u64::MAX >> 1);

/// A change of a running service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// [`crate::WatchOptions::threshold`].
    Threshold(u64),
    /// [`crate::WatchOptions::interval`].
    Interval(Duration),
    /// Gives a thread this deadline, from each time that it wakes (`sched` only).
    Job {
        /// The thread.
        thread: u32,
        /// The time from waking to sleeping.
        within: Duration,
    },
    /// Removes a thread's deadline (`sched` only).
    NoJob {
        /// The thread.
        thread: u32,
    },
}

/// The path of changes into the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePath {
    /// By a ring that the kernel's program reads before its next occurrence (Linux 6.1).
    Posted,
    /// At once, by a system call if one is needed.
    SystemCall,
}

impl std::fmt::Display for ChangePath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Posted => "posted by a user ring buffer",
            Self::SystemCall => "by system calls, since this kernel has no user ring buffer",
        })
    }
}

impl Change {
    /// `struct post`.
    fn record(self) -> [u8; POST] {
        let (kind, thread, value) = match self {
            Self::Threshold(value) => (0_u32, 0_u32, value),
            Self::Interval(span) => (1, 0, span.0),
            Self::Job { thread, within } => (2, thread, within.0),
            Self::NoJob { thread } => (3, thread, 0),
        };
        let mut record = [0; POST];
        record[..4].copy_from_slice(&kind.to_ne_bytes());
        record[4..8].copy_from_slice(&thread.to_ne_bytes());
        record[8..].copy_from_slice(&value.to_ne_bytes());
        record
    }

    fn makes_sense(self) -> bool {
        match self {
            Self::Threshold(_) => true,
            Self::Interval(span) => span <= SPAN_MAX,
            Self::Job { thread, within } => {
                (1..=THREAD_MAX).contains(&thread) && within <= SPAN_MAX
            }
            Self::NoJob { thread } => (1..=THREAD_MAX).contains(&thread),
        }
    }
}

/// The ring of an object's posted calls.
pub(super) fn change_ring(object: &Object) -> Result<ChangeRing, ServiceError> {
    ChangeRing::new(&handle(object, "posts")?, POSTS)
        .map_err(|why| ServiceError::Call("the ring of posted calls", why))
}

impl Watch {
    /// The path of [`Self::post`] into the kernel.
    pub fn change_path(&self) -> ChangePath {
        if self.change_ring.is_some() { ChangePath::Posted } else { ChangePath::SystemCall }
    }

    /// Posts a change. Changes take effect in the order of the calls, before the next occurrence is
    /// dispatched or, if there is an interval, by its timer; [`Self::tick`] applies them at once.
    /// If [`Self::change_path`] is [`ChangePath::Posted`], no system call is needed, except for the
    /// first interval of a service that had none. Never waits. [`crate::Tally::refused`] counts
    /// changes that the kernel could not make (no such thread, no room for another).
    ///
    /// # Errors
    /// If the change is invalid, or the kernel has not read the many posted before: then nothing is posted.
    pub fn post(&mut self, change: Change) -> Result<(), ServiceError> {
        self.check(change)?;
        let Some(change_ring) = &mut self.change_ring else { return self.make(change) };
        if !change_ring.put(&change.record()) {
            let waiting = change_ring.waiting() / (8 + POST as u64);
            return Err(ServiceError::Full { waiting });
        }
        self.notify_kernel();
        if let Change::Interval(_) = change { self.time() } else { Ok(()) }
    }

    /// Gives a thread a deadline, from each time that it wakes (`sched` only), at once.
    ///
    /// # Errors
    /// If the limit of such threads is reached, or the service is another one.
    pub fn add_job(&mut self, thread: u32, within: Duration) -> Result<(), ServiceError> {
        let change = Change::Job { thread, within };
        self.check(change)?;
        self.make(change)
    }

    /// The threads with a deadline in the kernel now, by number. Takes a system call or two for each.
    ///
    /// # Errors
    /// The system's error, or that the service is another one.
    pub fn jobs(&self) -> Result<Vec<(u32, Duration)>, ServiceError> {
        let failed = |why| ServiceError::Call("the threads' deadlines", io::Error::other(why));
        let map = self.object.maps().find(|map| map.name() == "jobs");
        let map = map.ok_or(ServiceError::NoThreads { service: self.service })?;
        let mut all = Vec::new();
        for key in map.keys() {
            // A thread that was removed meanwhile is left out.
            if let Some(value) = map.lookup(&key, MapFlags::ANY).map_err(failed)?
                && let (Some(thread), Some(within)) = (key.first_chunk(), value.first_chunk())
            {
                all.push((u32::from_ne_bytes(*thread), Duration(u64::from_ne_bytes(*within))));
            }
        }
        all.sort_unstable();
        Ok(all)
    }

    /// Checks what user space can check.
    pub(crate) fn check(&self, change: Change) -> Result<(), ServiceError> {
        if !change.makes_sense() {
            return Err(ServiceError::Change { what: format!("{change:?}") });
        }
        let needs_jobs = matches!(change, Change::Job { .. } | Change::NoJob { .. });
        if needs_jobs && self.jobs.is_none() {
            return Err(ServiceError::NoThreads { service: self.service });
        }
        Ok(())
    }

    /// Notifies the kernel's program that the ring has records.
    fn notify_kernel(&self) {
        self.settings.atomic_u32(Settings::POSTED).store(1, Ordering::Release);
    }

    /// Makes the change at once, without the ring.
    fn make(&mut self, change: Change) -> Result<(), ServiceError> {
        let service = self.service;
        let jobs = || self.jobs.as_ref().ok_or(ServiceError::NoThreads { service });
        let failed = |error| ServiceError::Call("a thread's deadline", io_error(error));
        match change {
            Change::Threshold(value) => {
                self.settings.atomic(Settings::THRESHOLD).store(value, Ordering::Release);
                Ok(())
            }
            Change::Interval(span) => {
                self.settings.atomic(Settings::INTERVAL).store(span.0, Ordering::Release);
                self.time()
            }
            Change::Job { thread, within } => {
                let mut value = within.0.to_ne_bytes().to_vec();
                value.extend([0; 8]);
                jobs()?.update(&thread.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)
            }
            Change::NoJob { thread } => jobs()?.delete(&thread.to_ne_bytes()).map_err(failed),
        }
    }

    /// Starts the kernel's timer, once.
    pub(super) fn time(&mut self) -> Result<(), ServiceError> {
        if !self.is_timed {
            self.run("start_timer")?;
            self.is_timed = true;
        }
        Ok(())
    }
}
