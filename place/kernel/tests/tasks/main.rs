//! Tasks in the kernel: the same decisions as `selvedge-data-cpu`, and real programs under `sched_ext`.
//! They need a kernel that has it, and root: `tools/kernel.sh test` boots one and runs them.

#![allow(clippy::disallowed_methods, reason = "tests read files and the clock")]

mod players;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration as StdDuration;

use selvedge_data_cpu::{Config, Processor, Runs, Selected, Task, TaskId};
use selvedge_data_stream::Window;
use selvedge_place_cpu::class::{self, ClockTarget};
use selvedge_place_kernel::{KernelDecision, Step, TaskScheduler};
use selvedge_tests_wait::{holds_within, until};
use selvedge_units::{Duration, Instant};

const STATE: &str = "/sys/kernel/sched_ext/state";

/// Pseudo-random numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn task(period: u64, service: u64, window: (u16, u16), ahead: bool) -> Task {
    let window = Window::new(window.0, window.1).unwrap();
    let task = Task::new(Duration(period), Duration(service), window).unwrap();
    if ahead { task.work_conserving() } else { task }
}

fn expected(decision: &selvedge_data_cpu::Decision) -> KernelDecision {
    KernelDecision {
        runs: match decision.runs {
            Runs::Task(id) => id.0,
            Runs::BestEffort => u32::MAX - 1,
            Runs::Idle => u32::MAX,
        },
        selected: match decision.selected {
            Selected::Task(_) => 0,
            Selected::Served(_) => 1,
            Selected::TaskServer => 2,
            Selected::Reserve => 3,
            Selected::BestEffort => 4,
            Selected::Idle => 5,
        },
        rule: decision.rule.map_or(0, |rule| rule.number().into()),
        until: decision.until,
    }
}

/// Random sets of tasks that sleep, wake and get events at random: every decision and every count.
#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn decisions_are_those_of_the_software() {
    let (mut rules, mut missed) = ([0_u64; 6], 0);
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let reserve = (seed % 2 == 0).then(|| task(20, 1, (0, 1), false));
        let config = Config {
            unit: Duration(1),
            best_effort: reserve,
            task_server: seed % 3 == 0,
            events_max: 16,
        };
        let mut software = Processor::new(config);
        let mut kernel = TaskScheduler::replaying(config).unwrap();
        let mut ids: Vec<TaskId> = Vec::new();
        for _ in 0..1 + numbers.below(10) {
            let period = 1 + numbers.below(24);
            let service = 1 + numbers.below(period.div_ceil(3));
            let of = numbers.below(9) as u16;
            let lose = numbers.below(u64::from(of) + 1) as u16;
            let task = task(period, service, (lose, of), numbers.below(2) == 0);
            let admitted = software.admit(&task).ok();
            let there = kernel.admit(0, &task, Duration(1), false).ok().map(|(id, _)| id);
            assert_eq!(admitted, there, "seed {seed}");
            ids.extend(admitted);
        }
        software.set_best_effort(true);
        kernel.set_best_effort(true).unwrap();
        for t in 0..300 {
            let now = Instant(t);
            if !ids.is_empty() && (t < ids.len() as u64 || numbers.below(5) < 2) {
                let place = if t < ids.len() as u64 { t } else { numbers.below(ids.len() as u64) };
                let id = ids[place as usize];
                let what = if t < ids.len() as u64 { 1 } else { numbers.below(4) };
                let step = match what {
                    0 => Step::Sleep(id),
                    1 => Step::Wake(id),
                    _ => Step::Raise(id),
                };
                match step {
                    Step::Sleep(id) => software.sleep(id, now),
                    Step::Wake(id) => software.wake(id, now),
                    _ => drop(software.raise(id, now)),
                }
                kernel.step(now, step).unwrap();
            }
            let decision = software.decide(now);
            let answer = kernel.step(now, Step::Slot).unwrap().unwrap();
            assert_eq!(answer, expected(&decision), "seed {seed}, slot {t}: {decision:?}");
            software.charge_chosen(Duration(1));
            rules[answer.rule as usize] += 1;
        }
        for &id in &ids {
            let counts = software.counts(id);
            assert_eq!(kernel.counts(0, id).unwrap(), counts, "seed {seed}, {id:?}");
            missed += counts.missed;
        }
    }
    assert!(rules.iter().all(|&times| times > 0) && missed > 0, "{rules:?}, {missed}");
    println!("60 sets, 18000 decisions; by rule {rules:?}; {missed} misses");
}

