//! Random traces on the simulated hardware and in software: the same events and totals, bit for bit.

mod random;

use selvedge_lab_rtl::{
    Design, ReplayError, Routing, Simulator, SimulatorError, Slots, ToolError, Unsupported,
};

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::{Replay, Trace};
use selvedge_data_sched::trace::generate::{GenerateOptions, Kind, trace};

/// The simulator, or `None` with a line that says why not, if Verilator is not installed.
fn simulator(design: Design) -> Option<Simulator> {
    match Simulator::of(design) {
        Ok(simulator) => Some(simulator),
        Err(SimulatorError::Tool(ToolError::Absent { tool, package })) => {
            println!("SKIPPED: {tool} is not installed (Debian package {package})");
            None
        }
        Err(error) => panic!("{design}: {error}"),
    }
}

/// Whether the software, too, goes where the hardware says that it cannot follow.
fn beyond_range(trace: &Trace, misfit: &Unsupported) -> bool {
    match misfit {
        Unsupported::WindowGrown { at, .. } => {
            let mut replay = Replay::new(trace);
            while let Some(event) = replay.next() {
                if replay.totals().any(|(_, _, window)| window.of > 255) {
                    // A decision expires for the slot after its own.
                    return event.t.0 <= at.0 + 1;
                }
            }
            false
        }
        // A frame's deadline shows when it goes, and it may never go; but a period and what the
        // stream has behind it must together be able to reach so far.
        Unsupported::DeadlineAhead { at, .. } => trace.streams.iter().any(|s| {
            s.contract.period.0 * (at.0 + 2) + s.first_deadline.map_or(0, |d| d.0) > 32767
        }),
        _ => false,
    }
}

/// Replays seeds on a design; how many traces there were, and how many did not fit.
fn agree(design: Design, seeds: std::ops::Range<u64>) -> Option<(usize, usize)> {
    let simulator = simulator(design)?;
    let (mut replayed, mut refused) = (0, 0);
    for seed in seeds {
        let trace = random::trace(seed, design.slots.count());
        let mut hardware = match simulator.replay(&trace) {
            Ok(replay) => replay,
            Err(ReplayError::Misfit(misfit)) => {
                assert!(
                    beyond_range(&trace, &misfit),
                    "{design}, seed {seed}: {misfit}\n{trace:?}"
                );
                refused += 1;
                continue;
            }
            Err(error) => panic!("{design}, seed {seed}: {error}"),
        };
        let mut software = Replay::new(&trace);
        for number in 0.. {
            let (found, expected) = (hardware.next(), software.next());
            assert_eq!(found, expected, "{design}, seed {seed}, event {number}\n{trace:?}");
            if found.is_none() {
                break;
            }
        }
        for ((stream, counters, window), found) in software.totals().zip(hardware.totals()) {
            let found = (found.counters, found.window);
            assert_eq!(found, (counters, window), "{design}, seed {seed}, {}", stream.id);
        }
        replayed += 1;
    }
    println!("{design}: {replayed} traces the same, {refused} refused");
    assert!(refused * 4 < replayed, "{design}: {refused} of {replayed} did not fit");
    Some((replayed, refused))
}

#[test]
fn four_slots_every_routing_ahead_and_piped() {
    let designs = [
        (Routing::WinnerOnly, false, false),
        (Routing::WinnerOnly, true, false),
        (Routing::WinnerOnly, false, true),
        (Routing::WinnerOnly, true, true),
        (Routing::PartialBlock, false, false),
        (Routing::FullSort, false, false),
        (Routing::FullSort, true, true),
        (Routing::Tree, false, false),
        (Routing::Tree, true, false),
    ];
    for (routing, ahead, piped) in designs {
        let design = Design { slots: Slots::S4, routing, ahead, piped };
        let Some(_) = agree(design, 0..400) else { return };
    }
}

#[test]
fn eight_slots_every_routing() {
    for routing in Routing::ALL {
        let ahead = routing == Routing::Tree;
        let design = Design { slots: Slots::S8, routing, ahead, piped: false };
        let Some(_) = agree(design, 1000..1300) else { return };
    }
}

#[test]
fn sixteen_slots() {
    for routing in [Routing::WinnerOnly, Routing::FullSort] {
        let Some(_) = agree(Design::plain(Slots::S16, routing), 2000..2300) else { return };
    }
}

#[test]
fn thirty_two_slots() {
    for routing in [Routing::WinnerOnly, Routing::PartialBlock] {
        let Some(_) = agree(Design::plain(Slots::S32, routing), 3000..3200) else { return };
    }
}

#[test]
fn sixty_four_slots() {
    agree(Design::plain(Slots::S64, Routing::WinnerOnly), 4000..4100);
}

/// Sets that need little of the link, and whose windows fail all the same (Mok and Wang, RTSS
/// 2001): the hardware breaks the same windows at the same moments.
#[test]
fn sets_whose_windows_fail_at_little_load() {
    let Some(simulator) = simulator(Design::plain(Slots::S16, Routing::PartialBlock)) else {
        return;
    };
    let mut violations = 0;
    for seed in 1..=60 {
        let discipline = Some(Discipline::Dwcs);
        let made = trace(&GenerateOptions {
            discipline,
            kind: Some(Kind::Adversarial),
            ..GenerateOptions::of(seed)
        });
        let mut hardware = simulator.replay(&made).expect("8-bit windows, short periods");
        let mut software = Replay::new(&made);
        assert!(hardware.by_ref().eq(software.by_ref()), "seed {seed}: {made:?}");
        for ((stream, counters, window), found) in software.totals().zip(hardware.totals()) {
            assert_eq!((found.counters, found.window), (counters, window), "{seed}, {}", stream.id);
            violations += counters.violations;
        }
    }
    assert!(violations > 60, "{violations} violations: these sets must fail");
}
