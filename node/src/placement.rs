//! Where links are scheduled and sent from. A placement is one file here and one line in
//! [`PLACEMENTS`]: it starts with a link and its streams, and returns the running link and the end of
//! each stream that takes frames. All placements have the same interface.

mod coprocessor;
mod inline;
#[cfg(feature = "kernel")]
mod kernel;

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use selvedge_control_config::{LinkConfig, Placement, StepConfig, StreamConfig};
use selvedge_data_link::PathEstimate;
use selvedge_data_stream::Contract;
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::RemoteStack;
use selvedge_place_engine::code::{Code, StepSource};
use selvedge_place_engine::engine::{FateTap, StreamCarrier, StreamParams};
use selvedge_place_engine::frame_producer::fan_out::FanOut;
use selvedge_place_engine::frame_producer::{Arrivals, FrameProducer, FrameProducerCounters};
use selvedge_place_engine::link_steps::LinkSteps;
use selvedge_place_engine::report::LinkReport;
use selvedge_place_engine::slot::StreamletReport;
use selvedge_units::Bitrate;

/// All placements of this build.
const PLACEMENTS: &[(Placement, Starter)] = &[
    (Placement::Inline, inline::start),
    (Placement::Coprocessor, coprocessor::start),
    (Placement::CoprocessorReads, coprocessor::start),
    #[cfg(feature = "kernel")]
    (Placement::Kernel, kernel::start),
];

/// Starts a link; the streams' ends are in the order of its members.
type Starter = fn(Start<'_>) -> Result<Started, PlacementError>;

/// A started link, and the ends of its streams.
type Started = (Box<dyn PlacedLink>, Vec<StreamEnd>);

/// A running link. Its streams are numbered in the order in which they were added.
pub(crate) trait PlacedLink: Send + Sync {
    /// The newest report.
    fn report(&self) -> LinkReport;
    /// Changes the link's rate; false if that is not possible.
    fn set_rate(&self, rate: Bitrate) -> bool;
    /// Changes what is known of the path behind the link; false if that is not possible.
    fn set_path(&self, path: PathEstimate) -> bool {
        self.set_rate(path.rate)
    }
    /// Changes windows, priority, weight, period and delay of a stream; false if that is not possible.
    /// Configurations that a reload accepts require only possible changes.
    fn set_terms(&self, stream: usize, terms: &Contract) -> bool;
    /// Changes the link's rate, queue and catch-up to those of a configuration; false if that is not
    /// possible.
    fn reconfigure(&self, link: &LinkConfig) -> bool {
        self.set_rate(link.rate)
    }
    /// The report of a streamlet of a stream; `None` for placements without slots.
    fn streamlet(&self, _stream: usize, _streamlet: u32) -> Option<StreamletReport> {
        None
    }
    /// Removes a stream while the link runs; its number is then free. Only for placements that support
    /// it.
    fn remove(&self, _stream: usize) {}
    /// Adds a stream while the link runs: its number and its end.
    fn add(&self, _member: Member<'_>) -> Result<(usize, StreamEnd), PlacementError> {
        Err(PlacementError::Fixed)
    }
    /// What its steps share: those that the streams' producers run, and what receivers report.
    fn steps(&self) -> &Arc<LinkSteps>;
    /// Loads a step where its point is, in place of one of the same name, whose state it takes over; false if that is
    /// not possible.
    fn load(&self, step: &StepConfig, source: &StepSource) -> bool;
    /// Removes a step.
    fn unload(&self, name: &str);
    /// Stops the link; the last report.
    fn stop(self: Box<Self>) -> LinkReport;
}

/// The parameters with which a placement starts a link.
pub(crate) struct Start<'a> {
    pub(crate) clock: Clock,
    /// The node's name.
    pub(crate) node: &'a str,
    pub(crate) link: &'a LinkConfig,
    pub(crate) members: Vec<Member<'a>>,
    pub(crate) tap: Option<Box<dyn FateTap>>,
}

/// A stream of a link.
pub(crate) struct Member<'a> {
    pub(crate) config: &'a StreamConfig,
    pub(crate) params: StreamParams,
    /// The carrier of its packets in place of plain UDP.
    pub(crate) carried: Option<StreamCarrier>,
    /// The stack that carries its packets, if its link's coprocessor has the connection.
    pub(crate) stack: Option<RemoteStack>,
    /// Relative paths of recordings are relative to it.
    pub(crate) base: &'a Path,
}

/// The end of a stream that takes its frames.
#[expect(clippy::large_enum_variant, reason = "there is one for each stream, at its start")]
pub(crate) enum StreamEnd {
    /// In this process.
    FrameProducer(FrameProducer),
    /// In no process of ours: the placement reads them itself.
    Elsewhere(RemoteSource),
}

/// Returns the error, if any, of a source that the placement reads itself, and whether it has ended.
pub(crate) type RemoteSource = Box<dyn Fn() -> (Option<String>, bool) + Send + Sync>;

impl StreamEnd {
    /// Records from now on when each frame arrives, if frames pass through this process.
    pub(crate) fn record_arrivals(&mut self) -> Arc<Arrivals> {
        match self {
            Self::FrameProducer(frame_producer) => frame_producer.record_arrivals(),
            Self::Elsewhere(_) => Arc::default(),
        }
    }

    /// The receivers of its frames, which others may join, if its stream shares them.
    pub(crate) fn receivers(&self) -> Option<FanOut> {
        match self {
            Self::FrameProducer(frame_producer) => frame_producer.receivers(),
            Self::Elsewhere(_) => None,
        }
    }

    /// The inlet's counters; for frames that are read elsewhere, zero late frames.
    pub(crate) fn counters(&self) -> Arc<FrameProducerCounters> {
        match self {
            Self::FrameProducer(frame_producer) => frame_producer.counters(),
            Self::Elsewhere(_) => Arc::new(FrameProducerCounters {
                last_arrival: u64::MAX.into(),
                ..FrameProducerCounters::default()
            }),
        }
    }
}

/// Why a placement can't start a link, or take a stream.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// This build does not have it.
    #[error(
        "this build has no {name} placement; build with the feature `{name}`, or leave \
         placement = \"{name}\" out",
        name = .0.name()
    )]
    NotBuilt(Placement),
    /// The placement refused.
    #[error("{why}")]
    Refused {
        /// The link's key in the node file that must be changed, if it is one.
        key: Option<&'static str>,
        /// The placement's own error.
        why: Box<dyn Error + Send + Sync>,
    },
    /// The placement's streams are fixed when it starts.
    #[error("its placement takes no streams while it runs; add the stream before the node starts")]
    Fixed,
    /// There is no room for another stream, or the link has stopped.
    #[error("it has {0} streams and takes no more while it runs; add streams before it starts")]
    Full(usize),
}

impl PlacementError {
    /// A refusal for which no key of the node file is to blame.
    fn refused(why: impl Error + Send + Sync + 'static) -> Self {
        Self::Refused { key: None, why: Box::new(why) }
    }
}

/// Loads a step that runs in this process, on no engine's thread.
fn load_here(steps: &LinkSteps, step: &StepConfig, source: &StepSource) -> bool {
    Code::new(source).is_ok_and(|code| steps.load(&step.name, step.at, Box::new(code)))
}

/// Starts a link in the placement that its configuration names.
pub(crate) fn start(start: Start<'_>) -> Result<Started, PlacementError> {
    let placement = start.link.placement;
    let found = PLACEMENTS.iter().find(|(of, _)| *of == placement);
    let (_, starter) = found.ok_or(PlacementError::NotBuilt(placement))?;
    starter(start)
}
