//! Extensions at named points of an engine, loaded and removed while it runs: the run-time extension of the
//! papers' Distributed Virtual Communication Machine (NI coprocessors, sections 1.5, 2.1.3 and 3.2.4).
//!
//! An extension runs on the engine's thread, so it must be quick; its cost is measured and reported.

use selvedge_data_link::Link;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{Frame, Windows};
use selvedge_units::{Duration, Instant};

use selvedge_os::clock::Clock;

selvedge_units::named! {
    /// The points at which an extension may run.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Stage {
        /// A frame was dequeued from its ring and is not with the link yet.
        Arrival = "arrival",
        /// The engine is about to query the link for the next frame.
        Choice = "choice",
        /// Packets of a frame have been handed to the kernel.
        Dispatch = "dispatch",
        /// A frame missed its deadline: it was dropped, or sent late.
        Miss = "miss",
    }
}

/// The input of an extension.
pub struct StepContext<'a> {
    /// The point at which it runs.
    pub point: Stage,
    /// The present instant.
    pub now: Instant,
    /// The link in its present state.
    pub link: &'a Link,
    /// The stream and its frame; none before a choice.
    pub frame: Option<(StreamIndex, &'a Frame)>,
}

/// The result of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Go,
    /// On arrival: the frame must not reach the link. Elsewhere the same as [`Action::Go`].
    Discard,
    /// The stream gets this priority.
    Priority(i32),
    /// The stream gets these windows.
    Windows(Windows),
}

/// An extension.
pub trait Extension: Send {
    /// Called each time an engine reaches the point.
    fn step(&mut self, moment: &StepContext<'_>) -> Action;

    /// How often it was ended before its time, without a result.
    fn faults(&self) -> u64 {
        0
    }
}

/// The counts and the cost of a loaded extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionReport {
    /// The name under which it was loaded.
    pub name: String,
    /// The point at which it runs.
    pub point: Stage,
    /// How often it was called.
    pub calls: u64,
    /// Frames that it discarded.
    pub discarded: u64,
    /// Calls that were ended by a fault.
    pub faults: u64,
    /// Time in it, all calls together.
    pub total: Duration,
    /// The longest call.
    pub longest: Duration,
}

struct Loaded {
    report: ExtensionReport,
    step: Box<dyn Extension>,
}

/// The extensions of an engine, in the order in which they were loaded.
#[derive(Default)]
pub(crate) struct Extensions {
    loaded: Vec<Loaded>,
    /// The number at each point, so that a point without any costs a comparison.
    at: [usize; 4],
}

/// The most extensions that an engine takes.
pub(crate) const EXTENSIONS_MAX: usize = 32;

impl Extensions {
    /// Loads an extension, in place of the one of the same name, if there is one. False if there are too
    /// many.
    pub(crate) fn load(&mut self, name: String, point: Stage, step: Box<dyn Extension>) -> bool {
        self.unload(&name);
        if self.loaded.len() == EXTENSIONS_MAX {
            return false;
        }
        let report = ExtensionReport {
            name,
            point,
            calls: 0,
            discarded: 0,
            faults: 0,
            total: Duration::ZERO,
            longest: Duration::ZERO,
        };
        self.loaded.push(Loaded { report, step });
        self.at[point as usize] += 1;
        true
    }

    /// Removes an extension; returns whether it was there.
    pub(crate) fn unload(&mut self, name: &str) -> bool {
        let Some(at) = self.loaded.iter().position(|one| one.report.name == name) else {
            return false;
        };
        let gone = self.loaded.remove(at);
        self.at[gone.report.point as usize] -= 1;
        true
    }

    /// Whether an extension runs at this point.
    pub(crate) const fn has_step_at(&self, point: Stage) -> bool {
        self.at[point as usize] > 0
    }

    pub(crate) fn reports(&self) -> Vec<ExtensionReport> {
        let report =
            |one: &Loaded| ExtensionReport { faults: one.step.faults(), ..one.report.clone() };
        self.loaded.iter().map(report).collect()
    }

    /// Runs the extensions at a point. True if the frame must be discarded; later ones do not run then.
    pub(crate) fn run(
        &mut self,
        clock: Clock,
        link: &mut Link,
        point: Stage,
        frame: Option<(StreamIndex, &Frame)>,
    ) -> bool {
        for Loaded { report, step } in &mut self.loaded {
            if report.point != point {
                continue;
            }
            let now = clock.now();
            let action = step.step(&StepContext { point, now, link, frame });
            let took = clock.now().since(now);
            report.calls += 1;
            report.total += took;
            report.longest = report.longest.max(took);
            match (action, frame) {
                (Action::Discard, _) if point == Stage::Arrival => {
                    report.discarded += 1;
                    return true;
                }
                (Action::Priority(priority), Some((stream, _))) => {
                    link.set_priority(stream, priority);
                }
                (Action::Windows(windows), Some((stream, _))) => link.set_windows(stream, windows),
                _ => {}
            }
        }
        false
    }
}
