//! Every experiment, the quick way. Those in virtual time: their claims hold, and the same seed
//! gives the same outcome. Those in real time: they give figures; whether their claims hold is a
//! matter of the machine, and no test's.

use std::io::Write;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use selvedge_lab_repro::{
    Cell, EXPERIMENTS, Experiment, Kind, NoWatch, Outcome, Params, ProgressWatch, RunError,
    counter_tests,
};

/// A step may take so long, on a machine with much else to do: beyond it, something hangs.
const STEP_MAX: Duration = Duration::from_secs(600);
/// An experiment that takes longer is reported.
const LONG: Duration = Duration::from_secs(20);

/// What is heard of an experiment.
enum Said {
    Step(String),
    Done(Result<Outcome, String>),
}

struct Told(Sender<Said>);

impl ProgressWatch for Told {
    fn step(&self, what: &str) {
        // The thread that waited for it may have given up.
        let _ = self.0.send(Said::Step(what.to_owned()));
    }

    fn stopped(&self) -> bool {
        false
    }
}

/// Runs it the quick way, on a thread of its own: one that hangs is reported with its name and step.
fn quick(experiment: &Experiment, seed: u64) -> Outcome {
    attempt(experiment, seed).unwrap_or_else(|error| panic!("{}: {error}", experiment.id))
}

fn attempt(experiment: &Experiment, seed: u64) -> Result<Outcome, String> {
    let (tell, told) = channel();
    let (run, id) = (experiment.run, experiment.id);
    std::thread::spawn(move || {
        let outcome = run(&Params { seed, quick: true, edit: None }, &Told(tell.clone()));
        let _ = tell.send(Said::Done(outcome.map_err(|error| error.to_string())));
    });
    let mut step = "its beginning".to_owned();
    let begun = Instant::now();
    let outcome = loop {
        match told.recv_timeout(STEP_MAX) {
            Ok(Said::Step(next)) => step = next,
            Ok(Said::Done(outcome)) => break outcome,
            Err(why) => panic!("{id}: {why} at \"{step}\", after {:?}", begun.elapsed()),
        }
    };
    if begun.elapsed() > LONG {
        // Past the harness, which would hide it: what takes long is seen while it does.
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "{id} took {:.0} s", begun.elapsed().as_secs_f64());
    }
    outcome
}

fn of_kind(kind: Kind) -> impl Iterator<Item = &'static Experiment> {
    EXPERIMENTS.iter().filter(move |experiment| experiment.kind == kind)
}

#[test]
fn claims_in_virtual_time_hold_for_any_seed_and_the_same_seed_gives_the_same_outcome() {
    for experiment in of_kind(Kind::Virtual) {
        let outcomes = [1, u64::MAX, 1].map(|seed| quick(experiment, seed));
        for outcome in &outcomes[..2] {
            let failed: Vec<_> = outcome.claims.iter().filter(|claim| !claim.passed).collect();
            assert!(failed.is_empty(), "{}: {failed:#?}", experiment.id);
            assert!(!outcome.claims.is_empty(), "{}: claims nothing", experiment.id);
        }
        let [first, _, again] = &outcomes;
        assert_eq!(first, again, "{}", experiment.id);
        for plot in &first.plots {
            assert_eq!(plot.svg().unwrap(), plot.svg().unwrap(), "{}", experiment.id);
        }
    }
}

#[test]
fn experiments_in_real_time_give_finite_figures() {
    for experiment in of_kind(Kind::Real) {
        let outcome = match attempt(experiment, 1) {
            // Services can't watch there.
            Err(error) if error.contains("PID namespace") => {
                eprintln!("SKIPPED: {}: {error}", experiment.id);
                continue;
            }
            other => other.unwrap_or_else(|error| panic!("{}: {error}", experiment.id)),
        };
        assert!(!outcome.tables.is_empty() && !outcome.claims.is_empty(), "{}", experiment.id);
        let cells = outcome.tables.iter().flat_map(|table| table.rows.iter().flatten());
        for cell in cells {
            assert!(!matches!(cell, Cell::Figure(f) if !f.is_finite()), "{}", experiment.id);
        }
    }
}

/// Wants to stop after so many steps.
struct Impatient(std::cell::Cell<u32>);

impl ProgressWatch for Impatient {
    fn step(&self, _: &str) {
        self.0.set(self.0.get().saturating_sub(1));
    }

    fn stopped(&self) -> bool {
        self.0.get() == 0
    }
}

#[test]
fn every_experiment_can_be_stopped() {
    for experiment in EXPERIMENTS {
        let params = Params { seed: 1, quick: true, edit: None };
        let outcome = (experiment.run)(&params, &Impatient(std::cell::Cell::new(0)));
        assert!(matches!(outcome, Err(RunError::Stopped)), "{}", experiment.id);
    }
}

/// Whether claims of these hold, with and without edits, is a matter of the machine: they measure what other work on
/// it delays.
const LOADED: [&str; 10] = [
    "ni-t4",
    "ni-f5",
    "ni-f6",
    "ni-elim",
    "ss-real",
    "au-florb",
    "ca-f6-real",
    "ca-f7-real",
    "ca-f8-real",
    "ca-f9-real",
];

#[test]
fn each_claim_of_the_first_three_papers_fails_under_an_edit() {
    let papers = ["ni-", "ss-", "ca-"];
    let params = Params { quick: true, ..Params::default() };
    let of_papers = EXPERIMENTS
        .iter()
        .filter(|experiment| papers.iter().any(|paper| experiment.id.starts_with(paper)))
        .filter(|experiment| !LOADED.contains(&experiment.id));
    for experiment in of_papers {
        let plain = quick(experiment, params.seed);
        let tests = counter_tests(experiment, &params, &plain, &NoWatch).unwrap();
        assert_eq!(tests.len(), plain.claims.len());
        for test in tests {
            // A noisy machine leaves claims in real time unjudged.
            let is_left = experiment.kind == Kind::Real && !test.is_tried;
            assert!(is_left || !test.fails_under.is_empty(), "{}: {}", experiment.id, test.claim);
        }
    }
}
