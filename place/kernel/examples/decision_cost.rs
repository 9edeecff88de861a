//! What a decision about tasks costs in the kernel, by how many tasks there are: for
//! `tools/kernel.sh run --count`, where a nanosecond is an instruction.

use std::process::ExitCode;

use selvedge_cpu::{Config, Task};
use selvedge_host::clock::Clock;
use selvedge_kernel::{Step, TaskScheduler, TasksError};
use selvedge_stream::Window;
use selvedge_units::{Instant, Span};

const DECISIONS: u64 = 400;

/// Nanoseconds of a decision with so many tasks that all want to run.
fn cost(tasks: u64) -> Result<f64, TasksError> {
    let config = Config { unit: Span(1), best_effort: None, task_server: false, events_most: 16 };
    let mut scheduler = TaskScheduler::replaying(config)?;
    for n in 0..tasks {
        let window = Window { lose: 1, of: 2 + (n % 7) as u16 };
        let task = Task::new(Span(2000 + n), Span(4), window);
        let (id, _) = scheduler.admit(0, &task.expect("4 of 2000"), Span(1), false)?;
        scheduler.step(Instant(0), Step::Wake(id))?;
    }
    let clock = Clock::new();
    let began = clock.now();
    for t in 0..DECISIONS {
        scheduler.step(Instant(t), Step::Slot)?;
    }
    let decided = clock.now();
    // The same call that decides nothing.
    for _ in 0..DECISIONS {
        scheduler.set_best_effort(false)?;
    }
    let called = clock.now().since(decided).0 as f64;
    Ok((decided.since(began).0 as f64 - called) / DECISIONS as f64)
}

fn main() -> ExitCode {
    println!("tasks  a decision");
    for tasks in [1, 2, 4, 8, 16, 32, 64, 128, 250] {
        match cost(tasks) {
            Ok(cost) => println!("{tasks:>5}  {cost:>10.0}"),
            Err(why) => {
                eprintln!("{tasks} tasks: {why}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
