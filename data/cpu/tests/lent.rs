//! A task that another processor serves for a while: it competes here no more, its periods go on.

use selvedge_cpu::{Config, Processor, Runs, Task, TaskId};
use selvedge_stream::Window;
use selvedge_units::{Instant, Span};

const ALONE: Config =
    Config { unit: Span(1), best_effort: None, task_server: false, events_most: 8 };

/// Two tasks of 4 in 10 slots, both awake; the first goes first.
fn both() -> (Processor, TaskId, TaskId) {
    let mut cpu = Processor::new(ALONE);
    let task = Task::new(Span(10), Span(4), Window::new(0, 1).unwrap()).unwrap();
    let ids = [(); 2].map(|()| cpu.admit(&task).unwrap());
    ids.iter().for_each(|&id| cpu.wake(id, Instant(0)));
    (cpu, ids[0], ids[1])
}

#[test]
fn who_is_lent_leaves_the_processor_to_the_others() {
    let (mut cpu, first, second) = both();
    assert_eq!(cpu.decide(Instant(0)).runs, Runs::Task(first));
    cpu.lend(first);
    assert_eq!(cpu.decide(Instant(0)).runs, Runs::Task(second));
    cpu.ran(Span(4));
    assert_eq!(cpu.decide(Instant(4)).runs, Runs::Idle);
    // It had its service time there: on time, and owed nothing before its next period.
    cpu.ran_elsewhere(first, Span(4), Instant(4));
    cpu.take_back(first);
    assert_eq!(cpu.counts(first).on_time, 1);
    assert_eq!(cpu.decide(Instant(5)).runs, Runs::Idle);
    assert_eq!(cpu.decide(Instant(10)).runs, Runs::Task(first));
}

#[test]
fn what_it_had_elsewhere_pays_for_all_periods_that_have_begun() {
    let (mut cpu, first, _) = both();
    cpu.lend(first);
    // 25 slots there without a break; periods began at 0, 10 and 20.
    cpu.ran_elsewhere(first, Span(25), Instant(25));
    let counts = cpu.counts(first);
    assert_eq!((counts.on_time, counts.missed), (3, 0));
    assert_eq!((counts.ran, counts.extra), (Span(25), Span(13)));
}

#[test]
fn who_comes_back_unserved_has_the_deadline_that_he_had() {
    let (mut cpu, first, second) = both();
    cpu.lend(first);
    assert_eq!(cpu.decide(Instant(3)).runs, Runs::Task(second));
    cpu.take_back(first);
    assert_eq!(cpu.deadline(first), Instant(10));
    assert_eq!(cpu.decide(Instant(3)).runs, Runs::Task(first));
    // Without service by then, it is missed, lent or not.
    cpu.lend(first);
    cpu.decide(Instant(12));
    assert_eq!(cpu.counts(first).missed, 0, "nobody knows yet what it had");
    cpu.take_back(first);
    cpu.decide(Instant(12));
    assert_eq!(cpu.counts(first).missed, 1);
}

#[test]
fn who_sleeps_elsewhere_wakes_here() {
    let (mut cpu, first, second) = both();
    cpu.lend(first);
    cpu.ran_elsewhere(first, Span(1), Instant(1));
    cpu.sleep(first, Instant(1));
    cpu.sleep(second, Instant(1));
    assert_eq!(cpu.decide(Instant(1)).runs, Runs::Idle);
    cpu.wake(first, Instant(2));
    assert_eq!(cpu.decide(Instant(2)).runs, Runs::Task(first));
    // Who is asleep is not lent.
    cpu.lend(second);
    cpu.wake(second, Instant(2));
    cpu.ran(Span(3));
    assert_eq!(cpu.decide(Instant(5)).runs, Runs::Task(second));
}
