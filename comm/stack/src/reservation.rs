//! `Avail(p)` of section 4.1, "guaranteed by some system-level scheduler": the kernel reserves processor time
//! for the threads of an endpoint.
//!
//! Threads that may run anywhere are reserved by `SCHED_DEADLINE`. The kernel reserves so on chosen processors
//! only where these are a scheduling domain of their own; elsewhere the threads are pinned, and the dispatcher
//! of `selvedge cpu` keeps their share.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Mutex;
use std::thread;

use selvedge_data_cpu::{Config, Task, TaskError};
use selvedge_data_stack::contract::LATE_ONE_IN;
use selvedge_data_stack::load::Load;
use selvedge_data_stack::model::{Machine, WakeUp};
use selvedge_data_stream::Window;
use selvedge_os::preemption::interrupts_system_calls;
use selvedge_os::{probe, sched};
use selvedge_place_cpu::class::{self, Tid};
use selvedge_place_cpu::dispatch::Dispatcher;
use selvedge_place_cpu::members::MemberRule;
use selvedge_place_cpu::{Placement, rights};
use selvedge_units::Duration;

use crate::sync::lock;

/// The period of a reservation by the kernel: the shortest that it grants without a change of its settings.
const PERIOD: Duration = Duration::from_micros(100);
/// The period of a reservation by a dispatcher, which samples each millisecond.
const DISPATCHED_PERIOD: Duration = Duration::from_millis(100);
/// How long wake-ups are measured, in sleeps of a millisecond. The longest of `n` is exceeded by one in `n + 1`, so
/// these bound more than the share that a firm contract states, [`LATE_ONE_IN`].
const MEASURED: Duration = Duration::from_millis(2 * LATE_ONE_IN);

/// A system call of another program holds a thread up for as long on kernels that don't interrupt it: `selvedge-lab bench firm`
/// saw 10.3 ms in all. Such a call is too rare for what is measured at the start.
const HELD_UP: Duration = Duration::from_millis(10);

/// What this process has measured, by share and processors.
static WAKE_UPS: Mutex<BTreeMap<(Load, Vec<usize>), WakeUp>> = Mutex::new(BTreeMap::new());

/// The processor time that an endpoint requests for each of its elements, and for its thread that reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The part of a processor for each thread.
    pub share: Load,
    /// The processors to which the threads are pinned in turn; empty: the kernel chooses at each moment.
    pub processors: Vec<usize>,
}

/// Why no time is reserved. The endpoint runs without, and refuses firm contracts.
#[derive(Debug, thiserror::Error)]
pub enum ReservationError {
    /// The process may not run on a processor, or the machine lacks it.
    #[error("there is no processor {processor} for this process; it may run on {}", list(.allowed))]
    Processor {
        /// The stated processor.
        processor: usize,
        /// The processors of this process.
        allowed: Vec<usize>,
    },
    /// The kernel refuses a thread's class.
    #[error(
        "{share} of a processor for each of {threads} threads is not reserved: {error}; run as root or with \
         CAP_SYS_NICE, and reserve less where other programs have reserved time"
    )]
    Refused {
        /// The share of each.
        share: Load,
        /// Their number.
        threads: usize,
        /// The kernel's error.
        error: io::Error,
    },
    /// The dispatcher has promised the processor's time already.
    #[error(
        "processor {processor} has less than {share} left for another thread; lower the share or name more \
         processors"
    )]
    Promised {
        /// The processor.
        processor: usize,
        /// The share of each thread.
        share: Load,
    },
    /// The system lacks what dispatching a pinned thread needs.
    #[error("{0}")]
    Dispatching(#[from] rights::Lack),
    /// The share is no task of a dispatcher.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// No thread can be started.
    #[error("no thread can be started: {0}")]
    Thread(#[from] io::Error),
}

fn list(processors: &[usize]) -> String {
    processors.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// Reserved time.
pub(crate) struct Granted {
    share: Load,
    placement: Placement,
    processors: Vec<usize>,
    threads: Vec<Tid>,
    dispatchers: BTreeMap<usize, Dispatcher>,
}

impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Granted({self})")
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.placement {
            Placement::Deadline => "SCHED_DEADLINE",
            _ => "a dispatcher",
        };
        write!(f, "{} of a processor for each thread by {by}", self.share)?;
        match &self.processors[..] {
            [] => Ok(()),
            processors => write!(f, ", pinned to {}", list(processors)),
        }
    }
}

impl Reservation {
    /// Checks that its processors exist, so that what no kernel grants is an error and not a lack of rights.
    pub(crate) fn check(&self) -> Result<(), ReservationError> {
        let allowed = class::processors();
        match self.processors.iter().find(|processor| !allowed.contains(processor)) {
            Some(&processor) => Err(ReservationError::Processor { processor, allowed }),
            None => Ok(()),
        }
    }

