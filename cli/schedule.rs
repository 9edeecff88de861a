//! `selvedge schedule`: a trace replayed in unit slots, by the scheduler alone, by a placement's whole
//! engine, by the hardware or the kernel. Whoever replays it, it is read, changed and printed here.

use std::io::{self, BufWriter, Write};

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::{Event, Outcome, Replay, Trace};
use selvedge_data_sched::trace::Printer;
use selvedge_data_stream::Counters;
use selvedge_data_stream::Window;
use selvedge_place_coprocessor::unit_slot::shared;
use selvedge_place_engine::engine::unit_slot::{UnitSlotError, UnitSlots};
use selvedge_place_rtl::ReplayError;

use crate::cli::{Engine, Failure, ScheduleArgs};
use crate::input;

/// The longest trace that is read: 256 MB.
pub(crate) const TRACE_MAX: u64 = 256 << 20;

pub(crate) fn command(args: &ScheduleArgs) -> Result<(), Failure> {
    let name = args.file.display().to_string();
    let discipline = args.discipline.as_deref().map(named).transpose()?;
    let text = input::text(&args.file, TRACE_MAX)
        .map_err(|why| Failure::input(format!("{name}: {why}")))?;
    let mut trace = Trace::parse(&text, &name).map_err(Failure::input)?;
    trace.discipline = discipline.unwrap_or(trace.discipline);
    let mut out = Lines { printer: Printer::new(&trace), out: BufWriter::new(io::stdout().lock()) };
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
        Engine::Rtl => {
            let failed = |why: ReplayError| {
                let text = format!("{name}: {why}");
                match why {
                    ReplayError::Simulator(_) => Failure::failed(text),
                    _ => Failure::input(text),
                }
            };
            let mut replay = selvedge_place_rtl::trace::replay(&trace).map_err(failed)?;
            out.events(&mut replay)?;
            out.totals(replay.totals().iter().map(|total| (total.counters, total.window)))
        }
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

fn of_engine(name: &str, why: &UnitSlotError) -> Failure {
    Failure::failed(format!("{name}: {why}"))
}

/// A trace's lines, as they are printed.
struct Lines<W> {
    printer: Printer,
    out: W,
}

impl<W: Write> Lines<W> {
    fn events(&mut self, events: impl IntoIterator<Item = Event>) -> io::Result<()> {
        events.into_iter().try_for_each(|event| self.printer.event(&mut self.out, &event))
    }

    fn outcome(mut self, outcome: Outcome) -> Result<(), Failure> {
        self.events(outcome.events)?;
        self.totals(outcome.totals)
    }

    fn totals(
        mut self,
        totals: impl IntoIterator<Item = (Counters, Window)>,
    ) -> Result<(), Failure> {
        self.printer.totals(&mut self.out, totals.into_iter())?;
        Ok(self.out.flush()?)
    }
}

pub(crate) fn named(name: &str) -> Result<Discipline, Failure> {
    Discipline::from_name(name).ok_or_else(|| {
        let all = Discipline::ALL.map(Discipline::name).join(", ");
        Failure::input(format!("there is no discipline \"{name}\"; there are {all}"))
    })
}
