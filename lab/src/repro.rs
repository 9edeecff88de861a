//! `selvedge-lab repro`: the papers' experiments, run here, their claims checked.

mod list;
mod report;

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, UNIX_EPOCH};

use clap::Args;
use selvedge_cli_terminal::{Failure, Table, signals};
use selvedge_lab_repro::record::{self, Record};
use selvedge_lab_repro::{
    CounterTest, EXPERIMENTS, Experiment, Kind, Outcome, Params, ProgressWatch, RunError,
    counter_tests, find,
};
use selvedge_units::nearest;
use serde_json::{Value, json};

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["ids", "all", "list"]))]
pub(crate) struct ReproArgs {
    /// Experiments, such as ss-t3
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// All of them
    #[arg(long)]
    all: bool,
    /// List them, with how each last ended
    #[arg(long)]
    list: bool,
    /// Only those of this kind
    #[arg(long, ignore_case = true, conflicts_with = "list")]
    kind: Option<ReproKind>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
    /// Write ID.json, and ID.svg and ID.png where there is a plot, to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Fewer cases and shorter measurements
    #[arg(long)]
    quick: bool,
    /// What random choices are made from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run under an edited input, with which a claim must fail; `--list --json` names them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "list"])]
    edit: Option<String>,
    /// Run under each edited input as well, and fail if a claim failed under none
    #[arg(long, conflicts_with_all = ["edit", "list"])]
    counter_tests: bool,
    /// Bring a page in Markdown up to date with the outcomes and their counter-tests, which run the quick way
    #[arg(long, value_name = "FILE", conflicts_with_all = ["edit", "list", "counter_tests"])]
    report: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReproKind {
    /// Virtual time
    V,
    /// Real time on this machine
    R,
    /// A model of a device
    M,
}

impl ReproKind {
    /// Whether an experiment is of this kind.
    fn of(self, kind: selvedge_lab_repro::Kind) -> bool {
        use selvedge_lab_repro::Kind;
        kind == match self {
            Self::V => Kind::Virtual,
            Self::R => Kind::Real,
            Self::M => Kind::Model,
        }
    }
}

pub(crate) fn command(args: &ReproArgs) -> Result<(), Failure> {
    if args.list {
        return list::print(args.json);
    }
    let chosen = chosen(args)?;
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::input(format!("--out {}: {error}", folder.display())))?;
    }
    let edit = args.edit.as_deref().map(|name| edit(&chosen, name)).transpose()?;
    let params = Params { seed: args.seed, quick: args.quick, edit };
    let stop = signals::stop_flag()?;
    let mut failed = Vec::new();
    let mut all = Vec::new();
    for (place, experiment) in chosen.iter().enumerate() {
        let place = (place + 1, chosen.len());
        let last_report = Cell::new(Instant::now());
        let progress = Progress { place, experiment, stop: &stop, reported_at: last_report };
        let run = run(experiment, &params, args.counter_tests || args.report.is_some(), &progress)?;
        if let Some(file) = &args.report {
            report::add(file, &run, &params)?;
        }
        if !run.passed() {
            failed.push(experiment.id);
        }
        let outcome = match &run.outcome {
            Ok(outcome) => outcome,
            Err(error) if chosen.len() == 1 => {
                return Err(Failure::failed(could_not_run(experiment, error)));
            }
            Err(error) => {
                eprintln!("{}", could_not_run(experiment, error));
                continue;
            }
        };
        let whole = whole(&run, &params, outcome);
        if let Some(folder) = &args.out {
            write_files(folder, experiment, outcome, &whole)?;
        }
        if args.json {
            all.push(whole);
        } else {
            print(&run, &params, outcome)?;
        }
    }
    if args.json {
        writeln!(io::stdout().lock(), "{}", json!({ "experiments": all }))?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        let count = chosen.len();
        let failed = format!("{} of {count} failed: {}", failed.len(), failed.join(", "));
        Err(Failure::failed(failed))
    }
}

/// One experiment as it was run.
struct Run {
    experiment: &'static Experiment,
    outcome: Result<Outcome, RunError>,
    took: Duration,
    /// Of each claim, if they were wanted.
    counter_tests: Vec<CounterTest>,
}

