//! The processor against the oracle, and its promises, on random tasks that sleep, wake and get events at
//! random.

mod oracle;

use std::cmp::Ordering;

use oracle::Machine;
use proptest::prelude::*;
use selvedge_data_cpu::{Config, Processor, Promise, Runs, Task, TaskId};
use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

const ALONE: Config =
    Config { unit: Duration(1), best_effort: None, task_server: false, events_max: 8 };

/// A task in slots: period, service, window, work-conserving.
type Spec = (u64, u64, (u16, u16), bool);

fn spec() -> impl Strategy<Value = Spec> {
    let window = (0..=8_u16).prop_flat_map(|of| (0..=of, Just(of)));
    (1..=24_u64, window, any::<bool>()).prop_flat_map(|(period, window, ahead)| {
        (Just(period), 1..=period.div_ceil(3), Just(window), Just(ahead))
    })
}

fn task(&(period, service, (lose, of), ahead): &Spec) -> Task {
    let window = Window::new(lose, of).unwrap();
    let task = Task::new(Duration(period), Duration(service), window).unwrap();
    if ahead { task.work_conserving() } else { task }
}

/// The events before each slot: the task, and whether it wakes, sleeps or gets an event.
type Steps = Vec<Option<(usize, u8)>>;

fn steps() -> impl Strategy<Value = Steps> {
    prop::collection::vec(prop::option::weighted(0.4, (0..64_usize, 0..4_u8)), 200)
}

