//! Extensions at named points of a link, loaded and removed while it runs: the run-time extension of the
//! papers' Distributed Virtual Communication Machine (NI coprocessors, sections 1.5, 2.1.3 and 3.2.4).
//!
//! An extension runs on the engine's thread, or on the thread of a frame's producer (`link_steps.rs`). It must
//! be quick; its cost is measured and reported.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_control_code::Struct;
pub use selvedge_control_config::Stage;
use selvedge_data_link::Link;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{Contract, Counters, Frame, ReceiverReport, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant, Share};

use selvedge_os::clock::Clock;

/// The input of an extension.
pub struct StepContext<'a> {
    /// The point at which it runs.
    pub point: Stage,
    /// The present instant.
    pub now: Instant,
    /// The link in its present state; none where a frame's producer runs the extension.
    pub link: Option<&'a Link>,
    /// The link's rate.
    pub rate: Bitrate,
    /// Bytes that wait in the link.
    pub backlog: Bytes,
    /// The stream and its frame; none before a choice.
    pub stream: Option<StepStream<'a>>,
}

/// A stream and its frame, as an extension sees them.
pub struct StepStream<'a> {
    /// The stream.
    pub index: StreamIndex,
    /// Its frame.
    pub frame: &'a Frame,
    /// What is known of the stream.
    pub facts: StreamFacts,
    /// What its receiver reports.
    pub heard: Heard,
}

/// What an extension knows of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamFacts {
    /// Its present contract.
    pub contract: Contract,
    /// The scheduler's counters of it.
    pub counters: Counters,
    /// Frames of it that wait in the link.
    pub queued: usize,
}

/// What a stream's receiver reports, or the far end of the bond that carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Whether it reports at present.
    pub is_reported: bool,
    /// The share of packets that is lost, if that is known.
    pub loss: Option<Share>,
    /// From a packet to its report, if that is known.
    pub round_trip: Option<Duration>,
    /// How long packets wait in queues, if that is known.
    pub queueing: Option<Duration>,
    /// The frames that came, if the receiver counts frames.
    pub frames: Option<ReceiverReport>,
}

/// What the receivers of a link's streams report, by the streams' numbers.
#[derive(Default)]
pub(crate) struct AllHeard(Mutex<Vec<Heard>>);

impl AllHeard {
    pub(crate) fn set(&self, stream: usize, heard: Heard) {
        let all = &mut *self.0.lock();
        all.resize(all.len().max(stream + 1), Heard::default());
        all[stream] = heard;
    }

    pub(crate) fn of(&self, stream: usize) -> Heard {
        self.0.lock().get(stream).copied().unwrap_or_default()
    }
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

    /// What it keeps from call to call, with the layout of that; none if it keeps nothing.
    fn state(&self) -> Option<(&Struct, &[u8])> {
        None
    }

    /// Takes over the state of the extension in whose place it is loaded, if the layout is its own.
    fn resume(&mut self, _layout: &Struct, _state: &[u8]) {}
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
    /// What the streams' receivers report.
    heard: Arc<AllHeard>,
}

/// The most extensions that an engine takes.
pub(crate) const EXTENSIONS_MAX: usize = 32;

impl Extensions {
    /// None yet, of a link whose receivers report this.
    pub(crate) fn hearing(heard: Arc<AllHeard>) -> Self {
        Self { heard, ..Self::default() }
    }

    /// Loads an extension, in place of the one of the same name, if there is one, whose state it takes over.
    /// False if there are too many.
    pub(crate) fn load(
        &mut self,
        name: String,
        point: Stage,
        mut step: Box<dyn Extension>,
    ) -> bool {
        let before = self.loaded.iter().find(|one| one.report.name == name);
        if let Some((layout, state)) = before.and_then(|before| before.step.state()) {
            step.resume(layout, state);
        }
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

    pub(crate) const fn is_empty(&self) -> bool {
        self.loaded.is_empty()
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
        let stream = frame.and_then(|(index, frame)| {
            let facts = StreamFacts {
                contract: *link.contract(index)?,
                counters: link.scheduler().counters(index),
                queued: link.queued(index),
            };
            let heard = self.heard.of(index.0 as usize);
            Some(StepStream { index, frame, facts, heard })
        });
        let before = stream.as_ref().map(|stream| stream.facts.contract);
        let mut moment = StepContext {
            point,
            now: Instant::ZERO,
            rate: link.params().rate,
            backlog: link.backlog(),
            link: Some(link),
            stream,
        };
        let discards = self.run_in(clock, &mut moment);
        let after = moment.stream.map(|stream| (stream.index, stream.facts.contract));
        if let (Some(before), Some((index, after))) = (before, after) {
            if after.priority != before.priority {
                link.set_priority(index, after.priority);
            }
            if after.windows != before.windows {
                link.set_windows(index, after.windows);
            }
        }
        discards
    }

    /// Runs the extensions at the context's point; what they request changes the contract in it. True if the
    /// frame must be discarded.
    pub(crate) fn run_in(&mut self, clock: Clock, moment: &mut StepContext<'_>) -> bool {
        for Loaded { report, step } in &mut self.loaded {
            if report.point != moment.point {
                continue;
            }
            moment.now = clock.now();
            let action = step.step(moment);
            let took = clock.now().since(moment.now);
            report.calls += 1;
            report.total += took;
            report.longest = report.longest.max(took);
            match (action, &mut moment.stream) {
                (Action::Discard, _) if moment.point == Stage::Arrival => {
                    report.discarded += 1;
                    return true;
                }
                (Action::Priority(priority), Some(stream)) => {
                    stream.facts.contract.priority = priority;
                }
                (Action::Windows(windows), Some(stream)) => {
                    stream.facts.contract.windows = windows;
                }
                _ => {}
            }
        }
        false
    }
}