impl Run {
    /// Whether each claim held, and each that was tried under edits failed under one.
    fn passed(&self) -> bool {
        self.outcome.as_ref().is_ok_and(Outcome::passed)
            && !self.counter_tests.iter().any(CounterTest::cannot_fail)
    }
}

/// Runs an experiment, and where it is wanted its counter-tests, which are always quick. Fails only if it is stopped.
fn run(
    experiment: &'static Experiment,
    params: &Params,
    with_counter_tests: bool,
    progress: &Progress<'_>,
) -> Result<Run, Failure> {
    let begun = Instant::now();
    let outcome = (experiment.run)(params, progress);
    let took = begun.elapsed();
    let mut run = Run { experiment, outcome, took, counter_tests: Vec::new() };
    if let (Ok(outcome), None) = (&run.outcome, params.edit) {
        keep(experiment, params, outcome);
    }
    if let (Ok(outcome), true) = (&run.outcome, with_counter_tests) {
        let quick = Params { quick: true, ..*params };
        match counter_tests(experiment, &quick, outcome, progress) {
            Ok(tests) => run.counter_tests = tests,
            Err(error) => run.outcome = Err(error),
        }
    }
    progress.clear();
    match run.outcome {
        Err(RunError::Stopped) => Err(Failure::failed("stopped; what was done before is kept")),
        _ => Ok(run),
    }
}

fn could_not_run(experiment: &Experiment, error: &RunError) -> String {
    format!("{}: {error}", experiment.id)
}

/// The edit of this name of the only experiment that was asked for.
fn edit(chosen: &[&'static Experiment], name: &str) -> Result<&'static str, Failure> {
    let [experiment] = chosen else {
        return Err(Failure::input("--edit is for one experiment"));
    };
    let names = || experiment.edits.iter().map(|edit| edit.name);
    names().find(|known| *known == name).ok_or_else(|| {
        let known = names().collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "no edit".to_owned() } else { known };
        Failure::input(format!("{} has no edit \"{name}\"; there is {known}", experiment.id))
    })
}

/// The experiments that were asked for, in the order of the list; each once.
fn chosen(args: &ReproArgs) -> Result<Vec<&'static Experiment>, Failure> {
    for id in &args.ids {
        if find(id).is_none() {
            let ids = || EXPERIMENTS.iter().map(|experiment| experiment.id);
            let remedy = match nearest(id, ids()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("there are {}", ids().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::input(format!("there is no experiment \"{id}\"; {remedy}")));
        }
    }
    let wanted = |experiment: &&Experiment| {
        let named = args.all || args.ids.iter().any(|id| id == experiment.id);
        named && args.kind.is_none_or(|kind| kind.of(experiment.kind))
    };
    let chosen: Vec<_> = EXPERIMENTS.iter().filter(wanted).collect();
    if chosen.is_empty() {
        let none =
            "no experiment of this kind is among those named; see `selvedge-lab repro --list`";
        return Err(Failure::input(none));
    }
    Ok(chosen)
}

/// Says what is being done, where somebody looks; hears when to stop.
struct Progress<'a> {
    place: (usize, usize),
    experiment: &'a Experiment,
    stop: &'a Arc<AtomicBool>,
    /// When something was said last.
    reported_at: Cell<Instant>,
}

/// How often a line says what is being done where nobody looks at a terminal: only of experiments in real
/// time, which take long.
const REPORT_EVERY: Duration = Duration::from_secs(5);

impl Progress<'_> {
    /// Takes the last line of progress away.
    fn clear(&self) {
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
    }
}

