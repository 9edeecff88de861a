//! `selvedge schedule`: a trace replayed in unit slots, by the scheduler alone, by a placement's whole
//! engine, or the kernel. All of them read the same trace and print the same lines.

use std::ffi::OsString;

use selvedge_cli_terminal::Failure;
use selvedge_cli_terminal::trace::{Lines, read};
use selvedge_data_sched::replay::Replay;
use selvedge_place_coprocessor::unit_slot::shared;
use selvedge_place_engine::engine::unit_slot::{UnitSlotError, UnitSlots};

use crate::cli::{Engine, ScheduleArgs};
use crate::lab;

pub(crate) fn command(args: &ScheduleArgs, verbose: u8) -> Result<(), Failure> {
    if args.engine == Engine::Rtl {
        return in_lab(args, verbose);
    }
    let name = args.file.display().to_string();
    let trace = read(&args.file, args.discipline.as_deref())?;
    let mut out = Lines::new(&trace);
    match args.engine {
        Engine::Software => {
            let mut replay = Replay::new(&trace);
            out.events(&mut replay)?;
            out.totals(replay.totals().map(|(_, counters, window)| (counters, window)))
        }
        Engine::Inline => {
            let outcome = UnitSlots::inline(&trace).and_then(UnitSlots::run);
            out.outcome(outcome.map_err(|why| of_engine(&name, &why))?)
        }
        Engine::Coprocessor => {
            let (slots, _) = shared(&trace).map_err(|why| of_engine(&name, &why))?;
            out.outcome(slots.run().map_err(|why| of_engine(&name, &why))?)
        }
        Engine::Rtl => unreachable!("handed on above"),
        #[cfg(feature = "kernel")]
        Engine::Kernel => {
            use selvedge_place_kernel::ReplayError::{Discipline, Setup, Streams};
            let replayed = selvedge_place_kernel::Replay::load(trace.discipline);
            let outcome = replayed.and_then(|replay| replay.run(&trace)).map_err(|why| {
                let text = format!("{name}: {why}");
                match why {
                    Setup(_) | Streams { .. } | Discipline { .. } => Failure::input(text),
                    _ => Failure::failed(text),
                }
            })?;
            out.outcome(outcome)
        }
    }
}

/// Runs `selvedge-lab schedule`.
fn in_lab(args: &ScheduleArgs, verbose: u8) -> Result<(), Failure> {
    let mut words: Vec<OsString> = vec!["schedule".into(), "--engine".into(), "rtl".into()];
    if let Some(discipline) = &args.discipline {
        words.extend(["--discipline".into(), discipline.into()]);
    }
    words.extend(["--".into(), args.file.clone().into()]);
    lab::run(words, verbose)
}

fn of_engine(name: &str, why: &UnitSlotError) -> Failure {
    Failure::failed(format!("{name}: {why}"))
}
