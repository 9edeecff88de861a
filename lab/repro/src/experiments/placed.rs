//! A link for an experiment where its claim says: in an engine of this process, or in a coprocessor.

use selvedge_control_config::LinkConfig;
use selvedge_data_stream::Spec;
use selvedge_lab_measure::coprocessor::BenchError;
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::{Attachment, Program, producer_params};
use selvedge_place_coprocessor::server::default_socket;
use selvedge_place_engine::engine::{Engine, StreamParams};
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_place_engine::report::LinkReport;

use crate::experiment::RunError;

/// Where the scheduler runs.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Placement {
    Inline,
    Coprocessor,
}

/// What the link is fed and sent by; all of it stops when it is dropped.
pub(super) enum Sender {
    Inline { engine: Engine },
    Coprocessor { attachment: Attachment },
}

impl Sender {
    pub(super) fn report(&self) -> LinkReport {
        match self {
            Self::Inline { engine } => engine.report(),
            Self::Coprocessor { attachment } => attachment.report(),
        }
    }
}

/// What sends, and the streams' ends: an engine of this process, or a coprocessor with these arguments.
pub(super) fn sender(
    placement: Placement,
    clock: Clock,
    link: &LinkConfig,
    params: &[StreamParams],
    arguments: &[&str],
) -> Result<(Sender, Vec<FrameProducer>), RunError> {
    if placement == Placement::Inline {
        let (engine, frame_producers) = Engine::start(clock, link, params, None)
            .map_err(|error| RunError::Coprocessor(error.into()))?;
        return Ok((Sender::Inline { engine }, frame_producers));
    }
    let failed = |error| RunError::Coprocessor(BenchError::Client(error));
    let socket = default_socket(&format!("repro-{}", std::process::id()));
    let program = Program::new(link, socket.clone(), arguments);
    let attachment = Attachment::new("repro", socket, Some(program)).map_err(failed)?;
    let mut frame_producers = Vec::new();
    for (n, StreamParams { spec, ssrc }) in params.iter().enumerate() {
        let spec = Spec { name: format!("s{}", n + 1), ..spec.clone() };
        let frame_producer = producer_params(&spec, link.mtu, *ssrc);
        frame_producers.push(attachment.add(spec, &frame_producer, None).map_err(failed)?.1);
    }
    Ok((Sender::Coprocessor { attachment }, frame_producers))
}
