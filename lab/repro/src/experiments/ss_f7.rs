//! `ss-f7`: area of the hardware by stream slots, synthesised for the paper's family; and its clock,
//! placed for a family that has an open placer.

use selvedge_lab_rtl::synth::{Area, Compare, Part, area, clock};
use selvedge_lab_rtl::{Design, Routing, Slots};

use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-f7",
    title: "Area of winner-only and sorting designs, Virtex I",
    paper: super::SS,
    section: "Figure 7, section 5.1",
    kind: Kind::Real,
    claim: "linear growth; bounds around the sum of the paper's blocks; a clock above a naive compare's; a block costs at most a tenth of it",
    edits: &[DOUBLE, SAME_SIZE, NAIVE, NAIVE_BLOCK],
    run,
};

const DOUBLE: Edit = Edit { name: "double", what: "each design has twice the slots" };
const SAME_SIZE: Edit = Edit { name: "same-size", what: "each design has four slots" };
const NAIVE: Edit = Edit { name: "naive", what: "the clock is that of the naive compare" };

const NAIVE_BLOCK: Edit =
    Edit { name: "naive-block", what: "designs that give a block have the naive compare" };

const SLOTS: [Slots; 4] = [Slots::S4, Slots::S8, Slots::S16, Slots::S32];
/// Those that fit the device that has an open placer.
const PLACED: [Slots; 2] = [Slots::S4, Slots::S8];
/// Placements of each clock.
const SEEDS: u32 = 5;
/// The paper's own first.
const ROUTINGS: [Routing; 3] = [Routing::PartialBlock, Routing::WinnerOnly, Routing::FullSort];

fn row(table: &mut Table, name: String, area: &Area) {
    table.row([
        name.into(),
        u64::from(area.paper_slices()).into(),
        u64::from(area.luts).into(),
        u64::from(area.flip_flops).into(),
        u64::from(area.slices_min()).into(),
        u64::from(area.slices_max()).into(),
    ]);
}

/// Medians rounded to tenths.
fn tenths(mhz: f64) -> Cell {
    Cell::from((mhz * 10.0).round() / 10.0)
}

/// What a block costs of the clock, by slots: each way of routing placed with these seeds.
fn clocks_of_blocks(
    params: &Params,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let mut table = Table::new(
        format!("Clock by slots on an iCE40 HX8K, placed and routed, MHz, median of {SEEDS} seeds"),
        &["slots", "winner only", "partial block", "full sort", "block / winner, paper", "ours"],
    );
    for slots in PLACED {
        let median = |routing: Routing| {
            watch.go_on(&format!("clock: {} slots, {}", slots.count(), routing.name()))?;
            let is_naive = routing != Routing::WinnerOnly && params.is_edited(NAIVE_BLOCK.name);
            let compare = if is_naive { Compare::Naive } else { Compare::Concurrent };
            let found = clock(Design::plain(slots, routing), compare, SEEDS, &|_, _| ())?;
            Ok::<_, RunError>(found.median_mhz())
        };
        let (winner, block) = (median(Routing::WinnerOnly)?, median(Routing::PartialBlock)?);
        let sorted = median(Routing::FullSort)?;
        let left = block / winner;
        let theirs = if slots == Slots::S8 { Cell::from("near 0.8") } else { Cell::None };
        table.row([
            Cell::from(slots.count() as u64),
            tenths(winner),
            tenths(block),
            tenths(sorted),
            theirs,
            Cell::rounded(left, 2),
        ]);
        outcome.claim(
            format!("{} slots: a block costs at most a tenth of the winner's clock", slots.count()),
            left >= 0.9,
            format!("{block:.1} against {winner:.1} MHz, {left:.2} of it"),
        );
    }
    outcome.tables.push(table);
    Ok(())
}

