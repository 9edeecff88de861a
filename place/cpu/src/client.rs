//! Runs a program with processor time promised to it, and reports the time that it got.
//!
//! The program is a child of this process. Its own children, and theirs, belong to the task, since orphans
//! among them return to this process. Termination signals are forwarded to the program. If the daemon is
//! lost, the program's threads are made ordinary and the client requests the task again.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use selvedge_data_cpu::Task;
use selvedge_os::clock::Clock;
use selvedge_os::control::{Connection, ControlError, FOREVER};
use selvedge_units::{Duration, Instant};

use crate::class;
use crate::daemon::{self, DaemonError};
use crate::dispatch::TICK;
use crate::members::{MemberRule, Members};
use crate::meter::Meter;
use crate::protocol::{Outcome, Placement, Request, Response, TaskRequest};

/// How long a daemon may take to begin, on a busy machine, and after how long the client tries to start
/// another: the first may have found a daemon that was just ending.
const DAEMON_MAX: Duration = Duration::from_secs(60);
const DAEMON_AGAIN: Duration = Duration::from_millis(500);
/// How long it may take to admit a task: it may have to load the kernel's scheduler.
const ADMIT_MAX: Duration = Duration::from_secs(60);
/// How long it may take to reply at the end.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// The program and its arguments; not empty.
    pub command: Vec<std::ffi::OsString>,
    /// The processor time to promise.
    pub wanted: TaskRequest,
    /// The placement.
    pub placement: Placement,
    /// How to start a daemon: a program and its arguments.
    pub daemon: Vec<std::ffi::OsString>,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// How the program ended.
    pub status: ExitStatus,
    /// The processor time that it got.
    pub outcome: Outcome,
    /// Its processor, if there was one.
    pub cpu: Option<usize>,
    /// Whether every period was promised.
    pub every_period: bool,
    /// How often the daemon was lost.
    pub lost: u64,
}

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The numbers do not form a valid task.
    #[error("{0}")]
    Task(#[from] selvedge_data_cpu::TaskError),
    /// There is no such processor.
    #[error("there is no processor {cpu} for it: {error}")]
    Confine {
        /// The requested processor.
        cpu: usize,
        /// The kernel's error.
        error: io::Error,
    },
    /// The placement does not work here.
    #[error("{}: {why}", .placement.name())]
    Lacking {
        /// The placement.
        placement: Placement,
        /// The missing part, and how to get it.
        why: String,
    },
    /// The daemon can't be reached.
    #[error("the dispatcher can't be reached: {0}")]
    Daemon(#[from] DaemonError),
    /// The daemon refuses the task, or does not reply.
    #[error("the dispatcher: {0}")]
    Control(#[from] ControlError),
    /// An error of the system.
    #[error("{0}")]
    System(#[source] io::Error),
    /// The program can't be started.
    #[error("{}: {error}", .command.display())]
    Start {
        /// The program.
        command: std::ffi::OsString,
        /// The error.
        error: io::Error,
    },
}

/// An event while a program runs.
enum RunEvent {
    Ended(io::Result<ExitStatus>),
    Response(Response),
    /// The daemon is gone; the number of its connection.
    Lost(u64),
}

/// A connection to the daemon, over which the task was admitted.
struct DaemonConnection {
    connection: Arc<Connection>,
    cpu: usize,
    every_period: bool,
}

/// Runs a program to its end.
///
/// # Errors
/// [`ClientError`]; then the program was not started.
pub fn run(run: &Run) -> Result<RunOutcome, ClientError> {
    let task = run.wanted.task()?;
    crate::rights::try_placement(run.placement)
        .map_err(|why| ClientError::Lacking { placement: run.placement, why: why.to_string() })?;
    class::adopt_orphans();
    match run.placement {
        Placement::Fifo | Placement::Scx => dispatched(run),
        Placement::Deadline | Placement::None => counted(run, &task),
    }
}

/// Starts the program; reports its end, and forwards signals until then.
fn start(run: &Run, reserve: Option<&Task>, sender: &Sender<RunEvent>) -> Result<(), ClientError> {
    let mut command = Command::new(&run.command[0]);
    command.args(&run.command[1..]);
    if let Some(task) = reserve {
        let (period, service) = (task.period(), task.service());
        class::set_class_at_start(&mut command, move || class::reserve(0, period, service));
    }
    let failed = |error| ClientError::Start { command: run.command[0].clone(), error };
    let asked = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let mut signals = signal_hook::iterator::Signals::new(asked).map_err(failed)?;
    let mut child = command.spawn().map_err(failed)?;
    let pid = child.id().cast_signed();
    let handle = signals.handle();
    std::thread::spawn(move || {
        for number in signals.forever() {
            let _ = class::signal(pid, number);
        }
    });
    let sender = sender.clone();
    std::thread::spawn(move || {
        let status = child.wait();
        handle.close();
        let _ = sender.send(RunEvent::Ended(status));
    });
    Ok(())
}

/// Runs a program under a dispatcher.
fn dispatched(run: &Run) -> Result<RunOutcome, ClientError> {
    let (sender, receiver) = channel();
    let mut attempt = 0;
    let first = attach(run, attempt, &sender)?;
    let mut ran = RunOutcome {
        status: ExitStatus::default(),
        outcome: Outcome::default(),
        cpu: Some(first.cpu),
        every_period: first.every_period,
        lost: 0,
    };
    let mut link = Some(first);
    start(run, None, &sender)?;
    let status = loop {
        match receiver.recv() {
            Ok(RunEvent::Ended(status)) => break status,
            Ok(RunEvent::Lost(number)) if number == attempt => {
                ran.lost += 1;
                let pid = std::process::id().cast_signed();
                Members::new(MemberRule::StartedBy(pid), None).release();
                tracing::warn!("the dispatcher is gone; asking for another");
                attempt += 1;
                link = attach(run, attempt, &sender)
                    .inspect_err(|error| tracing::warn!("running on without: {error}"))
                    .ok();
            }
            Ok(RunEvent::Lost(_) | RunEvent::Response(_)) => {}
            Err(_) => break Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    ran.status = status.map_err(ClientError::System)?;
    if let Some(link) = link
        && let Some(outcome) = end(&link, &receiver)
    {
        ran.outcome = ran.outcome.plus(outcome);
    }
    Ok(ran)
}

/// Reports the end to the daemon, and receives the time that the task got.
fn end(link: &DaemonConnection, receiver: &Receiver<RunEvent>) -> Option<Outcome> {
    link.connection.send(&Request::End {}, &[], &[]).ok()?;
    loop {
        match receiver.recv_timeout(ANSWER_MAX.into()).ok()? {
            RunEvent::Response(Response::Ended(outcome)) => return Some(outcome),
            RunEvent::Lost(_) => return None,
            _ => {}
        }
    }
}

/// Connects to the daemon, starts it if need be, and requests the task.
fn attach(
    run: &Run,
    number: u64,
    sender: &Sender<RunEvent>,
) -> Result<DaemonConnection, ClientError> {
    let path = daemon::socket()?;
    let clock = Clock::new();
    let mut start_at = Instant::ZERO;
    let mut started: Option<Child> = None;
    let (connection, answer) = loop {
        // A daemon that is just ending accepts a connection and drops it: then the next one is tried.
        let failed = match Connection::open(&path) {
            Ok(connection) => {
                let request = Request::Admit(run.wanted);
                match connection.ask::<_, Response>(&request, &[], &[], ADMIT_MAX) {
                    Err(error @ ControlError::Closed) => ClientError::from(error),
                    answered => break (connection, answered?.body),
                }
            }
            Err(error) => DaemonError::Io(path.clone(), error).into(),
        };
        if clock.now().since(Instant::ZERO) > DAEMON_MAX {
            return Err(failed);
        }
        // One at a time: on a slow machine many that begin at once would delay each other.
        let begins = started.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !begins && clock.now() >= start_at {
            start_at = clock.now() + DAEMON_AGAIN;
            let mut daemon = Command::new(&run.daemon[0]);
            daemon.args(&run.daemon[1..]).process_group(0);
            daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let spawned = daemon.spawn();
            let child = spawned
                .map_err(|error| ClientError::Start { command: run.daemon[0].clone(), error })?;
            started = Some(child);
        }
        clock.sleep_until(clock.now() + Duration::from_millis(20));
    };
    if let Some(mut child) = started {
        // The daemon ends by itself; if this process lives longer, it waits for it here.
        std::thread::spawn(move || child.wait());
    }
    let (cpu, every_period) = match answer {
        Response::Admitted { cpu, every_period } => (cpu, every_period),
        Response::Lacking { why } => {
            return Err(ClientError::Lacking { placement: run.placement, why });
        }
        Response::Ended(_) => {
            return Err(ControlError::Malformed("an end before the beginning".to_owned()).into());
        }
    };
    let connection = Arc::new(connection);
    let (sender, hears) = (sender.clone(), Arc::clone(&connection));
    std::thread::spawn(move || {
        while let Ok(answer) = hears.wait(FOREVER) {
            let _ = sender.send(RunEvent::Response(answer.body));
        }
        let _ = sender.send(RunEvent::Lost(number));
    });
    Ok(DaemonConnection { connection, cpu, every_period })
}

/// Runs a program under the kernel's reservations, or under nothing: the periods are only counted.
fn counted(run: &Run, task: &Task) -> Result<RunOutcome, ClientError> {
    let (sender, receiver) = channel();
    let reserve = (run.placement == Placement::Deadline).then_some(task);
    if let (Some(cpu), Placement::None) = (run.wanted.cpu, run.placement) {
        class::confine(0, cpu).map_err(|error| ClientError::Confine { cpu, error })?;
    }
    start(run, reserve, &sender)?;
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, task) = (Arc::clone(&stop), *task);
    let pid = std::process::id().cast_signed();
    let counting = std::thread::spawn(move || {
        let clock = Clock::new();
        let mut meter =
            Meter::new(&task, Members::new(MemberRule::StartedBy(pid), None), clock.now());
        while !stopped.load(Ordering::Relaxed) {
            meter.sample(clock.now());
            clock.sleep_until(clock.now() + TICK);
        }
        meter.counts()
    });
    let status = loop {
        match receiver.recv() {
            Ok(RunEvent::Ended(status)) => break status,
            Ok(_) => {}
            Err(_) => break Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    stop.store(true, Ordering::Relaxed);
    let counts = counting.join().unwrap_or_default();
    Ok(RunOutcome {
        status: status.map_err(ClientError::System)?,
        outcome: Outcome::new(&counts, None),
        cpu: run.wanted.cpu,
        every_period: reserve.is_some(),
        lost: 0,
    })
}
