//! What synthesis makes of the design: areas in the paper's own family, and clocks in a family of
//! today that has an open placer.
//!
//! For Virtex I there is Yosys but no open placer: its areas are counts of logic cells, and the
//! slices made of them are **bounds**, not a placed design; there is no clock. For the iCE40 HX8K
//! nextpnr places and routes: those clocks are **placed**, estimated by its timing model, and vary
//! with the seed. Nothing has run on a chip.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use parking_lot::Mutex;
use serde::Serialize;
use thiserror::Error;

use crate::design::{Design, Routing, Slots};
use crate::sources;
use crate::tool::{self, TemporaryFolder, ToolError};

const YOSYS: &str = "yosys";
const NEXTPNR: &str = "nextpnr-ice40";

/// Why there are no figures.
#[derive(Debug, Error)]
pub enum SynthError {
    /// A tool is absent or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A tool's report does not say what was asked.
    #[error("{tool} reports no {what}")]
    Report {
        /// The program.
        tool: &'static str,
        /// What was looked for.
        what: &'static str,
    },
}

/// A part of the design that can be synthesised by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// A decision block with both outputs.
    Decision,
    /// A register base block.
    Slot,
    /// Control and steering, winner only, 4 slots.
    Control,
    /// All of Fig. 7: slots, decision blocks, network, control; no memory interface.
    Core(Design),
}

/// The area of a part in Virtex I. A slice has two 4-input tables and two flip-flops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Area {
    /// Of what.
    pub part: Part,
    /// 4-input look-up tables.
    pub luts: u32,
    /// Flip-flops.
    pub flip_flops: u32,
}

impl Area {
    /// Bound from below: every slice full. A placed design needs more.
    #[must_use]
    pub const fn slices_min(&self) -> u32 {
        if self.luts > self.flip_flops {
            self.luts.div_ceil(2)
        } else {
            self.flip_flops.div_ceil(2)
        }
    }

    /// Bound from above for the logic alone: no slice shares its tables and its flip-flops.
    #[must_use]
    pub const fn slices_max(&self) -> u32 {
        (self.luts + self.flip_flops).div_ceil(2)
    }

    /// What the paper says, in slices (section 5.1): placed, without the network's wires.
    #[must_use]
    pub const fn paper_slices(&self) -> u32 {
        match self.part {
            Part::Decision => 190,
            Part::Slot => 150,
            Part::Control => 22,
            Part::Core(design) => {
                let n = design.slots.count() as u32;
                22 + 190 * (n / 2) + 150 * n
            }
        }
    }
}

/// Which compare a clock is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compare {
    /// The design's.
    Concurrent,
    /// Rule after rule, products by `*`: the baseline.
    Naive,
}

/// The clock of a design on an iCE40 HX8K, placed and routed once for each seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Clock {
    /// Of what, between two shift registers.
    pub design: Design,
    /// With which compare.
    pub compare: Compare,
    /// MHz by seed, 1, 2, ...
    pub mhz: Vec<f64>,
    /// Logic cells, the shift registers included; the device has 7680.
    pub logic_cells: u32,
}

impl Clock {
    /// The median of the seeds, in MHz; 0 without seeds.
    #[must_use]
    pub fn median_mhz(&self) -> f64 {
        let mut sorted = self.mhz.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
    }
}

/// Synthesises a part for Virtex I. Seconds to a minute of a core.
pub fn area(part: Part) -> Result<Area, SynthError> {
    let plain = Design::plain(Slots::S4, Routing::WinnerOnly).parameters();
    let (top, parameters): (&str, Vec<(&str, usize)>) = match part {
        Part::Decision => ("ss_decision", vec![]),
        Part::Slot => ("ss_slot", vec![]),
        Part::Control => ("ss_control", plain.into_iter().skip(1).collect()),
        Part::Core(design) => ("ss_core", design.parameters().to_vec()),
    };
    let shop = TemporaryFolder::new(&std::env::temp_dir())?;
    let design = sources::DESIGN.iter().copied();
    let texts: Vec<_> = design.filter(|(name, _)| !ABOVE_CORE.contains(name)).collect();
    let script = format!(
        "{}; synth_xilinx -family xcv -flatten -noiopad -noclkbuf -nowidelut -top {top}; stat",
        elaborate(&shop.path, &texts, top, &parameters)?
    );
    let (report, _) = tool::run(Command::new(YOSYS).args(["-p", &script]), YOSYS)?;
    let missing = SynthError::Report { tool: YOSYS, what: "cells" };
    let last = report.rfind("Number of cells:").ok_or(missing)?;
    let cells = |prefix: &str| -> u32 {
        let counted = report[last..].lines().filter_map(|line| {
            let (name, count) = line.trim().split_once(' ')?;
            name.starts_with(prefix).then(|| count.trim().parse::<u32>().ok())?
        });
        counted.sum()
    };
    Ok(Area { part, luts: cells("LUT"), flip_flops: cells("FD") })
}