/// A processor with the tasks that it admits, all awake.
fn admitted(config: Config, specs: &[Spec]) -> (Processor, Vec<(TaskId, Spec)>) {
    let mut cpu = Processor::new(config);
    let mut ids = Vec::new();
    for spec in specs {
        if let Ok(id) = cpu.admit(&task(spec)) {
            cpu.wake(id, Instant::ZERO);
            ids.push((id, *spec));
        }
    }
    (cpu, ids)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn decisions_are_the_oracles(specs in prop::collection::vec(spec(), 1..7), steps in steps()) {
        let (mut cpu, ids) = admitted(ALONE, &specs);
        let seconds = ids.iter().map(|(_, (period, service, (x, y), ahead))| {
            oracle::Task::new(*period, *service, (u64::from(*x), u64::from(*y)), *ahead)
        });
        let mut machine = Machine::new(seconds.collect());
        (0..ids.len()).for_each(|id| machine.wake(id, 0));
        cpu.set_best_effort(true);
        for (t, step) in (0..).zip(&steps) {
            if let Some((which, what)) = step && !ids.is_empty() {
                let place = which % ids.len();
                let id = ids[place].0;
                match what {
                    0 => { cpu.sleep(id, Instant(t)); machine.sleep(place); }
                    1 => { cpu.wake(id, Instant(t)); machine.wake(place, t); }
                    _ => if cpu.raise(id, Instant(t)).is_ok() { machine.events.push(place); }
                }
            }
            let decision = cpu.decide(Instant(t));
            let second = machine.slot(t);
            let runs = second.runs.map_or(Runs::BestEffort, |place| Runs::Task(ids[place].0));
            prop_assert_eq!(decision.runs, runs, "at {}", t);
            prop_assert_eq!(decision.rule.map(selvedge_data_cpu::Rule::number), second.rule, "at {}", t);
            cpu.charge_chosen(Duration(1));
        }
        for ((id, _), second) in ids.iter().zip(&machine.tasks) {
            let counts = cpu.counts(*id);
            prop_assert_eq!(
                (counts.on_time, counts.missed, counts.violations),
                (second.on_time, second.missed, second.violations)
            );
        }
    }

    /// Sets whose service times fit whole miss nothing, whichever tasks sleep and whatever events arrive: the
    /// event-aware rules break no guarantee. Best-effort tasks have their reserve.
    #[test]
    fn what_is_promised_every_period_is_kept(
        specs in prop::collection::vec(spec(), 1..9),
        steps in steps(),
        task_server in any::<bool>(),
    ) {
        let reserve = Task::new(Duration(20), Duration(1), Window::new(0, 1).unwrap()).unwrap();
        let config = Config { best_effort: Some(reserve), task_server, ..ALONE };
        let (mut cpu, mut ids) = admitted(config, &specs);
        while cpu.promise() != Promise::EveryPeriod {
            let (id, _) = ids.pop().expect("the reserve alone is promised");
            cpu.remove(id);
        }
        cpu.set_best_effort(true);
        let mut best_effort = 0;
        for (t, step) in (0..).zip(steps.iter().chain(&steps)) {
            if let Some((which, what)) = step && !ids.is_empty() {
                let id = ids[which % ids.len()].0;
                match what {
                    0 => cpu.sleep(id, Instant(t)),
                    1 => cpu.wake(id, Instant(t)),
                    _ => drop(cpu.raise(id, Instant(t))),
                }
            }
            best_effort += u64::from(cpu.decide(Instant(t)).runs == Runs::BestEffort);
            cpu.charge_chosen(Duration(1));
        }
        for (id, spec) in &ids {
            prop_assert_eq!(cpu.counts(*id).missed, 0, "{:?}", spec);
        }
        // 400 slots are 20 periods of the reserve.
        prop_assert!(best_effort >= 20, "{}", best_effort);
    }

    /// Tasks that always want to run get their service time in each period that counts as on time,
    /// and every period is counted once.
    #[test]
    fn amounts_are_as_counted(specs in prop::collection::vec(spec(), 1..7)) {
        let (mut cpu, ids) = admitted(ALONE, &specs);
        let slots = 600;
        for t in 0..slots {
            cpu.decide(Instant(t));
            cpu.charge_chosen(Duration(1));
        }
        cpu.decide(Instant(slots));
        let mut all = Duration::ZERO;
        for (id, (period, service, ..)) in &ids {
            let counts = cpu.counts(*id);
            let whole = slots / period;
            let periods = counts.on_time + counts.missed;
            prop_assert!(periods == whole || periods == whole + 1, "{} of {}", periods, whole);
            let owed = (counts.ran - counts.extra).0;
            prop_assert!(owed >= counts.on_time * service);
            prop_assert!(owed <= counts.on_time * service + (counts.missed + 1) * (service - 1));
            prop_assert!(counts.violations <= counts.missed);
            all += counts.ran;
        }
        prop_assert!(all <= Duration(slots));
    }

    /// Time may be divided anywhere: deciding only when a decision is due gives the same counts.
    #[test]
    fn until_is_when_the_next_decision_is_due(specs in prop::collection::vec(spec(), 1..7)) {
        let (mut slots, ids) = admitted(ALONE, &specs);
        let (mut leaps, _) = admitted(ALONE, &specs);
        let end = 500;
        for t in 0..end {
            slots.decide(Instant(t));
            slots.charge_chosen(Duration(1));
        }
        let mut now = Instant::ZERO;
        while now < Instant(end) {
            let until = leaps.decide(now).until.unwrap_or(Instant(end)).min(Instant(end));
            prop_assert!(until > now);
            leaps.charge_chosen(until.since(now));
            now = until;
        }
        for (id, _) in ids {
            let (a, b) = (slots.counts(id), leaps.counts(id));
            prop_assert_eq!((a.on_time, a.missed, a.violations), (b.on_time, b.missed, b.violations));
        }
    }

    #[test]
    fn admission_is_the_sum_of_what_windows_leave(specs in prop::collection::vec(spec(), 1..12)) {
        let (cpu, ids) = admitted(ALONE, &specs);
        // Whole numbers: everything over one denominator.
        let den = (1..=24_u128).fold(1, |lcm, n| lcm * n / gcd(lcm, n)) * 840;
        let need = |&(period, service, (x, y), _): &Spec| {
            let (x, y) = if y == 0 { (0, 1) } else { (u128::from(x), u128::from(y)) };
            den * u128::from(service) * (y - x) / (u128::from(period) * y)
        };
        let mut sum = 0;
        let mut taken = Vec::new();
        for spec in &specs {
            if sum + need(spec) <= den {
                sum += need(spec);
                taken.push(*spec);
            }
        }
        prop_assert_eq!(ids.iter().map(|(_, spec)| *spec).collect::<Vec<_>>(), taken);
        prop_assert_ne!(cpu.load().compare_to_one(), Some(Ordering::Greater));
        let full = (1, 1, (0, 1), false);
        if sum > 0 {
            let refused = cpu.clone().admit(&task(&full)).unwrap_err();
            let ratio = refused.excess.exact().unwrap();
            prop_assert_eq!(ratio.num * den, sum * ratio.den);
            let said = refused.to_string();
            prop_assert!(said.contains("% of the processor") || said.contains("%) of the processor"), "{}", said);
        }
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[test]
fn an_event_too_many_is_refused_and_a_removed_sink_is_forgotten() {
    let mut cpu = Processor::new(Config { events_max: 2, ..ALONE });
    let spec = (4, 1, (0, 1), false);
    let id = cpu.admit(&task(&spec)).unwrap();
    cpu.raise(id, Instant(0)).unwrap();
    cpu.raise(id, Instant(0)).unwrap();
    assert_eq!(cpu.raise(id, Instant(0)).unwrap_err().0, 2);
    cpu.remove(id);
    assert_eq!(cpu.decide(Instant(0)).runs, Runs::Idle);
    let again = cpu.admit(&task(&spec)).unwrap();
    cpu.wake(again, Instant(1));
    assert_eq!((again, cpu.decide(Instant(1)).rule), (id, None));
}
