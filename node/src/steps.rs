//! The steps of links in E-code: their texts, read beside the node file and checked, loaded where each placement
//! runs them, and loaded anew when a reload finds another text. See NI coprocessors, sections 1.5 and 2.2.1.

use std::io::Read;
use std::path::Path;

use selvedge_control_config::{LinkConfig, NodeConfig, StepConfig};
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::code::{Code, StepError, StepSource};
use selvedge_units::Duration;

use crate::placement::PlacedLink;

/// How often steps see the state of a link that is sent elsewhere, and what they request there is done.
const EVERY: Duration = Duration::from_millis(100);
/// The longest text of a step, in bytes: E-code's own limit, by which longer ones are refused.
const LONGEST: u64 = 64 << 10;

/// A step whose text was read, and compiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadStep {
    pub(crate) config: StepConfig,
    pub(crate) source: StepSource,
}

/// A step that can't be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{key}: {why}")]
pub struct StepFailure {
    /// The key of the node file that must be changed, or that names the file that must be.
    pub key: String,
    /// The reason, with the line of the file where there is one.
    pub why: String,
}

impl ReadStep {
    fn new(config: &StepConfig, base: &Path) -> Result<Self, (&'static str, String)> {
        let StepConfig { code: file, fuel, parameters, .. } = config;
        let mut source = String::new();
        let text = std::fs::metadata(base.join(file)).and_then(|found| match found.is_file() {
            true => std::fs::File::open(base.join(file)),
            false => Err(std::io::Error::other("is no file")),
        });
        let read = text.and_then(|text| text.take(LONGEST + 1).read_to_string(&mut source));
        read.map_err(|why| ("code", format!("\"{file}\": {why}")))?;
        let (file, parameters) = (file.clone(), parameters.clone());
        let source = StepSource { file, source, fuel: *fuel, parameters };
        let step = Self { config: config.clone(), source };
        match Code::new(&step.source) {
            Ok(_) => Ok(step),
            Err(why @ (StepError::NoValue { .. } | StepError::Unknown { .. }))
                if !config.parameters.is_empty() =>
            {
                Err(("parameters", why.to_string()))
            }
            Err(why) => Err(("code", why.in_a_line())),
        }
    }
}

/// Reads and compiles the steps of all links, by link.
///
/// # Errors
/// All steps that can't be loaded.
pub(crate) fn read(
    config: &NodeConfig,
    base: &Path,
) -> Result<Vec<Vec<ReadStep>>, Vec<StepFailure>> {
    let mut failed = Vec::new();
    let mut of_link = |link: &LinkConfig| {
        let steps = link.steps.iter().zip(1..).filter_map(|(step, n)| {
            let key = |key| format!("link.{}.step.{n}.{key}", link.name);
            let read = ReadStep::new(step, base);
            read.map_err(|(at, why)| failed.push(StepFailure { key: key(at), why })).ok()
        });
        steps.collect()
    };
    let steps = config.links.iter().map(&mut of_link).collect();
    if failed.is_empty() { Ok(steps) } else { Err(failed) }
}

/// The steps of a node file that a node would not load, as [`Node::start`](crate::Node::start) finds them.
#[must_use]
pub fn wrong_steps(config: &NodeConfig, base: &Path) -> Vec<StepFailure> {
    read(config, base).err().unwrap_or_default()
}

/// Brings a link's steps from the old ones to the new ones; those that stay the same go on.
pub(crate) fn renew(placed: &dyn PlacedLink, old: &[ReadStep], new: &[ReadStep]) {
    let same_place = |one: &ReadStep, other: &ReadStep| {
        one.config.name == other.config.name && one.config.at == other.config.at
    };
    for gone in old.iter().filter(|one| !new.iter().any(|other| same_place(one, other))) {
        placed.unload(&gone.config.name);
    }
    for step in new.iter().filter(|one| !old.contains(one)) {
        if !placed.load(&step.config, &step.source) {
            tracing::error!(step = step.config.name, "its link did not take a step");
        }
    }
}

/// Keeps steps up to date by `refresh`, until that returns false or the keeper ends.
pub(crate) fn follow(refresh: impl Fn() -> bool + Send + 'static) -> std::io::Result<Keeper> {
    Keeper::start("steps".to_owned(), move |stop: &Stop| {
        while !stop.is_requested() && refresh() {
            stop.pause(EVERY);
        }
    })
}
