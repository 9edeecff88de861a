//! Every experiment, the quick way. Those in virtual time: their claims hold, and the same seed
//! gives the same outcome. Those in real time: they give figures; whether their claims hold is a
//! matter of the machine, and no test's.

use selvedge_repro::{
    Cell, EXPERIMENTS, Experiment, Kind, Outcome, Params, RunError, Silent, Watch,
};

fn quick(experiment: &Experiment, seed: u64) -> Outcome {
    let params = Params { seed, quick: true };
    let outcome = (experiment.run)(&params, &Silent);
    outcome.unwrap_or_else(|error| panic!("{}: {error}", experiment.id))
}

fn of_kind(kind: Kind) -> impl Iterator<Item = &'static Experiment> {
    EXPERIMENTS.iter().filter(move |experiment| experiment.kind == kind)
}

#[test]
fn claims_in_virtual_time_hold_for_any_seed() {
    for experiment in of_kind(Kind::Virtual) {
        for seed in [1, u64::MAX] {
            let outcome = quick(experiment, seed);
            let failed: Vec<_> = outcome.claims.iter().filter(|claim| !claim.passed).collect();
            assert!(failed.is_empty(), "{}, seed {seed}: {failed:#?}", experiment.id);
            assert!(!outcome.claims.is_empty(), "{}: claims nothing", experiment.id);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    for experiment in of_kind(Kind::Virtual) {
        let [first, second] = [quick(experiment, 7), quick(experiment, 7)];
        assert_eq!(first, second, "{}", experiment.id);
        for plot in &first.plots {
            assert_eq!(plot.svg().unwrap(), plot.svg().unwrap(), "{}", experiment.id);
        }
    }
}

#[test]
fn experiments_in_real_time_give_finite_figures() {
    for experiment in of_kind(Kind::Real) {
        let outcome = quick(experiment, 1);
        assert!(!outcome.tables.is_empty() && !outcome.claims.is_empty(), "{}", experiment.id);
        let cells = outcome.tables.iter().flat_map(|table| table.rows.iter().flatten());
        for cell in cells {
            assert!(!matches!(cell, Cell::Figure(f) if !f.is_finite()), "{}", experiment.id);
        }
    }
}

/// Wants to stop after so many steps.
struct Impatient(std::cell::Cell<u32>);

impl Watch for Impatient {
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
        let params = Params { seed: 1, quick: true };
        let outcome = (experiment.run)(&params, &Impatient(std::cell::Cell::new(0)));
        assert!(matches!(outcome, Err(RunError::Stopped)), "{}", experiment.id);
    }
}
