//! A link in a coprocessor: one that listens already, or one that is started for this node. Sources
//! write into shared memory, or the coprocessor reads their recordings itself.

use std::path::PathBuf;
use std::sync::Arc;

use selvedge_control_config::{LinkConfig, Placement, SourceUri, Stage, StepConfig};
use selvedge_data_stream::Contract;
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::{Attachment, ClientError, Program, producer_params};
use selvedge_place_coprocessor::server::{
    default_folder, default_socket, listens, remove_stale_sockets,
};
use selvedge_place_engine::code::StepSource;
use selvedge_place_engine::link_steps::LinkSteps;
use selvedge_place_engine::report::LinkReport;
use selvedge_place_engine::slot::StreamletReport;
use selvedge_units::{Bitrate, Bytes};

use crate::source::slot;

use super::{Member, PlacedLink, PlacementError, Start, Started, StreamEnd, load_here};

struct Attached {
    attachment: Arc<Attachment>,
    mtu: Bytes,
    /// Whether the coprocessor reads recordings itself.
    reads: bool,
    steps: Arc<LinkSteps>,
}

pub(super) fn start(start: Start<'_>) -> Result<Started, PlacementError> {
    let attachment = attach(start.node, start.link).map_err(PlacementError::refused)?;
    let link = Attached {
        attachment: Arc::new(attachment),
        mtu: start.link.mtu,
        reads: start.link.placement == Placement::CoprocessorReads,
        steps: Arc::default(),
    };
    let ends = start.members.into_iter().map(|member| link.join(member).map(|(_, end)| end));
    let ends = ends.collect::<Result<_, _>>().map_err(PlacementError::refused)?;
    Ok((Box::new(link), ends))
}

fn attach(node: &str, link: &LinkConfig) -> Result<Attachment, ClientError> {
    let own = || default_socket(&format!("{}-{}", link.name, std::process::id()));
    remove_stale_sockets(&default_folder());
    let socket = link.socket.as_ref().map_or_else(own, PathBuf::from);
    let core = link.core.map(|core| core.to_string());
    let more: Vec<&str> = core.iter().flat_map(|core| ["--core", core]).collect();
    let program = (!listens(&socket)).then(|| Program::new(link, socket.clone(), &more));
    let attachment = Attachment::new(node, socket, program)?;
    let there = attachment.link();
    if there.discipline != link.discipline.name() || there.mtu != link.mtu.0 {
        tracing::warn!(
            link = link.name,
            "the coprocessor that runs schedules by {} with packets of {} B, whatever the node \
             file says",
            there.discipline,
            there.mtu
        );
    }
    Ok(attachment)
}

impl Attached {
    fn join(&self, member: Member<'_>) -> Result<(usize, StreamEnd), ClientError> {
        let Member { config, params, base, stack, .. } = member;
        let spec = params.spec;
        if let (true, SourceUri::Record { path, repeat, .. }) = (self.reads, &config.source) {
            let file = std::path::absolute(base.join(path)).map_err(ClientError::System)?;
            let file = file.to_string_lossy();
            let place = self.attachment.read(spec, (&file, *repeat), params.ssrc, stack)?;
            let reader = Arc::clone(&self.attachment);
            return Ok((place, StreamEnd::Elsewhere(Box::new(move || reader.source(place)))));
        }
        let frame_producer = producer_params(&spec, self.mtu, params.ssrc);
        let frame_producer = match &stack {
            Some(stack) => stack.params(frame_producer, spec.to),
            None => frame_producer,
        };
        let contract = spec.contract;
        let (place, mut frame_producer) = self.attachment.add(spec, &frame_producer, stack)?;
        if let Some(slot) = slot(config, Clock::shared()) {
            self.attachment.aggregate(place, slot)?;
        }
        frame_producer.set_steps(Arc::clone(&self.steps), place, contract);
        Ok((place, StreamEnd::FrameProducer(frame_producer)))
    }
}

impl PlacedLink for Attached {
    fn report(&self) -> LinkReport {
        let mut report = self.attachment.report();
        report.extensions.extend(self.steps.reports());
        report
    }

    fn set_rate(&self, rate: Bitrate) -> bool {
        self.attachment.set_rate(rate)
    }

    fn set_terms(&self, stream: usize, terms: &Contract) -> bool {
        self.attachment.set_terms(stream, terms)
    }

    fn streamlet(&self, stream: usize, streamlet: u32) -> Option<StreamletReport> {
        self.attachment.streamlet(stream, streamlet)
    }

    fn remove(&self, stream: usize) {
        self.attachment.remove(stream);
    }

    fn add(&self, member: Member<'_>) -> Result<(usize, StreamEnd), PlacementError> {
        self.join(member).map_err(PlacementError::refused)
    }

    fn steps(&self) -> &Arc<LinkSteps> {
        &self.steps
    }

    fn load(&self, step: &StepConfig, source: &StepSource) -> bool {
        match step.at {
            // In front of the shared memory. What the coprocessor reads itself does not pass here.
            Stage::Arrival if !self.reads => load_here(&self.steps, step, source),
            at => self.attachment.load(&step.name, at, source),
        }
    }

    fn unload(&self, name: &str) {
        self.steps.unload(name);
        self.attachment.unload(name);
    }

    fn stop(self: Box<Self>) -> LinkReport {
        let report = self.report();
        self.attachment.unload_all();
        report
    }
}
