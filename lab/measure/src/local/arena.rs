//! The words that the two processes of a measurement share, and the bare calls.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Pid;
use rustix::thread::futex;
use selvedge_os::clock::{Clock, timespec};
use selvedge_os::memory::{Memfd, MemoryError};
use selvedge_os::seqpacket::{self, Received};
use selvedge_os::signal;
use selvedge_units::Instant;

use super::{BenchPath, EVENTS_MAX, TIMEOUT, signal as number};

/// A cache line for each word.
const PHASE: usize = 128;
const COUNT: usize = 256;
const READY: usize = 384;
const SEEN: usize = 512;
const STAMP: usize = 640;
const BELL: usize = 768;
const FOUND: usize = 4096;
/// Ways in turn are at most a bare call, a ring, and a batch.
const FOUND_MAX: usize = 3 * EVENTS_MAX;
const LEN: usize = FOUND + FOUND_MAX * 4;

pub(super) struct Arena {
    memory: Memfd,
    event: OwnedFd,
}

impl Arena {
    pub(super) fn create() -> Result<Self, MemoryError> {
        let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| MemoryError::System {
            doing: "make an event for",
            source: error.into(),
        })?;
        Ok(Self { memory: Memfd::create("selvedge bench", LEN)?, event })
    }

    pub(super) fn send_fds(&self, socket: &OwnedFd) -> std::io::Result<()> {
        seqpacket::send(socket, b"arena", &[self.memory.file().as_fd(), self.event.as_fd()])
    }

    pub(super) fn receive(socket: &OwnedFd) -> Option<Self> {
        let Ok(Received::Message(_, mut fds)) = seqpacket::receive(socket) else { return None };
        let (event, memory) = (fds.pop()?, fds.pop()?);
        Some(Self { memory: Memfd::open(memory, LEN..=LEN).ok()?, event })
    }

    /// What is measured next: these ways in turn, each so often.
    pub(super) fn phase(&self, phase: u32, turn: &[BenchPath], count: usize) {
        let bit = |way: &BenchPath| 1_u64 << (*way as u32);
        let ways = turn.iter().map(bit).fold(0, |all, bit| all | bit);
        self.memory.put(COUNT, count as u64);
        self.memory.put(SEEN, 0);
        self.memory.atomic_u32(BELL).store(0, Ordering::Relaxed);
        self.memory.put(PHASE, u64::from(phase) | ways << 32);
        let _ = futex::wake(self.phase_word(), futex::Flags::empty(), 1);
    }

    /// The phase's number alone: the lower half on machines that are little-endian, as all of ours.
    fn phase_word(&self) -> &AtomicU32 {
        self.memory.atomic_u32(PHASE)
    }

    /// Sleeps while it is this phase, not for ever: who waits is not to disturb what else is measured.
    pub(super) fn wait_phase(&self, phase: u32) {
        let long = timespec(TIMEOUT.0);
        let _ = futex::wait(self.phase_word(), futex::Flags::empty(), phase, Some(&long));
    }

    pub(super) fn next_phase(&self) -> (u32, Vec<BenchPath>, usize) {
        let token = self.memory.atomic(PHASE).load(Ordering::Acquire);
        let in_turn = |way: &BenchPath| token >> (32 + *way as u32) & 1 == 1;
        let turn = BenchPath::ALL.into_iter().filter(in_turn).collect();
        (token as u32, turn, self.memory.word(COUNT) as usize)
    }

    pub(super) fn ready(&self, phase: u32) {
        self.memory.put(READY, phase.into());
    }

    pub(super) fn is_ready(&self, phase: u32) -> bool {
        self.memory.atomic(READY).load(Ordering::Acquire) == u64::from(phase)
    }

    pub(super) fn seen(&self) -> u64 {
        self.memory.atomic(SEEN).load(Ordering::Acquire)
    }

    /// The `n`th event came, which took so long.
    pub(super) fn record_delay(&self, n: usize, took: u32) {
        if n < FOUND_MAX {
            self.memory.atomic_u32(FOUND + n * 4).store(took, Ordering::Relaxed);
        }
        self.memory.put(SEEN, n as u64 + 1);
    }

    /// All have come.
    pub(super) fn record_total(&self, count: usize, took: u32) {
        self.memory.atomic_u32(FOUND).store(took, Ordering::Relaxed);
        self.memory.put(SEEN, count as u64);
    }

    pub(super) fn found(&self, count: usize) -> Vec<u32> {
        let at = |n| self.memory.atomic_u32(FOUND + n * 4).load(Ordering::Relaxed);
        (0..count.min(FOUND_MAX)).map(at).collect()
    }

    /// Calls the other process by nothing but the kernel's call.
    pub(super) fn call(&self, way: BenchPath, clock: Clock, pid: u32) {
        let bell = self.memory.atomic_u32(BELL);
        let process = Pid::from_raw(pid.cast_signed()).filter(|_| way == BenchPath::BareSignal);
        let process = process.and_then(|pid| signal::process(pid).ok());
        self.memory.put(STAMP, clock.now().0);
        bell.store(1, Ordering::Release);
        match way {
            BenchPath::BareFutex => {
                let _ = futex::wake(bell, futex::Flags::empty(), 1);
            }
            BenchPath::BareEvent => {
                let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            }
            BenchPath::BareSignal => {
                if let Some(process) = process {
                    let _ = signal::send(process, number(), 1);
                }
            }
            _ => {}
        }
    }

    /// Waits for such a call; how long it took.
    pub(super) fn answer(&self, way: BenchPath, clock: Clock) -> u32 {
        let bell = self.memory.atomic_u32(BELL);
        // A call that came while nobody slept is still to be had the next time, and means nothing then.
        while bell.load(Ordering::Acquire) == 0 {
            match way {
                BenchPath::BareFutex => drop(futex::wait(bell, futex::Flags::empty(), 0, None)),
                BenchPath::BareEvent => drop(rustix::io::read(&self.event, &mut [0; 8])),
                BenchPath::BareSignal => drop(signal::wait(number(), TIMEOUT)),
                _ => std::hint::spin_loop(),
            }
        }
        let took = clock.now().since(Instant(self.memory.word(STAMP)));
        bell.store(0, Ordering::Release);
        u32::try_from(took.0).unwrap_or(u32::MAX)
    }
}