fn state() -> String {
    std::fs::read_to_string(STATE).unwrap_or_default().trim().to_owned()
}

/// A program that is killed with this value.
struct Running(Child);

impl Running {
    fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }

    fn pid(&self) -> i32 {
        self.0.id().cast_signed()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An ordinary program that never sleeps, on one processor.
fn hog(cpu: usize) -> Running {
    let hog = Running::start("dash", &["-c", "while :; do :; done"]);
    class::confine(hog.pid(), cpu).unwrap();
    hog
}

fn used(pid: i32) -> Duration {
    class::time_of(ClockTarget::Process(pid)).unwrap_or(Duration::ZERO)
}

fn config() -> Config {
    Config { task_server: true, ..Config::default() }
}

const UNIT: Duration = Duration::from_millis(1);

fn millis(period: u64, service: u64, lose: u16) -> Task {
    task(period * 1_000_000, service * 1_000_000, (lose, 5), false)
}

#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn it_comes_and_goes_and_nothing_is_left_of_it() {
    let processors = class::processors().len();
    let scheduler = TaskScheduler::attach(processors, config()).unwrap();
    assert_eq!(state(), "enabled");
    let second = TaskScheduler::attach(processors, config()).unwrap_err();
    assert!(second.to_string().contains("\"selvedge_dwcs\" already"), "{second}");
    drop(scheduler);
    until("it is gone", || state() == "disabled");
    let error = TaskScheduler::attach(processors, config()).unwrap();
    drop(error);
    until("it is gone again", || state() == "disabled");
}

/// Not a test of its own: the loader that the next test kills.
#[test]
#[ignore = "run by another test"]
fn a_loader_to_be_killed() {
    if std::env::var_os("SELVEDGE_LOADER").is_some() {
        let _scheduler = TaskScheduler::attach(class::processors().len(), config()).unwrap();
        let mut text = String::new();
        let _ = std::io::stdin().read_line(&mut text);
    }
}

#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn when_the_loader_is_killed_the_kernel_goes_back_to_its_own() {
    let ours = std::env::current_exe().unwrap();
    let mut loader = Command::new(ours);
    loader.args(["--ignored", "--exact", "a_loader_to_be_killed"]).env("SELVEDGE_LOADER", "1");
    loader.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut loader = loader.spawn().unwrap();
    until("it is attached", || state() == "enabled");
    loader.kill().unwrap();
    loader.wait().unwrap();
    until("it is gone", || state() == "disabled");
    // Programs keep running.
    let child = Command::new("dash").args(["-c", "exit 7"]).status().unwrap();
    assert_eq!(child.code(), Some(7));
}

/// Threads that wait in their task's queue when the task is removed are not forgotten there.
#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn what_waits_when_its_task_goes_runs_on() {
    let cpu = class::processors().pop().unwrap();
    let mut scheduler = TaskScheduler::attach(cpu + 1, config()).unwrap();
    let hogs: Vec<Running> = (0..3).map(|_| hog(cpu)).collect();
    let mut ids = Vec::new();
    for hog in &hogs {
        let (id, _) = scheduler.admit(cpu, &millis(40, 4, 0), UNIT, false).unwrap();
        scheduler.assign_process(cpu, id, hog.pid()).unwrap();
        ids.push(id);
    }
    // All are served, so each waits in its own queue most of the time.
    let served = |scheduler: &TaskScheduler, id| scheduler.counts(cpu, id).unwrap().on_time > 2;
    until("all are served", || ids.iter().all(|&id| served(&scheduler, id)));
    for &id in &ids {
        scheduler.remove(cpu, id, UNIT).unwrap();
    }
    let before: Vec<Duration> = hogs.iter().map(|hog| used(hog.pid())).collect();
    let more = |(hog, &before): (&Running, &Duration)| {
        used(hog.pid()) > before + Duration::from_millis(20)
    };
    until("all run on", || hogs.iter().zip(&before).all(more));
    assert_eq!(state(), "enabled");
}