    /// Reserves time for these threads of this process. After an error some may have it, and the caller ends
    /// them all: Linux 6.18 never takes back what a thread has that is asleep when its class is changed.
    pub(crate) fn grant(&self, threads: Vec<Tid>) -> Result<Granted, ReservationError> {
        let (share, processors) = (self.share, self.processors.clone());
        let dispatchers = BTreeMap::new();
        let placement = Placement::Deadline;
        let mut granted = Granted { share, placement, processors, threads, dispatchers };
        granted.reserve()?;
        Ok(granted)
    }

    /// How late a thread with such a reservation wakes up: measured now, once for all endpoints of a process.
    pub(crate) fn wake_up(&self) -> Result<WakeUp, ReservationError> {
        let key = (self.share, self.processors.clone());
        let known = lock(&WAKE_UPS).get(&key).copied();
        let measured = known.map_or_else(|| self.measure_wake_up(), Ok)?;
        lock(&WAKE_UPS).insert(key, measured);
        Ok(measured)
    }

    fn measure_wake_up(&self) -> Result<WakeUp, ReservationError> {
        let (name, named) = std::sync::mpsc::channel();
        let (begin, begun) = std::sync::mpsc::channel::<()>();
        let measure = thread::Builder::new().name("stack wake-ups".into()).spawn(move || {
            let _ = name.send(class::this_thread());
            begun.recv().ok().map(|()| probe::own_lateness(MEASURED))
        })?;
        let granted = named.recv().map(|thread| self.grant(vec![thread]));
        let granted = granted.map_err(io::Error::other)??;
        let _ = begin.send(());
        let measured = measure.join().unwrap_or_default().unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(granted.bound(wake_up_of(measured)))
    }
}

/// The mean and the longest of measured wake-ups.
pub(crate) fn wake_up_of(measured: Vec<Duration>) -> WakeUp {
    let sum = measured.iter().fold(Duration::ZERO, |sum, &late| sum + late);
    let average = Duration(sum.0 / (measured.len() as u64).max(1));
    WakeUp { average, worst: measured.into_iter().max().unwrap_or_default() }
}

impl Granted {
    /// The resources of a machine with this reservation.
    pub(crate) fn machine(&self, machine: Machine, wake_up: WakeUp) -> Machine {
        let available = vec![self.share; machine.available.len()];
        Machine { available, wake_up, is_reserved: true, ..machine }
    }

    /// The wake-up with the time for which a system call may hold a thread up, and that for which a reservation that is used
    /// up keeps it waiting: the bounded delay of a periodic server, twice the period without its service.
    fn bound(&self, wake_up: WakeUp) -> WakeUp {
        let without = match self.placement {
            Placement::Deadline => PERIOD - Duration(PERIOD.0 * self.share.0 / Load::WHOLE.0),
            // A dispatched thread runs at once until its service of a whole period is used up.
            _ => Duration::ZERO,
        };
        let held_up = if interrupts_system_calls() { Duration::ZERO } else { HELD_UP };
        WakeUp { worst: wake_up.worst + held_up + without * 2, ..wake_up }
    }

    /// Has the kernel reserve the time, or else dispatchers.
    fn reserve(&mut self) -> Result<(), ReservationError> {
        let Self { share, ref processors, ref threads, .. } = *self;
        for (&thread, &processor) in threads.iter().zip(processors.iter().cycle()) {
            class::confine(thread, processor)?;
        }
        let service = Duration(PERIOD.0 * share.0 / Load::WHOLE.0);
        let reserve = |&thread: &Tid| sched::reserve(thread, PERIOD, service);
        let count = threads.len();
        let granted = threads
            .iter()
            .try_fold(0_usize, |n, tid| reserve(tid).map_err(|e| (n, e)).map(|()| n + 1));
        match granted {
            Ok(_) => Ok(()),
            Err((0, _)) if !processors.is_empty() => self.dispatch(),
            Err((_, error)) => Err(ReservationError::Refused { share, threads: count, error }),
        }
    }

    /// Has dispatchers keep the shares of the pinned threads.
    fn dispatch(&mut self) -> Result<(), ReservationError> {
        self.placement = Placement::Fifo;
        rights::try_placement(Placement::Fifo)?;
        let service = Duration(DISPATCHED_PERIOD.0 * self.share.0 / Load::WHOLE.0);
        let task =
            Task::new(DISPATCHED_PERIOD, service, Window { lose: 0, of: 1 })?.work_conserving();
        for (n, &thread) in self.threads.iter().enumerate() {
            let processor = self.processors[n % self.processors.len()];
            let dispatcher = match self.dispatchers.remove(&processor) {
                Some(dispatcher) => dispatcher,
                None => Dispatcher::new(processor, Config::default())?,
            };
            let admitted = dispatcher.admit(&task, MemberRule::Threads(vec![thread]), false);
            self.dispatchers.insert(processor, dispatcher);
            if admitted.is_err() {
                return Err(ReservationError::Promised { processor, share: self.share });
            }
        }
        Ok(())
    }
}