/// Places and routes a design for an iCE40 HX8K, once for each seed from 1 on. From 16 slots on
/// it does not fit. Half a minute of a core and more for each seed, as many at once as there are
/// processors; half an hour each at most. `tell` hears each seed's clock as it is found.
pub fn clock(
    design: Design,
    compare: Compare,
    seeds: u32,
    report: &(dyn Fn(u32, f64) + Sync),
) -> Result<Clock, SynthError> {
    let shop = TemporaryFolder::new(&std::env::temp_dir())?;
    let naive = compare == Compare::Naive;
    let texts: Vec<_> = (sources::DESIGN.iter().chain(sources::SYNTHESIS).copied())
        .filter(|(name, _)| !ABOVE_CORE.contains(name))
        .filter(|(name, _)| *name != if naive { CONCURRENT_ORDER } else { NAIVE_ORDER })
        .collect();
    let top = "ss_shift_wrapper";
    let netlist = shop.path.join("netlist.json");
    let script = format!(
        "{}; synth_ice40 -abc9 -device hx -top {top} -json {}",
        elaborate(&shop.path, &texts, top, &design.parameters())?,
        netlist.display()
    );
    tool::run(Command::new(YOSYS).args(["-p", &script]), YOSYS)?;
    let mut clock = Clock { design, compare, mhz: Vec::new(), logic_cells: 0 };
    // A thread that is done takes the next seed, so that no processor waits for the slowest of a batch.
    let next = AtomicU32::new(1);
    let placed = Mutex::new(Vec::new());
    let at_once = thread::available_parallelism().map_or(1, usize::from).min(seeds as usize);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > seeds {
                        return;
                    }
                    let found = place(&netlist, seed);
                    let failed = found.is_err();
                    if let Ok((mhz, _)) = found {
                        report(seed, mhz);
                    }
                    placed.lock().push((seed, found));
                    if failed {
                        // The others would fail as well.
                        next.store(seeds + 1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut placed = placed.into_inner();
    placed.sort_by_key(|&(seed, _)| seed);
    for (_, one) in placed {
        let (mhz, logic_cells) = one?;
        clock.mhz.push(mhz);
        clock.logic_cells = logic_cells;
    }
    Ok(clock)
}

/// One placement: its clock in MHz, and how many logic cells it takes.
fn place(netlist: &Path, seed: u32) -> Result<(f64, u32), SynthError> {
    let mut nextpnr = Command::new(NEXTPNR);
    nextpnr.args(["--hx8k", "--package", "ct256", "--freq", "50", "--pcf-allow-unconstrained"]);
    nextpnr.arg("--timing-allow-fail").arg("--json").arg(netlist);
    let (_, report) = tool::run(nextpnr.arg("--seed").arg(seed.to_string()), NEXTPNR)?;
    let missing = |what| SynthError::Report { tool: NEXTPNR, what };
    let mhz = max_frequency(&report).ok_or_else(|| missing("frequency"))?;
    Ok((mhz, logic_cells(&report).ok_or_else(|| missing("logic cells"))?))
}

const ABOVE_CORE: [&str; 2] = ["hdl/ss_memory.v", "hdl/ss_top.v"];
const CONCURRENT_ORDER: &str = "hdl/ss_order.v";
const NAIVE_ORDER: &str = "syn/ss_order_naive.v";

/// The first commands of a Yosys script: the texts read, the parameters set.
fn elaborate(
    shop: &Path,
    texts: &[(&str, &str)],
    top: &str,
    parameters: &[(&str, usize)],
) -> Result<String, ToolError> {
    let files = sources::write(shop, texts).map_err(ToolError::file(shop))?;
    let mut script = "read_verilog".to_owned();
    files.iter().for_each(|file| script.push_str(&format!(" {}", file.display())));
    script.push_str("; chparam");
    for (name, value) in parameters {
        // The control block alone takes the logarithm of N, whose default is right.
        script.push_str(&format!(" -set {name} {value}"));
    }
    if parameters.is_empty() {
        script.truncate(script.len() - "; chparam".len());
    } else {
        script.push_str(&format!(" {top}"));
    }
    Ok(script)
}

/// The last "Max frequency for clock ...: 44.50 MHz": after routing.
fn max_frequency(report: &str) -> Option<f64> {
    let line = report.lines().rfind(|line| line.contains("Max frequency for clock"))?;
    line.split(':').next_back()?.split("MHz").next()?.trim().parse().ok()
}

/// From "ICESTORM_LC:  2639/ 7680    34%".
fn logic_cells(report: &str) -> Option<u32> {
    let line = report.lines().find(|line| line.contains("ICESTORM_LC:"))?;
    line.split("ICESTORM_LC:").nth(1)?.split('/').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let report = "Info: \t         ICESTORM_LC:  2639/ 7680    34%\n\
                      Info: Max frequency for clock 'clk_i': 40.12 MHz (FAIL at 50.00 MHz)\n\
                      Info: Max frequency for clock 'clk_i$SB_IO_IN_$glb_clk': 44.50 MHz (PASS at 12 MHz)\n";
        assert_eq!(max_frequency(report), Some(44.5));
        assert_eq!(logic_cells(report), Some(2639));
        assert_eq!(max_frequency("nothing"), None);
    }

    #[test]
    fn bounds_and_the_papers_sums() {
        let core = Part::Core(Design::plain(Slots::S4, Routing::PartialBlock));
        let area = Area { part: core, luts: 1950, flip_flops: 624 };
        assert_eq!((area.slices_min(), area.slices_max()), (975, 1287));
        assert_eq!(area.paper_slices(), 1002);
        let large = Part::Core(Design::plain(Slots::S32, Routing::PartialBlock));
        assert_eq!(Area { part: large, ..area }.paper_slices(), 7862);
    }
}
