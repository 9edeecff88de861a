//! `bench immunity`: two clips and bulk through nodes side by side, beside endless loops, by where links are scheduled.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use selvedge_cli_terminal::{Failure, Table};
use selvedge_data_sched::Discipline;
use selvedge_lab_measure::immunity::{
    Campaign, ImmunityError, LINK, NOISE, Place, StreamRow, campaign, clips,
};
use selvedge_units::Duration;
use serde_json::json;

#[derive(Debug, Args)]
pub(crate) struct ImmunityArgs {
    /// How many seconds frames come under each load
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How often each load has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=31))]
    rounds: u8,
    /// Endless loops on each core, load by load; the first is what the others are compared with
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 4], value_parser = clap::value_parser!(u8).range(0..=16))]
    loops: Vec<u8>,
    /// Where links are scheduled; `kernel` goes alone
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [At::Plain, At::Inline, At::Coprocessor])]
    placement: Vec<At>,
    /// The order in which streams are served
    #[arg(long, default_value = "dwcs", value_parser = discipline)]
    discipline: Discipline,
    /// The folder of the clips
    #[arg(long, value_name = "DIR")]
    clips: Option<PathBuf>,
    /// One round of 5 s without loops and beside four a core
    #[arg(long, conflicts_with_all = ["seconds", "rounds", "loops"])]
    quick: bool,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Where a link is scheduled, as it is typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum At {
    /// A thread of the node without what it requests of the kernel
    Plain,
    /// A thread of the node
    Inline,
    /// A process of its own
    Coprocessor,
    /// A coprocessor whose threads are put into the ordinary class
    Ordinary,
    /// A qdisc of the loopback device
    Kernel,
}

impl At {
    const fn place(self) -> Place {
        match self {
            Self::Plain => Place::Plain,
            Self::Inline => Place::Inline,
            Self::Coprocessor => Place::Coprocessor,
            Self::Ordinary => Place::OrdinaryCoprocessor,
            Self::Kernel => Place::Kernel,
        }
    }
}

/// The text names no discipline.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write one of dwcs, edf, fifo and the others of docs/disciplines.md")]
struct DisciplineError;

fn discipline(text: &str) -> Result<Discipline, DisciplineError> {
    Discipline::from_name(text).ok_or(DisciplineError)
}

pub(super) fn command(args: &ImmunityArgs) -> Result<(), Failure> {
    let places: Vec<Place> = args.placement.iter().map(|at| at.place()).collect();
    if places.contains(&Place::Kernel) && places.len() > 1 {
        return Err(Failure::input(
            "--placement kernel schedules all of the loopback device, so it goes alone; leave the others out",
        ));
    }
    let loops: Vec<usize> = args.loops.iter().copied().map(usize::from).collect();
    let asked = Campaign {
        places: &places,
        discipline: args.discipline,
        loads: &loops,
        rounds: args.rounds.into(),
        lasts: Duration::from_secs(args.seconds),
    };
    let quick = Campaign { loads: &[0, 4], rounds: 1, lasts: Duration::from_secs(5), ..asked };
    let asked = if args.quick { quick } else { asked };
    let clips = clips(args.clips.clone()).map_err(Failure::input)?;
    let step = |what: &str| -> Result<(), ImmunityError> {
        eprintln!("{what}");
        Ok(())
    };
    let figures = campaign(&asked, &clips, step).map_err(Failure::failed)?;
    let (calm, rounds) = figures.rounds;
    let mut out = std::io::stdout().lock();
    if args.json {
        let json = json!({
            "discipline": asked.discipline.name(),
            "link_bps": LINK.0,
            "seconds": asked.lasts.as_secs_f64(),
            "rounds": rounds,
            "noisy_rounds": rounds - calm,
            "bare_late_ms": figures.bare.as_millis_f64(),
            "streams": figures.rows.iter().map(row).collect::<Vec<_>>(),
        });
        return Ok(writeln!(out, "{json}")?);
    }
    let columns =
        ["kbit/s", "of unloaded", "on time", "decodable", "of unloaded", "packets", "wait, ms"];
    let mut table =
        Table::default().left(["scheduled by", "loops", "clip"]).right(columns).left([""]);
    for row in &figures.rows {
        let (which, wait) = row.wait();
        table.row([
            row.place.name().to_owned(),
            row.load.to_string(),
            row.clip.clone(),
            format!("{:.1}", row.kbps),
            format!("{:.3}", row.kbps_ratio),
            format!("{:.3}", row.on_time),
            format!("{:.3}", row.decodable),
            format!("{:.3}", row.decodable_ratio),
            row.waited.count().to_string(),
            format!("{:.2}", wait.as_millis_f64()),
            which.to_owned(),
        ]);
    }
    write!(
        out,
        "Two clips beside bulk on a link of {LINK} under {}, beside loops on each core: medians of {rounds} rounds of \
         {}.\nA bare real-time thread was at most {:.2} ms late (99.9th percentile); {} rounds, in which it was late by \
         {NOISE} or more, are left out.\n{table}",
        asked.discipline.name(),
        asked.lasts,
        figures.bare.as_millis_f64(),
        rounds - calm,
    )?;
    if figures.is_noisy() {
        writeln!(out, "Not judged: noisy. Too few rounds were free of the machine's own delays.")?;
    }
    Ok(())
}

fn row(row: &StreamRow) -> serde_json::Value {
    let (which, wait) = row.wait();
    json!({
        "scheduled_by": row.place.name(),
        "loops": row.load,
        "clip": row.clip,
        "kbps": row.kbps,
        "kbps_of_unloaded": row.kbps_ratio,
        "on_time": row.on_time,
        "decodable": row.decodable,
        "decodable_of_unloaded": row.decodable_ratio,
        "packets": row.waited.count(),
        "wait_ms": wait.as_millis_f64(),
        "wait_is": which,
    })
}
