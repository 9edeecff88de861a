//! Clocks, blocks and areas as the paper and the README state them, each from the tools themselves.

use std::io::Write;

use selvedge_lab_rtl::cycles::{self, Cycles};
use selvedge_lab_rtl::synth::{self, Compare, Part, SynthError};
use selvedge_lab_rtl::{Design, Routing, Simulator, SimulatorError, Slots, ToolError, order};

/// What a tool gave, or `None` with a line that says what is not installed.
fn given<T>(result: Result<T, SimulatorError>) -> Option<T> {
    match result {
        Err(SimulatorError::Tool(error)) => absent(error),
        other => Some(other.unwrap_or_else(|error| panic!("{error}"))),
    }
}

fn synthesised<T>(result: Result<T, SynthError>) -> Option<T> {
    match result {
        Err(SynthError::Tool(error)) => absent(error),
        other => Some(other.unwrap_or_else(|error| panic!("{error}"))),
    }
}

fn absent<T>(error: ToolError) -> Option<T> {
    let ToolError::Absent { tool, package } = error else { panic!("{error}") };
    println!("SKIPPED: {tool} is not installed (Debian package {package})");
    None
}

fn count(design: Design) -> Option<Cycles> {
    let simulator = given(Simulator::of(design))?;
    let cycles = given(cycles::count(&simulator))?;
    println!(
        "{design}: {} clocks to the winner, {} a decision",
        cycles.to_winner, cycles.a_decision
    );
    Some(cycles)
}

#[test]
fn the_winner_is_found_in_the_papers_number_of_clocks() {
    for (slots, clocks) in [(Slots::S4, 2), (Slots::S8, 3), (Slots::S16, 4), (Slots::S32, 5)] {
        let Some(found) = count(Design::plain(slots, Routing::WinnerOnly)) else { return };
        assert_eq!((found.to_winner, found.a_decision), (clocks, clocks + 1));
    }
}

#[test]
fn a_full_sort_takes_fewer_clocks_than_the_square_of_the_logarithm() {
    for (slots, most, clocks) in [(Slots::S4, 4, 3), (Slots::S8, 9, 7), (Slots::S16, 16, 13)] {
        let Some(found) = count(Design::plain(slots, Routing::FullSort)) else { return };
        assert_eq!(found.to_winner, clocks);
        assert!(found.to_winner <= most);
    }
}

#[test]
fn computing_ahead_makes_a_decision_in_two_clocks_or_one() {
    let plain = Design::plain(Slots::S4, Routing::WinnerOnly);
    let Some(ahead) = count(Design { ahead: true, ..plain }) else { return };
    assert_eq!(ahead.a_decision, 2);
    let Some(piped) = count(Design { piped: true, ..plain }) else { return };
    assert_eq!((piped.to_winner, piped.a_decision), (4, 5));
    let tree = Design::plain(Slots::S8, Routing::Tree);
    let Some(ahead) = count(Design { ahead: true, ..tree }) else { return };
    assert_eq!((ahead.to_winner, ahead.a_decision), (1, 1));
    let Some(plain) = count(Design::plain(Slots::S4, Routing::Tree)) else { return };
    assert_eq!((plain.to_winner, plain.a_decision), (1, 2));
}

#[test]
fn the_papers_block_is_not_sorted_and_misses_deadlines_that_a_sort_keeps() {
    println!("{}", order::HEADING);
    for slots in [Slots::S4, Slots::S8, Slots::S16] {
        for routing in [Routing::PartialBlock, Routing::FullSort] {
            let Some(simulator) = given(Simulator::of(order::design(slots, routing))) else {
                return;
            };
            let Some(quality) = given(order::measure(&simulator, 2000, 0, 7)) else { return };
            println!("{quality}");
            assert_eq!((quality.first_right, quality.last_right), (2000, 2000));
            if routing == Routing::FullSort {
                assert_eq!((quality.sorted, quality.inversions, quality.missed), (2000, 0, 0));
            } else {
                assert!(quality.missed > 0, "{quality}");
                // One in three at 4 slots, hardly any from 8 on.
                let most = if slots == Slots::S4 { 800 } else { 40 };
                assert!(quality.sorted < most, "{quality}");
            }
        }
    }
}

/// The bounds of the areas beside the paper's placed figures.
#[test]
fn areas_lie_near_the_papers() {
    let core = |slots, routing| Part::Core(Design::plain(slots, routing));
    let mut cores = Vec::new();
    for part in [
        Part::Decision,
        Part::Slot,
        Part::Control,
        core(Slots::S4, Routing::WinnerOnly),
        core(Slots::S4, Routing::PartialBlock),
        core(Slots::S8, Routing::PartialBlock),
    ] {
        let Some(area) = synthesised(synth::area(part)) else { return };
        let (at_least, at_most, paper) =
            (area.slices_min(), area.slices_max(), area.paper_slices());
        println!(
            "{part:?}: {} LUT, {} FF: {at_least} to {at_most} slices (bounds), paper {paper} (placed)",
            area.luts, area.flip_flops
        );
        assert!(area.luts > 0);
        if let Part::Core(_) = part {
            cores.push(f64::from(at_least));
            assert!(f64::from(at_least) < 1.1 * f64::from(paper), "{part:?}: {at_least}");
        }
    }
    // Linear: twice the slots, about twice the area.
    assert!((1.8..2.2).contains(&(cores[2] / cores[1])), "{cores:?}");
}

/// The design's compare, in one clock, runs at a higher clock than the rules written one after the
/// other; both placed with the same seeds.
fn faster_than_naive(slots: Slots) {
    let plain = Design::plain(slots, Routing::WinnerOnly);
    let mut median = Vec::new();
    for (design, compare) in [
        (plain, Compare::Naive),
        (plain, Compare::Concurrent),
        (Design { piped: true, ..plain }, Compare::Concurrent),
    ] {
        let tell = |seed, mhz: f64| {
            // Past the harness, which would hide it for minutes.
            let mut stderr = std::io::stderr().lock();
            let _ = writeln!(stderr, "{design}, {compare:?}, seed {seed}: {mhz:.1} MHz");
        };
        let Some(clock) = synthesised(synth::clock(design, compare, 5, &tell)) else { return };
        println!(
            "{design}, {compare:?}: median {:.1} MHz of {:?}, {} cells (placed)",
            clock.median_mhz(),
            clock.mhz,
            clock.logic_cells
        );
        median.push(clock.median_mhz());
    }
    assert!(median[1] > median[0], "{median:?}");
}

/// Minutes of a core: `cargo test -p selvedge-lab-rtl --test measured -- --ignored --nocapture`.
#[test]
#[ignore = "places and routes for minutes; repro ss-f7 has it as a claim"]
fn the_clock_of_four_slots() {
    faster_than_naive(Slots::S4);
}

#[test]
#[ignore = "places and routes for minutes"]
fn the_clock_of_eight_slots() {
    faster_than_naive(Slots::S8);
}
