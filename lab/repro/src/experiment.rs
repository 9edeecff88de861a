//! What an experiment is: its name, its paper, its claim, and how it is run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;

/// What sort of figures an experiment gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Virtual time: the same output for the same seed, on every machine.
    #[serde(rename = "V")]
    Virtual,
    /// Real time on this machine.
    #[serde(rename = "R")]
    Real,
    /// A model of a device with the paper's constants.
    #[serde(rename = "M")]
    Model,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Virtual, Self::Real, Self::Model];

    /// The letter in lists: V, R or M.
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Virtual => "V",
            Self::Real => "R",
            Self::Model => "M",
        }
    }

    /// What the letter stands for.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Virtual => "virtual time",
            Self::Real => "real time on this machine",
            Self::Model => "a model of a device, with the paper's constants",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.letter())
    }
}

/// An experiment of a paper: one table or figure.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// What it is called on the command line, such as `ss-t3`.
    pub id: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// The paper's title.
    pub paper: &'static str,
    /// The table, figure and section.
    pub section: &'static str,
    /// What sort of figures it gives.
    pub kind: Kind,
    /// What must hold, in a line; the outcome has it in checkable parts.
    pub claim: &'static str,
    /// Edited inputs, under each of which a claim fails.
    pub edits: &'static [Edit],
    /// Runs it.
    pub run: fn(&Params, &dyn ProgressWatch) -> Result<Outcome, RunError>,
}

/// An edited input of an experiment: a claim that holds without it fails with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What it is called on the command line, such as `no-losses`.
    pub name: &'static str,
    /// What is changed, in a line.
    pub what: &'static str,
}

/// How an experiment is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// What random choices are made from.
    pub seed: u64,
    /// Smaller, for checks: same claims, fewer cases or shorter measurements.
    pub quick: bool,
    /// The name of the edit under which it runs.
    pub edit: Option<&'static str>,
}

impl Params {
    /// The larger amount, or the smaller if it is to be quick.
    #[must_use]
    pub const fn amount<T: Copy>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Whether the run is under the edit of this name.
    #[must_use]
    pub fn is_edited(&self, name: &str) -> bool {
        self.edit == Some(name)
    }

    /// The edited value under the edit of this name, the other without it.
    #[must_use]
    pub fn edited<T>(&self, name: &str, value: T, edited: T) -> T {
        if self.is_edited(name) { edited } else { value }
    }
}

impl Default for Params {
    fn default() -> Self {
        Self { seed: 1, quick: false, edit: None }
    }
}

/// Who looks on while an experiment runs.
pub trait ProgressWatch {
    /// What is being done now, in a few words; called between pieces of work of a second or less,
    /// or as near to that as can be.
    fn step(&self, what: &str);

    /// Whether the experiment is to be given up.
    fn stopped(&self) -> bool;
}

impl dyn ProgressWatch + '_ {
    /// [`ProgressWatch::step`], unless it is to be given up.
    ///
    /// # Errors
    /// [`RunError::Stopped`].
    pub(crate) fn go_on(&self, what: &str) -> Result<(), RunError> {
        if self.stopped() {
            return Err(RunError::Stopped);
        }
        self.step(what);
        Ok(())
    }
}

/// Nobody looks on.
#[derive(Clone, Copy, Debug)]
pub struct NoWatch;

impl ProgressWatch for NoWatch {
    fn step(&self, _: &str) {}

    fn stopped(&self) -> bool {
        false
    }
}

/// Why an experiment has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It was asked to stop.
    #[error("stopped before the end")]
    Stopped,
    /// It needs sockets, and the machine gives none.
    #[error("it needs UDP sockets on the loopback: {0}")]
    Sockets(#[from] selvedge_os::SocketError),
    /// It needs priorities that this user or machine does not have.
    #[error("{0}")]
    Rights(String),
    /// It needs another process.
    #[error("it needs another process: {0}")]
    Peer(String),
    /// It needs something of the machine that is not there, as the text says.
    #[error("{0}")]
    Needs(String),
    /// It needs stacks.
    #[error("it needs stacks: {0}")]
    Stacks(#[from] selvedge_lab_peers_stack::configurations::ConfigurationError),
    /// Its simulated network can't be.
    #[error("its network: {0}")]
    Network(#[from] selvedge_sim::NetworkError),
    /// The simulation broke off.
    #[error("its simulation: {0}")]
    Simulation(#[from] selvedge_sim::RunError),
    /// It needs a coprocessor.
    #[error("it needs a coprocessor: {0}")]
    Coprocessor(#[from] selvedge_lab_measure::coprocessor::BenchError),
    /// It needs nodes, a coprocessor and clips.
    #[error("it needs nodes that play clips: {0}")]
    Immunity(#[from] selvedge_lab_measure::immunity::ImmunityError),
    /// It needs a program.
    #[error("it needs {program} (Debian package {package}): {why}")]
    Program {
        /// Its name.
        program: &'static str,
        /// The package that it comes in.
        package: &'static str,
        /// What the system said.
        why: std::io::Error,
    },
    /// It needs the simulated hardware.
    #[error("it needs the simulated hardware: {0}")]
    Simulator(#[from] selvedge_lab_rtl::SimulatorError),
    /// It needs synthesis.
    #[error("it needs synthesis: {0}")]
    Synthesis(#[from] selvedge_lab_rtl::synth::SynthError),
}
