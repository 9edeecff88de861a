//! Tasks in the kernel: the same decisions as `selvedge-cpu`, and real programs under `sched_ext`.
//! They need a kernel that has it, and root: `tools/kernel.sh test` boots one and runs them.

#![allow(clippy::disallowed_methods, reason = "tests read files and the clock")]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant as Wall};

use selvedge_cpu::{Config, Processor, Runs, Selected, Task, TaskId};
use selvedge_dispatch::class::{self, Whose};
use selvedge_kernel::{Answer, Step, TaskScheduler};
use selvedge_stream::Window;
use selvedge_units::{Instant, Span};

const STATE: &str = "/sys/kernel/sched_ext/state";

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn task(period: u64, service: u64, window: (u16, u16), ahead: bool) -> Task {
    let window = Window::new(window.0, window.1).unwrap();
    let task = Task::new(Span(period), Span(service), window).unwrap();
    if ahead { task.work_conserving() } else { task }
}

fn expected(decision: &selvedge_cpu::Decision) -> Answer {
    Answer {
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
            unit: Span(1),
            best_effort: reserve,
            task_server: seed % 3 == 0,
            events_most: 16,
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
            let there = kernel.admit(0, &task, Span(1), false).ok().map(|(id, _)| id);
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
            software.ran(Span(1));
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

/// For what takes no time of its own, in a machine that is simulated.
const SOON: Duration = Duration::from_secs(60);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Wall::now();
    while !holds() {
        assert!(start.elapsed() < SOON, "{what}");
        std::thread::yield_now();
    }
}

fn state() -> String {
    std::fs::read_to_string(STATE).unwrap_or_default().trim().to_owned()
}

/// A program that is ended with this value.
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

fn used(pid: i32) -> Span {
    class::time_of(Whose::Process(pid)).unwrap_or(Span::ZERO)
}

fn config() -> Config {
    Config { task_server: false, ..Config::default() }
}

const UNIT: Span = Span::from_millis(1);

fn millis(period: u64, service: u64, lose: u16) -> Task {
    task(period * 1_000_000, service * 1_000_000, (lose, 5), false)
}

#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn it_comes_and_goes_and_nothing_is_left_of_it() {
    let processors = class::processors().len();
    let scheduler = TaskScheduler::attach(processors, config()).unwrap();
    assert!(scheduler.is_attached());
    assert_eq!(state(), "enabled");
    let second = TaskScheduler::attach(processors, config()).unwrap_err();
    assert!(second.to_string().contains("\"selvedge_dwcs\" already"), "{second}");
    drop(scheduler);
    until("it is gone", || state() == "disabled");
    let error = TaskScheduler::attach(processors, config()).unwrap();
    drop(error);
    until("it is gone again", || state() == "disabled");
}

/// Not a test of its own: the loader that the next one kills.
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
    // Programs run on.
    let child = Command::new("dash").args(["-c", "exit 7"]).status().unwrap();
    assert_eq!(child.code(), Some(7));
}

/// Players beside programs that never sleep: they have what they are promised; and so have those.
#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn players_play_and_nobody_starves() {
    let cpu = class::processors().pop().unwrap();
    let mut scheduler = TaskScheduler::attach(cpu + 1, config()).unwrap();
    let hogs: Vec<Running> = (0..3).map(|_| hog(cpu)).collect();
    // One that never sleeps, as a task: it gets what it asks for, and no more.
    let greedy = hog(cpu);
    let (limited, _) = scheduler.admit(cpu, &millis(40, 4, 0), UNIT, false).unwrap();
    scheduler.enlist(cpu, limited, greedy.pid()).unwrap();
    let play = ["cpu", "play", "--period", "40ms", "--work", "4ms", "--frames", "50", "--json"];
    let mut players = Vec::new();
    for _ in 0..3 {
        let (id, _) = scheduler.admit(cpu, &millis(40, 8, 1), UNIT, true).unwrap();
        // A shell that is a task's, and starts the player: children belong to it.
        let script = format!("read line; exec selvedge {}", play.join(" "));
        let mut player = Running::start("dash", &["-c", &script]);
        class::confine(player.pid(), cpu).unwrap();
        scheduler.enlist(cpu, id, player.pid()).unwrap();
        players.push((id, player.0.stdin.take().unwrap(), player));
    }
    let over = scheduler.admit(cpu, &millis(40, 20, 0), UNIT, false).unwrap_err();
    assert!(over.to_string().contains("too much"), "{over}");
    let before: Vec<Span> = hogs.iter().map(|hog| used(hog.pid())).collect();
    let before_limited = scheduler.counts(cpu, limited).unwrap().ran;
    let start = Wall::now();
    let mut shares = Vec::new();
    for (id, mut go, mut player) in players {
        go.write_all(b"go\n").unwrap();
        drop(go);
        shares.push((id, player.0.stdout.take().unwrap(), player));
    }
    let shares: Vec<u64> = shares
        .into_iter()
        .map(|(id, mut out, _player)| {
            let mut text = String::new();
            out.read_to_string(&mut text).unwrap();
            let report: serde_json::Value = serde_json::from_str(&text).expect(&text);
            let counts = scheduler.counts(cpu, id).unwrap();
            println!("{} of 50 frames on time; {counts:?}", report["on_time"]);
            assert!(counts.on_time > 0 && counts.ran > Span::from_millis(40), "{counts:?}");
            report["on_time"].as_u64().unwrap()
        })
        .collect();
    let took = Span(start.elapsed().as_nanos() as u64);
    let after: Vec<Span> = hogs.iter().map(|hog| used(hog.pid())).collect();
    let gained: u64 = before.iter().zip(&after).map(|(a, b)| (*b - *a).0).sum();
    let counts = scheduler.counts(cpu, limited).unwrap();
    let limited_ran = counts.ran - before_limited;
    println!("the greedy task: {counts:?}");
    println!(
        "on time {shares:?}; ordinary programs had {:.1} % of the processor, the greedy task {:.1} %",
        gained as f64 / took.0 as f64 * 100.0,
        limited_ran.0 as f64 / took.0 as f64 * 100.0
    );
    assert!(after.iter().zip(&before).all(|(after, before)| after > before), "somebody starves");
    // The reserve is 5 of 100 ms; half of it, for a machine that is simulated.
    assert!(gained * 40 > took.0, "{gained} ns of {} ns", took.0);
    // The watchdog would have ended it.
    assert_eq!(state(), "enabled");
    drop(scheduler);
    until("it is gone", || state() == "disabled");
    assert!(shares.iter().sum::<u64>() > 0);
}