/// Clocks of 4 slots on an iCE40, placed and routed with these seeds.
fn clocks(
    params: &Params,
    outcome: &mut Outcome,
    watch: &dyn ProgressWatch,
) -> Result<(), RunError> {
    let mut table = Table::new(
        "Clock of 4 slots, winner only, on an iCE40 HX8K, placed and routed",
        &["compare", "median, MHz", "least", "most", "seeds", "logic cells"],
    );
    let plain = Design::plain(Slots::S4, Routing::WinnerOnly);
    let mut medians = Vec::new();
    for (name, design, compare) in [
        ("naive: rule after rule, one clock", plain, Compare::Naive),
        ("one clock", plain, Compare::Concurrent),
        ("two clocks", Design { piped: true, ..plain }, Compare::Concurrent),
    ] {
        watch.go_on(&format!("clock: {name}"))?;
        let compare = params.edited(NAIVE.name, compare, Compare::Naive);
        let found = clock(design, compare, SEEDS, &|_, _| ())?;
        let mhz = || found.mhz.iter().copied();
        table.row([
            name.into(),
            tenths(found.median_mhz()),
            tenths(mhz().fold(f64::MAX, f64::min)),
            tenths(mhz().fold(0.0, f64::max)),
            u64::from(SEEDS).into(),
            u64::from(found.logic_cells).into(),
        ]);
        medians.push(found.median_mhz());
    }
    outcome.claim(
        "4 slots, one clock a compare: a higher clock than with a naive compare",
        medians[1] > medians[0],
        format!("{:.1} against {:.1} MHz, median of {SEEDS} seeds", medians[1], medians[0]),
    );
    outcome.tables.push(table);
    Ok(())
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        "Slices of Virtex I; ours are bounds of a synthesis that is not placed",
        &["part", "paper, placed", "LUT4", "flip-flops", "slices, at least", "at most"],
    );
    for (name, part) in [
        ("decision block", Part::Decision),
        ("register block", Part::Slot),
        ("control", Part::Control),
    ] {
        watch.go_on(name)?;
        row(&mut table, name.to_owned(), &area(part)?);
    }
    let mut series = Vec::new();
    for routing in ROUTINGS.into_iter().take(params.amount(3, 1)) {
        let mut points = Vec::new();
        for slots in SLOTS.into_iter().take(params.amount(4, 2)) {
            let name = format!("{} slots, {}", slots.count(), routing.name());
            watch.go_on(&name)?;
            let built = match params.edit {
                Some(edit) if edit == SAME_SIZE.name => Slots::S4,
                Some(edit) if edit == DOUBLE.name && slots == Slots::S4 => Slots::S8,
                Some(edit) if edit == DOUBLE.name => Slots::S16,
                _ => slots,
            };
            let found = Area {
                part: Part::Core(Design::plain(slots, routing)),
                ..area(Part::Core(Design::plain(built, routing)))?
            };
            row(&mut table, name.clone(), &found);
            let (least, theirs) = (f64::from(found.slices_min()), f64::from(found.paper_slices()));
            let most = f64::from(found.slices_max());
            points.push((slots.count() as f64, least));
            if routing == Routing::PartialBlock {
                outcome.claim(
                    format!("{name}: the paper's blocks together lie within our bounds, and 10 % of the lower"),
                    (least / theirs - 1.0).abs() <= 0.1 && theirs <= most,
                    format!("{theirs:.0} slices; {least:.0} to {most:.0} here"),
                );
            }
        }
        // From one size to the next the area doubles, less what is there once.
        let steps = points.windows(2).map(|pair| pair[1].1 / pair[0].1);
        let (least, most) = steps.fold((f64::MAX, 0.0_f64), |(l, m), x| (l.min(x), m.max(x)));
        outcome.claim(
            format!("{}: twice the slots take 1.8 to 2.1 times the area", routing.name()),
            least >= 1.8 && most <= 2.1,
            format!("{least:.2} to {most:.2} times"),
        );
        series.push(Series { name: routing.name().to_owned(), points, marked: true, broad: false });
    }
    outcome.tables.push(table);
    if !params.quick {
        clocks(params, &mut outcome, watch)?;
        clocks_of_blocks(params, &mut outcome, watch)?;
    }
    outcome.plots.push(Plot {
        title: "Area by stream slots".to_owned(),
        x: Axis::linear("stream slots"),
        y: Axis::linear("slices, at least"),
        series,
    });
    outcome.note(
        "Yosys maps to Virtex I (synth_xilinx -family xcv -nowidelut); no open tool places for it, \
         so there is no clock of ours for that family; the clocks are those of an iCE40, which are placed, and \
         on which 16 slots don't fit. The paper finds nearly the same area for winner-only; here it is \
         less, as the table shows.",
    );
    Ok(outcome)
}
