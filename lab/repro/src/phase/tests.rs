//! Processor and packets with a phase: the latency bound of 2.4.2, in unit slots.

use proptest::prelude::*;
use selvedge_data_cpu::{Processor, Promise, Task};
use selvedge_data_stream::Window;
use selvedge_units::{Duration, Instant};

use super::{Coordinated, Phase};

#[test]
fn the_papers_example() {
    let phase = Phase { period: Duration::from_millis(30), phase: Duration::from_millis(15) };
    assert_eq!(phase.latency_max(), Duration::from_millis(45));
    assert_eq!(phase.packet_deadline(Instant(30_000_000)), Instant(45_000_000));
}

/// Whether the link surely keeps all deadlines: in any interval of length `t` no more packets are
/// both made and due than it has slots. A packet of a task is due `phase` to `phase + T` after it
/// is made, and packets are due a period apart.
fn link_fits(chains: &[(u64, u64)]) -> bool {
    let demand = |t: u64| -> u64 {
        let of = |&(period, phase): &(u64, u64)| match t.checked_sub(phase) {
            Some(beyond) => beyond / period + 1,
            None => 0,
        };
        chains.iter().map(of).sum()
    };
    (0..2_000).all(|t| demand(t) <= t)
}

proptest! {
    #[test]
    fn no_packet_waits_longer_than_phase_and_period(
        specs in prop::collection::vec((2..30_u64, 1..4_u64, 0..40_u64), 1..7),
    ) {
        let mut both = Coordinated::new();
        let mut cpu = Processor::new(selvedge_data_cpu::Config {
            best_effort: None, ..selvedge_data_cpu::Config::default()
        });
        let mut chains = Vec::new();
        for (period, service, phase) in specs {
            let window = Window::new(0, 1).unwrap();
            let task = Task::new(Duration(period), Duration(service.min(period)), window).unwrap();
            if cpu.admit(&task).is_ok() {
                both.add(&task, Duration(phase)).unwrap();
                chains.push((period, phase));
            }
        }
        prop_assert_eq!(cpu.promise(), Promise::EveryPeriod);
        let slots = 2_000;
        (0..slots).for_each(|t| both.slot(t));
        for ((phase, counts), (period, _)) in both.counts().zip(&chains) {
            prop_assert!(counts.latency <= phase.latency_max(), "{:?} {:?}", phase, counts);
            if link_fits(&chains) {
                prop_assert_eq!(counts.late, 0);
                prop_assert!(counts.on_time + 3 + phase.phase.0 / period >= slots / period);
            }
        }
    }
}

#[test]
fn a_packet_waits_for_its_own_period() {
    let window = Window::new(0, 1).unwrap();
    let mut both = Coordinated::new();
    both.add(&Task::new(Duration(8), Duration(1), window).unwrap(), Duration(4)).unwrap();
    (0..80).for_each(|t| both.slot(t));
    let (phase, counts) = both.counts().next().unwrap();
    // Alone it is sent when its own period begins: phase - 1 slots after it was made.
    assert_eq!((counts.latency, phase.latency_max()), (Duration(3), Duration(12)));
    assert_eq!(counts.late, 0);
}
