//! `selvedge doctor`: which placements work on this machine and what the others lack, found out by
//! trying each; all changes are undone.

use std::io::Write;
use std::process::Command;

use clap::Args;
use selvedge_cli_terminal::{Failure, Table};
use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_os::probe::{self, Outcome, Unavailable};
use selvedge_units::Bitrate;
use serde::Serialize;

use crate::wake_ups::{self, Cost, WakeUps};

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A feature that was tried.
struct Check {
    placement: &'static str,
    part: &'static str,
    /// Whether the placement needs it; others only improve it.
    needed: bool,
    outcome: Outcome,
}

#[derive(Serialize)]
struct TrialJson<'a> {
    placement: &'a str,
    part: &'a str,
    needed: bool,
    works: bool,
    found: &'a str,
    remedy: Option<&'a str>,
}

#[derive(Serialize)]
struct PlacementJson<'a> {
    placement: &'a str,
    works: bool,
    complete: bool,
}

pub(crate) fn command(args: &DoctorArgs) -> Result<(), Failure> {
    let trials = trials();
    let wake_ups = cost_of_wake_ups();
    let mut out = std::io::stdout().lock();
    if args.json {
        let trials_json: Vec<TrialJson<'_>> = trials.iter().map(as_json).collect();
        let all = serde_json::json!({
            "kernel": release(),
            "placements": placements(&trials),
            "cpu_scheduling": cpu_scheduling(&trials),
            "trials": trials_json,
            "wake_ups": wake_ups,
        });
        writeln!(out, "{all}")?;
    } else {
        write!(out, "{}", as_text(&trials))?;
        write!(out, "\n{}", wake_ups::table(&wake_ups))?;
    }
    Ok(())
}

/// The cost of late wake-ups for links of usual rates.
fn cost_of_wake_ups() -> Vec<Cost> {
    let Some(late) = WakeUps::measure() else { return Vec::new() };
    let link = |mbps| {
        let rate = Bitrate::from_mbps(mbps);
        LinkConfig::new(&format!("{mbps} Mbit/s"), rate, Discipline::default())
    };
    [2, 10, 20, 100, 300].map(|mbps| late.cost(&link(mbps), None)).into()
}

/// All trials, in the order in which they are shown.
fn trials() -> Vec<Check> {
    let check = |placement, part, needed, outcome| Check { placement, part, needed, outcome };
    vec![
        check("inline", "sending", true, probe::sendmmsg()),
        check("inline", "GSO", false, probe::gso()),
        check("inline", "wake-ups", false, probe::wake_ups()),
        check("coprocessor", "shared memory", true, probe::shared_memory()),
        check("coprocessor", "core of its own", false, probe::pin()),
        check("coprocessor", "locked memory", false, probe::lock_memory()),
        check("coprocessor", "SCHED_FIFO", false, probe::fifo()),
        check("coprocessor", "SCHED_DEADLINE", false, probe::deadline()),
        check("coprocessor", "io_uring (path C)", false, probe::io_uring()),
        check("kernel packets", "BPF qdisc", true, qdisc()),
        check("kernel packets", "deadlines (SO_TXTIME)", false, probe::txtime()),
        check("kernel CPU", "sched_ext", true, sched_ext()),
        check("AF_XDP", "socket", true, probe::af_xdp()),
        check("hardware", "Verilator", true, tool("verilator", "--version", "verilator")),
        check("hardware", "C++ compiler", true, tool("g++", "--version", "g++")),
        check("hardware", "Yosys", false, tool("yosys", "-V", "yosys")),
        check("hardware", "nextpnr", false, tool("nextpnr-ice40", "--version", "nextpnr-ice40")),
        check("hardware", "Icarus", false, tool("iverilog", "-V", "iverilog")),
        check("media", "GStreamer", true, media()),
        check(
            "kernel tests",
            "QEMU",
            true,
            tool("qemu-system-x86_64", "--version", "qemu-system-x86"),
        ),
        check("kernel tests", "busybox", true, tool("busybox", "--help", "busybox-static")),
        check("kernel tests", "cpio", true, tool("cpio", "--version", "cpio")),
    ]
}

