//! Processor time in the kernel: the `sched_ext` scheduler, loaded, given its tasks, and queried for their
//! counts.
//!
//! Admission is done by `selvedge_data_cpu::Processor`, one for each processor, kept here; decisions are made
//! in the kernel by its counterpart in C. The scheduler lives as long as this value: when its process ends,
//! for whatever reason, the kernel returns to its own scheduler.

#[cfg(feature = "replays")]
#[path = "../tests/tasks/replay.rs"]
mod replay;

use std::io;

use libbpf_rs::{Link, MapCore, MapFlags, Object, OpenMapMut, ProgramInput};
use selvedge_data_cpu::{Config, Counts, Processor, Promise, Refused, Task, TaskId};
use selvedge_os::clock::Clock;
use selvedge_os_bpf::io_error;
use selvedge_units::{Duration, Instant};
use thiserror::Error;

use crate::error::LoadError;
use crate::object::{fix, load_with, map_mut, refused};

#[cfg(feature = "replays")]
pub use replay::{KernelDecision, Step};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/scx_dwcs.bpf.o"));

/// The most tasks of a processor, its servers included.
const TASKS_MAX: u32 = 256;
const PROCESSORS_MAX: usize = 64;
/// The most waiting events of a processor's tasks.
const EVENTS_MAX: usize = 16;
/// Products of two times must fit into 64 bits there.
const PERIOD_MAX: Duration = Duration(u32::MAX as u64);
/// `struct task`, and the fields before the first one in `struct processor`.
const TASK: usize = 112;
const TASKS: usize = 96 + 16 * EVENTS_MAX;
/// How often to search for processes that a task started while it was moved.
const POLLS_MAX: usize = 8;
/// How long a previous scheduler of ours may take to go.
const GOING_MAX: Duration = Duration::from_secs(3);
/// The scheduler's name in `/sys/kernel/sched_ext/root/ops`.
const OPS: &str = "selvedge_dwcs";

/// An error with tasks in the kernel.
#[derive(Debug, Error)]
pub enum TasksError {
    /// The kernel has no `sched_ext`.
    #[error(
        "this kernel has no sched_ext; Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT has it, as \
         Debian's 6.18"
    )]
    NoSchedExt,
    /// Another scheduler runs.
    #[error("sched_ext runs the scheduler \"{0}\" already; end its program first")]
    Taken(String),
    /// The program can't be loaded or attached.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is not enough processor time left.
    #[error(transparent)]
    Refused(Box<Refused>),
    /// A period that is too long for it.
    #[error("a period of {0} is too long for the kernel's scheduler; state at most {PERIOD_MAX}")]
    Period(Duration),
    /// There is no such processor.
    #[error("there is no processor {0} for tasks; there are {1}")]
    Processor(usize, usize),
    /// A processor's table is full.
    #[error("processor {0} has as many tasks as it can have; end one first")]
    Full(usize),
    /// A call of the kernel failed.
    #[error("{0}: {1}")]
    Call(&'static str, io::Error),
}

/// The scheduler in the kernel.
#[derive(Debug)]
pub struct TaskScheduler {
    object: Object,
    /// Attached, unless it is for replays.
    _link: Option<Link>,
    processors: Vec<Processor>,
}

impl TaskScheduler {
    /// Loads it and makes it the system's scheduler, for this number of processors.
    ///
    /// # Errors
    /// If the kernel has no `sched_ext`, runs another scheduler, or refuses.
    pub fn attach(processors: usize, config: Config) -> Result<Self, TasksError> {
        if !std::path::Path::new("/sys/kernel/sched_ext").exists() {
            return Err(TasksError::NoSchedExt);
        }
        // If a program with this scheduler has just ended or was killed, the kernel takes some time to remove
        // it; this waits for that.
        let clock = Clock::new();
        while let Ok(other) = std::fs::read_to_string("/sys/kernel/sched_ext/root/ops") {
            if other.trim() != OPS || clock.now() > Instant(GOING_MAX.0) {
                return Err(TasksError::Taken(other.trim().to_owned()));
            }
            clock.sleep_until(clock.now() + Duration::from_millis(10));
        }
        let mut scheduler = Self::load(processors, config, true)?;
        let mut ops = map_mut(&mut scheduler.object, OPS).ok_or_else(|| absent(OPS))?;
        let link = ops.attach_struct_ops().map_err(refused)?;
        scheduler._link = Some(link);
        Ok(scheduler)
    }

