//! Tasks in the kernel: the same decisions as `selvedge-cpu`, and real programs under `sched_ext`.
//! They need a kernel that has it, and root: `tools/kernel.sh test` boots one and runs them.

#![allow(clippy::disallowed_methods, reason = "tests read files and the clock")]

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant as Wall};

use selvedge_cpu::{Config, Processor, Runs, Selected, Task, TaskId};
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
