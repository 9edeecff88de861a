//! A link in the kernel: its device gets the scheduler as a qdisc for as long as the node runs.

use std::sync::Arc;

use selvedge_control_config::StepConfig;
use selvedge_data_stream::Contract;
use selvedge_place_engine::code::StepSource;
use selvedge_place_engine::link_steps::LinkSteps;
use selvedge_place_engine::report::LinkReport;
use selvedge_place_kernel::AttachError;
use selvedge_place_kernel::link::{KernelLink, LinkError};
use selvedge_units::Bitrate;

use super::{PlacedLink, PlacementError, Start, Started, StreamEnd, load_here};

pub(super) fn start(start: Start<'_>) -> Result<Started, PlacementError> {
    let streams: Vec<_> = start
        .members
        .into_iter()
        .map(|member| (member.config.spec.name.as_str(), member.params))
        .collect();
    let (link, frame_producers) = KernelLink::start(start.clock, start.link, &streams)
        .map_err(|why| PlacementError::Refused { key: key(&why), why: Box::new(why) })?;
    tracing::info!(link = start.link.name, device = link.device(), "the kernel schedules");
    Ok((Box::new(link), frame_producers.into_iter().map(StreamEnd::FrameProducer).collect()))
}

/// The key of the link that must be changed, if it is one.
const fn key(why: &LinkError) -> Option<&'static str> {
    match why {
        LinkError::Attach(AttachError::NoDevice { .. } | AttachError::Occupied { .. }) => {
            Some("device")
        }
        LinkError::Devices(_) => Some("placement"),
        _ => None,
    }
}

impl PlacedLink for KernelLink {
    fn report(&self) -> LinkReport {
        Self::report(self)
    }

    fn set_rate(&self, rate: Bitrate) -> bool {
        Self::set_rate(self, rate)
    }

    fn set_terms(&self, stream: usize, terms: &Contract) -> bool {
        Self::set_terms(self, stream, terms)
    }

    fn steps(&self) -> &Arc<LinkSteps> {
        Self::steps(self)
    }

    fn load(&self, step: &StepConfig, source: &StepSource) -> bool {
        load_here(Self::steps(self), step, source)
    }

    fn unload(&self, name: &str) {
        Self::steps(self).unload(name);
    }

    fn stop(self: Box<Self>) -> LinkReport {
        Self::stop(*self)
    }
}