    /// Tries [`attach`](Self::attach) for real: for a moment it schedules all programs. Returns a description
    /// of the result.
    ///
    /// # Errors
    /// As `attach`.
    pub fn probe(processors: usize) -> Result<String, TasksError> {
        let state = || std::fs::read_to_string("/sys/kernel/sched_ext/state");
        let scheduler = Self::attach(processors, Config::default())?;
        let attached = state().map_err(|why| TasksError::Call("its state", why))?;
        drop(scheduler);
        Ok(format!("loaded, the kernel says \"{}\", and taken off again", attached.trim()))
    }

    fn load(processors: usize, config: Config, live: bool) -> Result<Self, TasksError> {
        let processors = processors.clamp(1, PROCESSORS_MAX);
        let each = |name: &str, map: &mut OpenMapMut<'_>| match name {
            name if name.ends_with(".rodata") => fix(map, &[processors as u32]),
            OPS if !live => map.set_autocreate(false).map_err(refused),
            _ => Ok(()),
        };
        let object = load_with("selvedge_tasks", PROGRAM, each, |ops| live || !ops)?;
        let config = Config { events_max: EVENTS_MAX, ..config };
        let all = (0..processors).map(|_| Processor::new(config)).collect();
        let mut scheduler = Self { object, _link: None, processors: all };
        for cpu in 0..processors {
            scheduler.write_servers(cpu, config.unit)?;
        }
        Ok(scheduler)
    }

    /// Admits a task to a processor; its processes follow by [`assign_process`](Self::assign_process).
    ///
    /// # Errors
    /// If it does not fit.
    pub fn admit(
        &mut self,
        cpu: usize,
        task: &Task,
        unit: Duration,
        by_events: bool,
    ) -> Result<(TaskId, Promise), TasksError> {
        if task.period() > PERIOD_MAX {
            return Err(TasksError::Period(task.period()));
        }
        let count = self.processors.len();
        let processor = self.processors.get_mut(cpu).ok_or(TasksError::Processor(cpu, count))?;
        let id = processor.admit(task).map_err(|refused| TasksError::Refused(Box::new(refused)))?;
        if id.0 >= TASKS_MAX {
            processor.remove(id);
            return Err(TasksError::Full(cpu));
        }
        let promise = processor.promise();
        self.write_task(cpu, 0, id, unit, by_events)?;
        self.write_servers(cpu, unit)?;
        Ok((id, promise))
    }

    /// The promised part of a processor, in hundredths of a per cent; all of it for one that does not exist.
    #[must_use]
    pub fn promised(&self, cpu: usize) -> u64 {
        self.processors.get(cpu).map_or(10_000, |processor| processor.load().basis_points())
    }

    /// Removes a task from its processor; its processes are ordinary ones from their next wake-up on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn remove(&mut self, cpu: usize, id: TaskId, unit: Duration) -> Result<(), TasksError> {
        self.write_task(cpu, 4, id, unit, false)?;
        let places = self.map("places")?;
        let place = place(cpu, id);
        for process in places.keys() {
            let theirs = places.lookup(&process, MapFlags::ANY).ok().flatten();
            if theirs.is_some_and(|theirs| theirs == place) {
                // Gone meanwhile, or removed: both are fine.
                let _ = places.delete(&process);
            }
        }
        self.processors[cpu].remove(id);
        self.write_servers(cpu, unit)
    }

    /// Moves a task to another processor, where it is served like a new one. `confine` must confine one of
    /// its processes, with all threads, to that processor. Returns its number there, and its counts here.
    ///
    /// # Errors
    /// If it does not fit there: then it stays.
    pub fn relocate(
        &mut self,
        (from, id): (usize, TaskId),
        to: usize,
        (unit, by_events): (Duration, bool),
        mut confine: impl FnMut(i32, usize),
    ) -> Result<(TaskId, Counts), TasksError> {
        let count = self.processors.len();
        let here = self.processors.get(from).ok_or(TasksError::Processor(from, count))?;
        let task = here.definition(id);
        let (new, _) = self.admit(to, &task, unit, by_events)?;
        let (old_place, new_place) = (place(from, id), place(to, new));
        // A process that is forked meanwhile inherits the old place, and is found in the next round.
        for _ in 0..POLLS_MAX {
            let places = self.map("places")?;
            let belongs = |process: &Vec<u8>| {
                let theirs = places.lookup(process, MapFlags::ANY).ok().flatten();
                theirs.is_some_and(|theirs| theirs == old_place)
            };
            let theirs: Vec<Vec<u8>> = places.keys().filter(belongs).collect();
            if theirs.is_empty() {
                break;
            }
            for process in theirs {
                let moved = places.update(&process, &new_place, MapFlags::EXIST);
                if moved.is_ok()
                    && let Some(pid) = crate::replay::number(&process, 0).map(i32::from_ne_bytes)
                {
                    confine(pid, to);
                }
            }
        }
        let counts = self.counts(from, id)?;
        self.remove(from, id, unit)?;
        Ok((new, counts))
    }

    /// Assigns a process, and all that it starts, to a task from its next wake-up on. It must be confined to
    /// the task's processor.
    ///
    /// # Errors
    /// If there are too many processes.
    pub fn assign_process(&self, cpu: usize, id: TaskId, process: i32) -> Result<(), TasksError> {
        let places = self.map("places")?;
        places
            .update(&process.to_ne_bytes(), &place(cpu, id), MapFlags::ANY)
            .map_err(|error| TasksError::Call("a process cannot be enlisted", io_error(error)))
    }

    /// The counts of a task so far.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn counts(&self, cpu: usize, id: TaskId) -> Result<Counts, TasksError> {
        let what = "the counts";
        let table = self
            .map("processors")?
            .lookup(&(cpu as u32).to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| TasksError::Call(what, io_error(error)))?
            .ok_or_else(|| absent(what))?;
        let at = |word: usize| {
            let from = TASKS + id.0 as usize * TASK + 48 + word * 8;
            let bytes = table.get(from..from + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        Ok(Counts {
            on_time: at(0),
            missed: at(1),
            violations: at(2),
            events: at(3),
            ran: Duration(at(4)),
            extra: Duration(at(5)),
        })
    }

    /// Writes the present servers, and the time left for an event of each task.
    fn write_servers(&mut self, cpu: usize, unit: Duration) -> Result<(), TasksError> {
        let (reserve, server) =
            (self.processors[cpu].reserve(), self.processors[cpu].task_server());
        if let Some(id) = reserve
            && self.counts(cpu, id)? == Counts::default()
        {
            self.write_task(cpu, 1, id, unit, false)?;
        }
        if let Some(id) = server {
            self.write_task(cpu, 2, id, unit, false)?;
        }
        for id in (0..TASKS_MAX).map(TaskId) {
            if Some(id) != reserve && Some(id) != server && self.processors[cpu].contains(id) {
                self.write_task(cpu, 3, id, unit, false)?;
            }
        }
        Ok(())
    }

    fn write_task(
        &self,
        cpu: usize,
        what: u32,
        id: TaskId,
        unit: Duration,
        by_events: bool,
    ) -> Result<(), TasksError> {
        let processor = &self.processors[cpu];
        let task = processor.definition(id);
        let rest = |service| processor.server_period(service).map_or(0, |period| period.0);
        let mut context = Vec::with_capacity(64);
        for word in [what, cpu as u32, id.0, 0] {
            context.extend(word.to_ne_bytes());
        }
        let service = task.service();
        for time in [task.period().0, service.0, rest(service), unit.0.max(1), rest(unit)] {
            context.extend(time.to_ne_bytes());
        }
        context.extend(task.window().lose.to_ne_bytes());
        context.extend(task.window().of.to_ne_bytes());
        context.extend([u8::from(task.is_work_conserving()), u8::from(by_events), 0, 0]);
        self.call("put", &mut context).map(|_| ())
    }

    fn call(&self, name: &'static str, context: &mut [u8]) -> Result<i32, TasksError> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| absent(name))?;
        let input = ProgramInput { context_in: Some(context), ..ProgramInput::default() };
        let output =
            program.test_run(input).map_err(|error| TasksError::Call(name, io_error(error)))?;
        Ok(output.return_value as i32)
    }

    fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, TasksError> {
        crate::object::map(&self.object, name).ok_or_else(|| absent(name))
    }
}

fn absent(what: &'static str) -> TasksError {
    TasksError::Call(what, io::ErrorKind::NotFound.into())
}

/// A value of the map `places`: the processor of a task, and its number there.
fn place(cpu: usize, id: TaskId) -> Vec<u8> {
    [(cpu as u32).to_ne_bytes(), id.0.to_ne_bytes()].concat()
}
