//! Players beside programs that never sleep: on-time frames under the kernel's fair class, SCHED_FIFO and
//! the scheduler in the kernel.

use std::io::{Read, Write};
use std::time::Instant as StdInstant;

use selvedge_data_cpu::Task;
use selvedge_place_cpu::class;
use selvedge_place_kernel::TaskScheduler;
use selvedge_units::Duration;

use super::{Running, UNIT, config, hog, millis, state, task, until, used};

/// The mechanism that gives the players their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlayerClass {
    Fair,
    Fifo,
    SchedExt,
}

/// The result of a contest.
#[derive(Debug)]
struct Contest {
    /// Frames on time, of 50 each.
    on_time: Vec<u64>,
    /// The shares of the processor that ordinary programs and the greedy task had.
    ordinary: f64,
    greedy: f64,
    violations: u64,
    /// Decisions by each of the event-aware rules.
    rules: [u64; 5],
}

/// Players of 8 ms in 40 ms beside three ordinary programs that never sleep, and one in the players'
/// own class, all on one processor.
fn contest(way: PlayerClass, players: usize) -> Contest {
    let cpu = class::processors().pop().unwrap();
    let mut scheduler =
        (way == PlayerClass::SchedExt).then(|| TaskScheduler::attach(cpu + 1, config()).unwrap());
    let mut place = |running: &Running, task: &Task, by_events: bool| {
        class::confine(running.pid(), cpu).unwrap();
        if way == PlayerClass::Fifo {
            class::set(running.pid(), class::Class::Fifo(10)).unwrap();
        }
        scheduler.as_mut().map(|scheduler| {
            let (id, _) = scheduler.admit(cpu, task, UNIT, by_events).unwrap();
            scheduler.assign_process(cpu, id, running.pid()).unwrap();
            id
        })
    };
    let hogs: Vec<Running> = (0..3).map(|_| hog(cpu)).collect();
    let mut waiting = Vec::new();
    for _ in 0..players {
        // A shell that belongs to a task, and starts the player: all that it starts belongs to the task.
        let script = "read line; selvedge cpu play --period 40ms --work 8ms --frames 50 --json";
        let player = Running::start("dash", &["-c", script]);
        let task = task(40_000_000, 8_500_000, (1, 5), false);
        let id = place(&player, &task, true);
        waiting.push((id, player));
    }
    // It never sleeps, as a task: it gets its requested time, and no more. It comes last, since under
    // SCHED_FIFO no thread runs after it; there it is killed after the time that all need.
    let greedy = Running::start("dash", &["-c", "read line; while :; do :; done"]);
    let limited = place(&greedy, &task(40_000_000, 2_000_000, (0, 5), false), false);
    if let Some(scheduler) = &mut scheduler {
        let over = scheduler.admit(cpu, &millis(40, 40, 0), UNIT, false).unwrap_err();
        assert!(over.to_string().contains("too much"), "{over}");
    }
    let all = || hogs.iter().map(|hog| used(hog.pid()).0).sum::<u64>();
    let (before, before_greedy, start) = (all(), used(greedy.pid()), StdInstant::now());
    let (begin, begun) = std::sync::mpsc::channel();
    let ended = std::thread::spawn(move || {
        let mut greedy = greedy;
        let mut say = greedy.0.stdin.take().unwrap();
        // Above everything that is measured, otherwise it could not kill it.
        class::set(0, class::Class::Fifo(60)).unwrap();
        begun.recv().unwrap();
        say.write_all(b"go\n").unwrap();
        let clock = selvedge_os::clock::Clock::new();
        clock.sleep_until(clock.now() + Duration::from_millis(50 * 40));
        let greedy_used = used(greedy.pid());
        drop(greedy);
        greedy_used
    });
    for (_, player) in &mut waiting {
        player.0.stdin.take().unwrap().write_all(b"go\n").unwrap();
    }
    begin.send(()).unwrap();
    let after_greedy = ended.join().unwrap();
    let took = Duration(start.elapsed().as_nanos() as u64).0 as f64;
    let ordinary = (all() - before) as f64 / took * 100.0;
    let mut violations = 0;
    let mut on_time = Vec::new();
    for (id, mut player) in waiting {
        let mut text = String::new();
        player.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        let report: serde_json::Value = serde_json::from_str(&text).expect(&text);
        on_time.push(report["on_time"].as_u64().unwrap());
        if let (Some(scheduler), Some(id)) = (&scheduler, id) {
            let counts = scheduler.counts(cpu, id).unwrap();
            violations += counts.violations;
            assert!(counts.ran > Duration::from_millis(300), "{counts:?}");
        }
    }
    if let (Some(scheduler), Some(id)) = (&scheduler, limited) {
        assert!(scheduler.counts(cpu, id).unwrap().on_time > 0);
        // The watchdog would have ended it.
        assert_eq!(state(), "enabled");
    }
    let rules = scheduler.as_ref().map_or([0; 5], |scheduler| scheduler.rules().unwrap());
    drop(scheduler);
    until("it is gone", || state() == "disabled");
    let greedy = (after_greedy - before_greedy).0 as f64 / took * 100.0;
    Contest { on_time, ordinary, greedy, violations, rules }
}

/// Players get their promised time; no program starves. In a machine whose time is counted in instructions
/// the figures are the same in every run, and are checked; elsewhere they are printed.
#[test]
#[ignore = "needs a kernel with sched_ext and root"]
fn players_play_and_nobody_starves() {
    let counted = std::env::var_os("SELVEDGE_COUNTED").is_some();
    println!("players, scheduler: frames on time of 50 each; ordinary programs, greedy one");
    let mut rules = [0; 5];
    let ours = (1..=4).map(|players| (PlayerClass::SchedExt, players));
    // The others show that it is needed.
    let others = [(PlayerClass::Fair, 4), (PlayerClass::Fifo, 4)];
    for (way, players) in others.into_iter().chain(ours) {
        let found = contest(way, players);
        let (ordinary, greedy) = (found.ordinary, found.greedy);
        println!(
            "{players} {way:?}: {:?}; {ordinary:.1} %, {greedy:.1} %; rules {:?}",
            found.on_time, found.rules
        );
        rules.iter_mut().zip(found.rules).for_each(|(all, more)| *all += more);
        if way != PlayerClass::SchedExt {
            assert!(!counted || found.on_time.iter().all(|&frames| frames < 10), "{found:?}");
            continue;
        }
        assert!(ordinary > 0.0, "somebody starves");
        if counted {
            assert!(found.on_time.iter().all(|&frames| frames >= 48), "{found:?}");
            assert_eq!(found.violations, 0, "{found:?}");
            assert!(ordinary >= 5.0 && greedy <= 10.0, "{found:?}");
        }
    }
    assert!(rules.iter().sum::<u64>() > 0, "events decide nothing: {rules:?}");
    assert!(!counted || rules[4] > 0, "the task server serves nobody: {rules:?}");
}