#[cfg(feature = "kernel")]
fn qdisc() -> Outcome {
    use selvedge_place_kernel::{AttachError, LoadError, ProgramError};
    selvedge_place_kernel::probe().map_err(|error| {
        let remedy = match &error {
            AttachError::Load(LoadError::Program(ProgramError::NotPermitted)) => "run as root",
            AttachError::Load(LoadError::NoQdiscs { .. }) => {
                "boot Linux 6.16 or later with CONFIG_NET_SCH_BPF=y and BTF (6.17 or later of Debian 13's \
                 backports have it)"
            }
            AttachError::NoBpfFs(_) => "mount -t bpf bpf /sys/fs/bpf",
            _ => "report this, with the kernel's release",
        };
        Unavailable::new(error, remedy)
    })
}

/// Loads the scheduler, unless a program of ours has it loaded already.
#[cfg(feature = "kernel")]
fn sched_ext() -> Outcome {
    use selvedge_place_kernel::{LoadError, ProgramError, TaskScheduler, TasksError};
    let processors = selvedge_place_cpu::class::processors().pop().unwrap_or(0) + 1;
    TaskScheduler::probe(processors).or_else(|error| match &error {
        TasksError::Taken(name) if name.starts_with("selvedge_dwcs") => {
            Ok("runs already: a program of `selvedge cpu run` has it loaded".to_owned())
        }
        TasksError::Taken(_) => Err(Unavailable::new(&error, "end the program that loaded it")),
        TasksError::NoSchedExt => Err(Unavailable::new(
            &error,
            "boot Linux 6.12 or later with CONFIG_SCHED_CLASS_EXT=y and BTF (Debian's 6.18 has it); \
             until then `selvedge cpu run` uses SCHED_FIFO or SCHED_DEADLINE, where it may",
        )),
        TasksError::Load(LoadError::Program(ProgramError::NotPermitted)) => {
            Err(Unavailable::new(&error, "run as root"))
        }
        // Debian's 7.1 and 7.2 lack them.
        TasksError::Load(LoadError::Program(ProgramError::Refused { log, .. }))
            if log.contains("wasn't resolved") =>
        {
            Err(Unavailable::new(
                "the kernel refused the program: its type information (BTF) lacks functions of \
                 sched_ext",
                "boot another kernel, such as Debian's 6.18 or 7.0; until then `selvedge cpu run` uses \
                 SCHED_FIFO or SCHED_DEADLINE, where it may",
            ))
        }
        _ => Err(Unavailable::new(&error, "report this, with the kernel's release")),
    })
}

#[cfg(not(feature = "kernel"))]
fn sched_ext() -> Outcome {
    probe::sched_ext()
}

#[cfg(not(feature = "kernel"))]
fn qdisc() -> Outcome {
    Err(Unavailable::new(
        "this build is without it",
        "build with the feature `kernel` (needs clang 16 or later)",
    ))
}

#[cfg(feature = "gstreamer")]
fn media() -> Outcome {
    let remedy = "install the packages that tools/packages.txt names";
    selvedge_media::inspect::version().map_err(|why| Unavailable::new(why, remedy))
}

#[cfg(not(feature = "gstreamer"))]
fn media() -> Outcome {
    Err(Unavailable::new("this build is without it", "build with the feature `gstreamer`"))
}

/// A program that prints its version.
fn tool(program: &str, argument: &str, package: &str) -> Outcome {
    let install = format!("install the Debian package {package}");
    let output = Command::new(program).arg(argument).stdin(std::process::Stdio::null()).output();
    let output = output.map_err(|why| Unavailable::new(format!("{program}: {why}"), &install))?;
    // Some print it on one stream, some on the other, and busybox exits with a status of its own.
    let output_text = [output.stdout, output.stderr].concat();
    let output_text = String::from_utf8_lossy(&output_text);
    let first = output_text.lines().map(str::trim).find(|line| !line.is_empty());
    match first {
        Some(line) if output.status.success() => Ok(line.chars().take(80).collect()),
        _ => Err(Unavailable::new(format!("{program} {argument}: {}", output.status), &install)),
    }
}