/// A task of two processes that never sleep moves to another processor, and is served there.
#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn a_task_moves_to_another_processor() {
    let processors = class::processors();
    let &[first, .., last] = processors.as_slice() else {
        println!("SKIPPED: one processor only");
        return;
    };
    let mut scheduler = TaskScheduler::attach(last + 1, config()).unwrap();
    let busy = [hog(last), hog(last)];
    let _other = hog(last);
    let task = millis(40, 4, 0);
    let (id, _) = scheduler.admit(last, &task, UNIT, false).unwrap();
    for one in &busy {
        scheduler.assign_process(last, id, one.pid()).unwrap();
    }
    until("it is served", || scheduler.counts(last, id).unwrap().on_time > 2);
    // Too much there: it stays.
    let (full, _) = scheduler.admit(first, &millis(40, 37, 0), UNIT, false).unwrap();
    let how = (UNIT, false);
    let error = scheduler.relocate((last, id), first, how, class::confine_process).unwrap_err();
    assert!(error.to_string().contains("too much"), "{error}");
    scheduler.remove(first, full, UNIT).unwrap();
    let moved = scheduler.relocate((last, id), first, how, class::confine_process).unwrap();
    let (new, before) = moved;
    assert!(before.on_time > 2, "{before:?}");
    until("it is served there", || scheduler.counts(first, new).unwrap().on_time > 2);
    assert_eq!(state(), "enabled");
    let before: Vec<Duration> = busy.iter().map(|one| used(one.pid())).collect();
    let more =
        |(one, &before): (&Running, &Duration)| used(one.pid()) > before + Duration(4_000_000);
    until("both have their turns", || busy.iter().zip(&before).all(more));
}

/// `selvedge cpu run` under the kernel's scheduler, with a player of `frames` frames.
fn command(frames: u32) -> Running {
    let frames = frames.to_string();
    let play = ["selvedge", "cpu", "play", "--work", "2ms", "--frames", &frames];
    let run = [
        "cpu",
        "run",
        "--placement",
        "scx",
        "--json",
        "--period",
        "40ms",
        "--service",
        "5ms",
        "--",
    ];
    Running::start("selvedge", &[&run[..], &play].concat())
}

/// The number of players.
fn players() -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|one| std::fs::read(one.path().join("cmdline")).ok());
    lines.filter(|line| line.starts_with(b"selvedge\0cpu\0play")).count()
}

/// Its output at its end, which it must reach.
fn said(mut command: Running) -> serde_json::Value {
    until("the command ends", || command.0.try_wait().unwrap().is_some());
    let mut text = String::new();
    command.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(command.0.wait().unwrap().success(), "{text}");
    serde_json::from_str(text.lines().last().expect("a line")).expect(&text)
}

/// Commands that begin at once, without a daemon, find one daemon and one scheduler. If the daemon dies, all
/// move to the next one; a command that begins while it ends is served.
#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn commands_that_come_at_once_share_one_scheduler() {
    let socket = std::path::Path::new("/tmp/selvedge-0/cpu.sock");
    let daemon = || {
        let peer = selvedge_os::control::Connection::open(socket).ok()?.peer().ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    };
    let several: Vec<Running> = (0..4).map(|_| command(60)).collect();
    until("the scheduler is there", || state() == "enabled");
    let first = daemon().expect("who loaded it listens");
    for one in several {
        let said = said(one);
        assert_eq!((&said["placement"], &said["dispatcher_lost"]), (&"scx".into(), &0.into()));
        assert!(said["ran_ns"].as_u64() > Some(20_000_000), "{said}");
    }
    assert!(daemon().is_none_or(|daemon| daemon == first), "one daemon for all");
    // Killed while two run: both find the next one, and its scheduler.
    let several = [command(200), command(200)];
    let daemon = || {
        let mut found = None;
        until("a daemon is there", || {
            found = daemon();
            found.is_some() && state() == "enabled"
        });
        found.unwrap()
    };
    // Programs are started once they are admitted.
    until("both play", || players() == 2);
    let second = daemon();
    class::signal(second, 9).unwrap();
    until("another is there", || daemon() != second);
    let lost = several.map(|one| said(one)["dispatcher_lost"].as_u64().unwrap());
    assert_eq!(lost, [1, 1]);
    // It ends 2 s after the last client: some clients begin just before that, some just after.
    for pause in [1900, 1990, 2050, 2150] {
        assert_eq!(said(command(2))["placement"], "scx");
        holds_within(StdDuration::from_millis(pause), || !socket.exists());
    }
    assert_eq!(said(command(2))["placement"], "scx");
    until("nothing is left of it", || state() == "disabled" && !socket.exists());
}
