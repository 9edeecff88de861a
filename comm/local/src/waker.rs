//! Waking a process that sleeps: by the futex of its ring, an eventfd, or a real-time signal with a value.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::process::Pid;
use rustix::thread::futex;
use selvedge_data_memory::Bell;
use selvedge_os::eventfd::EventFd;
use selvedge_os::signal;

use crate::message::WakeMethod;
use crate::ring::RingError;

/// How a process is woken.
#[derive(Debug)]
pub struct Waker(CallTarget);

#[derive(Debug)]
enum CallTarget {
    Futex,
    Event(Arc<EventFd>),
    Signal { process: OwnedFd, number: i32, every: bool },
}

impl Waker {
    /// A waker as the peer requests it: signals need its process, eventfds its descriptor.
    ///
    /// # Errors
    /// If something is missing or invalid.
    pub fn new(
        wake_method: WakeMethod,
        pid: Option<Pid>,
        event: Option<OwnedFd>,
    ) -> Result<Self, RingError> {
        Ok(Self(match wake_method {
            WakeMethod::Futex => CallTarget::Futex,
            WakeMethod::Event => {
                let event = event.ok_or(RingError::NoEvent)?;
                CallTarget::Event(Arc::new(EventFd::of(event)?))
            }
            WakeMethod::Signal { number, every } if signal::is_real_time(number) => {
                let process =
                    pid.and_then(|pid| signal::process(pid).ok()).ok_or(RingError::Gone)?;
                CallTarget::Signal { process, number, every }
            }
            WakeMethod::Signal { number, .. } => return Err(RingError::Signal(number)),
        }))
    }

    /// The value of an event's signal: its first eight bytes.
    #[must_use]
    pub fn value(bytes: &[u8]) -> u64 {
        let mut first = [0; 8];
        let given = bytes.len().min(8);
        first[..given].copy_from_slice(&bytes[..given]);
        u64::from_ne_bytes(first)
    }

    /// Whether the value is used.
    #[must_use]
    pub const fn carries_value(&self) -> bool {
        matches!(self.0, CallTarget::Signal { .. })
    }

    /// Whether each event sends a signal, even while the process is awake.
    #[must_use]
    pub const fn signals_every(&self) -> bool {
        matches!(self.0, CallTarget::Signal { every: true, .. })
    }

    /// The eventfd, so that another thread can write to it.
    pub(crate) fn event(&self) -> Option<&Arc<EventFd>> {
        match &self.0 {
            CallTarget::Event(event) => Some(event),
            CallTarget::Futex | CallTarget::Signal { .. } => None,
        }
    }

    /// Wakes the process.
    pub fn wake(&self, bell: &Bell, value: u64) {
        match &self.0 {
            CallTarget::Futex => drop(futex::wake(bell.word(), futex::Flags::empty(), 1)),
            CallTarget::Event(event) => event.ring(),
            CallTarget::Signal { process, number, .. } => {
                // A process that has ended, or has too many signals waiting, gets none.
                let _ = signal::send(process, *number, value);
            }
        }
    }
}