fn release() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// Each placement: whether it has all that it needs, and its details.
fn placements(trials: &[Check]) -> Vec<PlacementJson<'static>> {
    let mut found: Vec<PlacementJson<'static>> = Vec::new();
    for Check { placement, needed, outcome, .. } in trials {
        if found.last().is_none_or(|last| last.placement != *placement) {
            found.push(PlacementJson { placement, works: true, complete: true });
        }
        if let Some(last) = found.last_mut() {
            last.works &= !needed || outcome.is_ok();
            last.complete &= outcome.is_ok();
        }
    }
    found
}

/// What CPU scheduling would use here, the best first.
fn cpu_scheduling(trials: &[Check]) -> &'static str {
    let works = |part: &str| trials.iter().any(|trial| trial.part == part && trial.outcome.is_ok());
    ["sched_ext", "SCHED_FIFO", "SCHED_DEADLINE"]
        .into_iter()
        .find(|part| works(part))
        .unwrap_or("none")
}

fn as_json(trial: &Check) -> TrialJson<'_> {
    let Check { placement, part, needed, outcome } = trial;
    let (found, remedy) = match outcome {
        Ok(found) => (found, None),
        Err(Unavailable { why, remedy }) => (why, Some(remedy.as_str())),
    };
    TrialJson { placement, part, needed: *needed, works: outcome.is_ok(), found, remedy }
}

fn as_text(trials: &[Check]) -> String {
    let mut table = Table::default().left(["placement", "part", "works", "found"]);
    let mut advice = String::new();
    let mut before = "";
    for Check { placement, part, needed, outcome } in trials {
        let name = if before == *placement { "" } else { placement };
        before = placement;
        let (works, found) = match outcome {
            Ok(found) => ("yes", found.clone()),
            Err(Unavailable { why, remedy }) => {
                advice.push_str(&format!("{placement}, {part}: {remedy}.\n"));
                // All of it, but on one line.
                (
                    if *needed { "no" } else { "without" },
                    why.lines().next().unwrap_or_default().to_owned(),
                )
            }
        };
        table.row([name, part, works, &found]);
    }
    let mut text = format!("Linux {}\n\n{table}", release());
    let names = |wanted: bool| {
        let names = placements(trials).into_iter().filter(|p| p.works == wanted);
        let names: Vec<&str> = names.map(|p| p.placement).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    text.push_str(&format!("\nworks: {}\nlacks something: {}\n", names(true), names(false)));
    text.push_str(&format!("CPU scheduling would use: {}\n", cpu_scheduling(trials)));
    if !advice.is_empty() {
        text.push_str(&format!("\nWhat would help:\n{advice}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(placement: &'static str, part: &'static str, needed: bool, works: bool) -> Check {
        let outcome =
            if works { Ok("fine".into()) } else { Err(Unavailable::new("it broke", "mend it")) };
        Check { placement, part, needed, outcome }
    }

    #[test]
    fn a_placement_works_if_all_that_it_needs_does() {
        let trials = [
            check("a", "one", true, true),
            check("a", "SCHED_DEADLINE", false, false),
            check("b", "sched_ext", true, false),
            check("b", "SCHED_FIFO", false, true),
        ];
        let found = placements(&trials);
        assert!(found[0].works && !found[0].complete && !found[1].works);
        assert_eq!(cpu_scheduling(&trials), "SCHED_FIFO");
        let text = as_text(&trials);
        assert!(text.contains("works: a\nlacks something: b\n"), "{text}");
        assert!(text.contains("b, sched_ext: mend it."), "{text}");
    }

    #[test]
    fn a_tool_that_is_not_there_is_said() {
        let missing = tool("selvedge-no-such-tool", "--version", "some-package").unwrap_err();
        assert!(missing.why.contains("selvedge-no-such-tool"));
        assert_eq!(missing.remedy, "install the Debian package some-package");
        assert!(tool("true", "x", "coreutils").is_err(), "it says nothing");
    }
}
