//! What a decision about tasks costs in the kernel, by how many tasks there are: for
//! `tools/kernel.sh run --count`, where a nanosecond is an instruction.

use std::process::ExitCode;

use selvedge_data_cpu::{Config, Task};
use selvedge_data_stream::Window;
use selvedge_os::clock::Clock;
use selvedge_place_kernel::{Step, TaskScheduler, TasksError};
use selvedge_units::{Duration, Instant};

const DECISIONS: u64 = 400;

/// Nanoseconds of a decision with so many tasks that all want to run: the median, and the mean. Each is
/// taken beside a call that decides nothing. The mean has in it what the kernel does on the same
/// processor meanwhile: after the first program is loaded, that is many times a decision.
fn cost(tasks: u64) -> Result<(u64, i64), TasksError> {
    let config =
        Config { unit: Duration(1), best_effort: None, task_server: false, events_max: 16 };
    let mut scheduler = TaskScheduler::replaying(config)?;
    for n in 0..tasks {
        let window = Window { lose: 1, of: 2 + (n % 7) as u16 };
        let task = Task::new(Duration(2000 + n), Duration(4), window);
        let (id, _) = scheduler.admit(0, &task.expect("4 of 2000"), Duration(1), false)?;
        scheduler.step(Instant(0), Step::Wake(id))?;
    }
    let clock = Clock::new();
    let (mut costs, mut sum) = (Vec::new(), 0);
    for t in 0..DECISIONS {
        let began = clock.now();
        scheduler.step(Instant(t), Step::Slot)?;
        let decided = clock.now();
        scheduler.set_best_effort(false)?;
        let called = clock.now().since(decided).0;
        costs.push(decided.since(began).0.saturating_sub(called));
        sum += decided.since(began).0.cast_signed() - called.cast_signed();
    }
    costs.sort_unstable();
    Ok((costs[costs.len() / 2], sum / DECISIONS.cast_signed()))
}

fn main() -> ExitCode {
    println!("tasks  a decision  the mean");
    for tasks in [1, 2, 4, 8, 16, 32, 64, 128, 250] {
        match cost(tasks) {
            Ok((median, mean)) => println!("{tasks:>5}  {median:>10}  {mean:>8}"),
            Err(why) => {
                eprintln!("{tasks} tasks: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