impl ProgressWatch for Progress<'_> {
    fn step(&self, what: &str) {
        let (at, of) = self.place;
        if io::stderr().is_terminal() {
            eprint!("\r\x1b[K{at}/{of} {}: {what}", self.experiment.id);
        } else if self.experiment.kind == Kind::Real
            && self.reported_at.get().elapsed() >= REPORT_EVERY
        {
            self.reported_at.set(Instant::now());
            eprintln!("{at}/{of} {}: {what}", self.experiment.id);
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Remembers the outcome for `--list`. An experiment that ran is worth more than its record: if
/// that cannot be written, a warning says so.
fn keep(experiment: &Experiment, params: &Params, outcome: &Outcome) {
    let Some(folder) = record::folder() else { return };
    let now = selvedge_os::clock::wall_time().duration_since(UNIX_EPOCH);
    let ended = now.map_or(0, |now| now.as_secs());
    if let Err(error) = record::write(&folder, &Record::new(experiment, params, outcome, ended)) {
        tracing::warn!(
            "the outcome of {} is not kept: {}: {error}",
            experiment.id,
            folder.display()
        );
    }
}

/// Everything but the plots.
fn whole(run: &Run, params: &Params, outcome: &Outcome) -> Value {
    let experiment = run.experiment;
    let tests = run.counter_tests.iter();
    let tests: Vec<_> =
        tests.map(|test| json!({ "claim": test.claim, "fails_under": test.fails_under })).collect();
    json!({
        "id": experiment.id,
        "title": experiment.title,
        "paper": experiment.paper,
        "section": experiment.section,
        "kind": experiment.kind,
        "claim": experiment.claim,
        "seed": params.seed,
        "quick": params.quick,
        "edit": params.edit,
        "passed": outcome.passed(),
        "claims": outcome.claims,
        "counter_tests": tests,
        "tables": outcome.tables,
        "notes": outcome.notes,
    })
}

/// `ID.json`, and for each plot `ID.svg` and `ID.png`, `ID-2.svg` and so on.
fn write_files(
    folder: &Path,
    experiment: &Experiment,
    outcome: &Outcome,
    whole: &Value,
) -> Result<(), Failure> {
    let write = |name: String, bytes: &[u8]| {
        let path = folder.join(name);
        record::replace(&path, bytes)
            .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
    };
    let text = serde_json::to_string_pretty(whole).map_err(Failure::failed)?;
    write(format!("{}.json", experiment.id), format!("{text}\n").as_bytes())?;
    for (n, plot) in (1..).zip(&outcome.plots) {
        let name = if n == 1 { experiment.id.to_owned() } else { format!("{}-{n}", experiment.id) };
        write(format!("{name}.svg"), plot.svg().map_err(Failure::failed)?.as_bytes())?;
        write(format!("{name}.png"), &plot.png().map_err(Failure::failed)?)?;
    }
    Ok(())
}

fn print(run: &Run, params: &Params, outcome: &Outcome) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Experiment { id, title, paper, section, kind, edits, .. } = run.experiment;
    writeln!(out, "{id}: {title}")?;
    writeln!(out, "  {paper}, {section}")?;
    write!(out, "  {kind}: {}; seed {}", kind.meaning(), params.seed)?;
    writeln!(out, "{}\n", if params.quick { "; quick" } else { "" })?;
    for table in &outcome.tables {
        let right = |column: usize| {
            table.rows.iter().filter_map(|row| row.get(column)).all(|cell| cell.is_number())
        };
        let columns = table.columns.iter().enumerate();
        let mut shown = columns.fold(Table::default(), |shown, (n, name)| match right(n) {
            true => shown.right([name]),
            false => shown.left([name]),
        });
        for row in &table.rows {
            shown.row(row.iter().map(|cell| cell.shown()));
        }
        writeln!(out, "{}\n{shown}", table.title)?;
    }
    for claim in &outcome.claims {
        writeln!(out, "{:6} {}: {}", claim.verdict(), claim.text, claim.found)?;
    }
    if let Some(edit) = edits.iter().find(|edit| params.is_edited(edit.name)) {
        writeln!(out, "edited {}", edit.what)?;
    }
    for test in &run.counter_tests {
        let found = match test.fails_under.as_slice() {
            [] if !test.is_tried => "untried".to_owned(),
            [] => "under no edit".to_owned(),
            names => format!("under {}", names.join(", ")),
        };
        writeln!(out, "fails  {found}: {}", test.claim)?;
    }
    for note in &outcome.notes {
        writeln!(out, "note   {note}")?;
    }
    writeln!(out)
}
