//! Counter-tests: each claim of an experiment fails under one of its edited inputs, or it can't fail at all.

use crate::experiment::{Experiment, Params, ProgressWatch, RunError};
use crate::outcome::Outcome;

/// A claim, and the edits under which it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterTest {
    /// What must hold.
    pub claim: String,
    /// The names of the edits under which it does not.
    pub fails_under: Vec<&'static str>,
    /// Whether a run under an edit made the claim at all: a quick run makes fewer, and a noisy machine
    /// leaves some unjudged.
    pub is_tried: bool,
}

impl CounterTest {
    /// Whether it was tried, and failed under no edit.
    #[must_use]
    pub fn cannot_fail(&self) -> bool {
        self.is_tried && self.fails_under.is_empty()
    }
}

/// Runs an experiment under each of its edits. Gives each claim of `plain`, which ran without an edit, and each
/// edit under which it failed.
///
/// # Errors
/// Those of the experiment.
pub fn counter_tests(
    experiment: &Experiment,
    params: &Params,
    plain: &Outcome,
    watch: &dyn ProgressWatch,
) -> Result<Vec<CounterTest>, RunError> {
    let claims = plain.claims.iter();
    let mut tests: Vec<_> = claims
        .map(|claim| CounterTest {
            claim: claim.text.clone(),
            fails_under: Vec::new(),
            is_tried: false,
        })
        .collect();
    for edit in experiment.edits {
        let outcome = (experiment.run)(&Params { edit: Some(edit.name), ..*params }, watch)?;
        for claim in outcome.claims.iter().filter(|claim| claim.is_judged) {
            for test in tests.iter_mut().filter(|test| test.claim == claim.text) {
                test.is_tried = true;
                test.fails_under.extend((!claim.passed).then_some(edit.name));
            }
        }
    }
    Ok(tests)
}
