//! The links of a node, each where its `placement` says: an engine of this process, an attachment to
//! a coprocessor, or the kernel. Seen from outside they are alike.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use selvedge_control_config::{LinkConfig, NodeConfig, Placement, SourceUri, StreamConfig};
use selvedge_data_stream::Windows;
use selvedge_media::StreamInfo;
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::{Attachment, ClientError, Program, inlet_params};
use selvedge_place_coprocessor::server::{default_socket, listens};
use selvedge_place_engine::engine::{Engine, EngineError, FateTap, StreamParams};
use selvedge_place_engine::inlet::{Arrivals, Inlet, InletCounters};
use selvedge_place_engine::report::LinkReport;
#[cfg(feature = "kernel")]
use selvedge_place_kernel::link::KernelLink;
use selvedge_units::Bitrate;

use super::{Stacks, params, stacks::StackError};

/// Why a node's links can't be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error("link \"{link}\": {why}")]
    Coprocessor { link: String, why: ClientError },
    #[cfg(feature = "kernel")]
    #[error("link \"{link}\": {why}")]
    Kernel { link: String, why: selvedge_place_kernel::link::LinkError },
    #[cfg(not(feature = "kernel"))]
    #[error(
        "link \"{link}\": this build has no kernel placement; build with the feature `kernel` \
         (needs clang 16), or leave placement = \"kernel\" out"
    )]
    NoKernel { link: String },
}

impl StartError {
    /// The key of the node file that is to be changed, if it is one.
    pub(crate) fn key(&self) -> Option<String> {
        if let Self::Stack(error) = self {
            return error.key();
        }
        #[cfg(feature = "kernel")]
        if let Self::Kernel { link, why } = self {
            use selvedge_place_kernel::{AttachError, link::LinkError};
            return match why {
                LinkError::Attach(AttachError::NoDevice { .. } | AttachError::Occupied { .. }) => {
                    Some(format!("link.{link}.device"))
                }
                LinkError::Devices { .. } => Some(format!("link.{link}.placement")),
                _ => None,
            };
        }
        None
    }
}

/// A link at work.
pub(crate) enum Placed {
    Inline(Engine),
    Coprocessor(Arc<Attachment>),
    #[cfg(feature = "kernel")]
    Kernel(Box<KernelLink>),
}

/// Where a stream's frames go in.
pub(crate) enum SourceEnd {
    /// Here.
    Inlet(Inlet),
    /// Nowhere: the coprocessor reads them; the stream's place there.
    Elsewhere(Arc<Attachment>, usize),
}

impl SourceEnd {
    /// Records from now on when each frame arrives, as far as frames go in here.
    pub(crate) fn record_arrivals(&mut self) -> Arc<Arrivals> {
        match self {
            Self::Inlet(inlet) => inlet.record_arrivals(),
            Self::Elsewhere(..) => Arc::default(),
        }
    }

    /// What the inlet counts; of frames that are read elsewhere, that nothing is late.
    pub(crate) fn counters(&self) -> Arc<InletCounters> {
        match self {
            Self::Inlet(inlet) => inlet.counters(),
            Self::Elsewhere(..) => Arc::new(InletCounters {
                last_arrival: u64::MAX.into(),
                ..InletCounters::default()
            }),
        }
    }
}

/// The links of a node, and where each stream is.
pub(crate) struct Engines {
    pub(crate) engines: Vec<Placed>,
    /// For each stream: its link, and its number there.
    pub(crate) places: Vec<(usize, usize)>,
    /// What carries streams in place of plain UDP.
    pub(crate) stacks: Stacks,
}

impl Placed {
    /// The newest report.
    fn report(&self) -> LinkReport {
        match self {
            Self::Inline(engine) => engine.report(),
            Self::Coprocessor(attachment) => attachment.report(),
            #[cfg(feature = "kernel")]
            Self::Kernel(link) => link.report(),
        }
    }

    pub(crate) fn set_windows(&self, stream: usize, windows: Windows) -> bool {
        match self {
            Self::Inline(engine) => engine.set_windows(stream, windows),
            Self::Coprocessor(attachment) => attachment.set_windows(stream, windows),
            #[cfg(feature = "kernel")]
            Self::Kernel(link) => link.set_windows(stream, windows),
        }
    }

    pub(crate) fn set_priority(&self, stream: usize, priority: i32) -> bool {
        match self {
            Self::Inline(engine) => engine.set_priority(stream, priority),
            Self::Coprocessor(attachment) => attachment.set_priority(stream, priority),
            #[cfg(feature = "kernel")]
            Self::Kernel(link) => link.set_priority(stream, priority),
        }
    }

    pub(crate) fn set_rate(&self, rate: Bitrate) -> bool {
        match self {
            Self::Inline(engine) => engine.set_rate(rate),
            Self::Coprocessor(attachment) => attachment.set_rate(rate),
            #[cfg(feature = "kernel")]
            Self::Kernel(link) => link.set_rate(rate),
        }
    }

    fn stop(self) -> LinkReport {
        match self {
            Self::Inline(engine) => engine.stop(),
            Self::Coprocessor(attachment) => attachment.report(),
            #[cfg(feature = "kernel")]
            Self::Kernel(link) => link.stop(),
        }
    }
}

impl Engines {
    /// Starts them; returns the sources' ends in the order of the streams. Relative paths of
    /// recordings are relative to `base`.
    pub(crate) fn start(
        clock: Clock,
        config: &NodeConfig,
        infos: &[StreamInfo],
        base: &Path,
        mut tap: impl FnMut(&[usize]) -> Option<Box<dyn FateTap>>,
    ) -> Result<(Self, Vec<SourceEnd>), StartError> {
        let mut places = vec![(0, 0); config.streams.len()];
        let mut ends: Vec<Option<SourceEnd>> = config.streams.iter().map(|_| None).collect();
        let mut engines = Vec::new();
        let stacks = Stacks::start(config, base)?;
        for (n, link) in config.links.iter().enumerate() {
            let members: Vec<usize> =
                (0..config.streams.len()).filter(|&s| config.streams[s].link == n).collect();
            let params: Vec<_> =
                members.iter().map(|&s| params(config, s, &infos[s], clock)).collect();
            let (placed, inlets) = match link.placement {
                Placement::Inline => {
                    let carried: Vec<_> = members.iter().map(|&s| stacks.carried(s)).collect();
                    let (engine, inlets) =
                        Engine::start_carried(clock, link, &params, &carried, tap(&members))?;
                    (Placed::Inline(engine), inlets.into_iter().map(SourceEnd::Inlet).collect())
                }
                Placement::Coprocessor | Placement::CoprocessorReads => {
                    let streams = members.iter().map(|&s| &config.streams[s]).zip(params);
                    attach(&config.name, link, streams, base)
                        .map_err(|why| StartError::Coprocessor { link: link.name.clone(), why })?
                }
                Placement::Kernel => {
                    let names = members.iter().map(|&s| config.streams[s].spec.name.as_str());
                    in_kernel(clock, link, names.zip(params))?
                }
            };
            for (at, (&stream, end)) in members.iter().zip(inlets).enumerate() {
                places[stream] = (n, at);
                ends[stream] = Some(end);
            }
            engines.push(placed);
        }
        let ends = ends.into_iter().map(|end| end.expect("every stream has a link")).collect();
        Ok((Self { engines, places, stacks }, ends))
    }

    /// The newest report of each link.
    pub(crate) fn reports(&self) -> Vec<LinkReport> {
        self.engines.iter().map(Placed::report).collect()
    }

    /// Stops all; the last report of each link.
    pub(crate) fn stop(self) -> Vec<LinkReport> {
        self.engines.into_iter().map(Placed::stop).collect()
    }
}

/// A link in the kernel: its device gets the qdisc for as long as the node runs.
#[cfg(feature = "kernel")]
fn in_kernel<'c>(
    clock: Clock,
    link: &LinkConfig,
    streams: impl Iterator<Item = (&'c str, StreamParams)>,
) -> Result<(Placed, Vec<SourceEnd>), StartError> {
    let streams: Vec<_> = streams.collect();
    let (started, inlets) = KernelLink::start(clock, link, &streams)
        .map_err(|why| StartError::Kernel { link: link.name.clone(), why })?;
    tracing::info!(link = link.name, device = started.device(), "the kernel schedules");
    Ok((Placed::Kernel(Box::new(started)), inlets.into_iter().map(SourceEnd::Inlet).collect()))
}

#[cfg(not(feature = "kernel"))]
fn in_kernel<'c>(
    _clock: Clock,
    link: &LinkConfig,
    _streams: impl Iterator<Item = (&'c str, StreamParams)>,
) -> Result<(Placed, Vec<SourceEnd>), StartError> {
    Err(StartError::NoKernel { link: link.name.clone() })
}

/// A link in a coprocessor: one that listens already, or one that is started.
fn attach<'c>(
    node: &str,
    link: &LinkConfig,
    streams: impl Iterator<Item = (&'c StreamConfig, StreamParams)>,
    base: &Path,
) -> Result<(Placed, Vec<SourceEnd>), ClientError> {
    let own = || default_socket(&format!("{}-{}", link.name, std::process::id()));
    let socket = link.socket.as_ref().map_or_else(own, PathBuf::from);
    let core = link.core.map(|core| core.to_string());
    let more: Vec<&str> = core.iter().flat_map(|core| ["--core", core]).collect();
    let program = (!listens(&socket)).then(|| Program::new(link, socket.clone(), &more));
    let attachment = Arc::new(Attachment::new(node, socket, program)?);
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
    let mut ends = Vec::new();
    for (stream, params) in streams {
        let spec = params.spec;
        let end = match &stream.source {
            SourceUri::Record { path, repeat, .. }
                if link.placement == Placement::CoprocessorReads =>
            {
                let file = std::path::absolute(base.join(path)).map_err(ClientError::System)?;
                let file = file.to_string_lossy();
                let place = attachment.read(spec, (&file, *repeat), params.ssrc)?;
                SourceEnd::Elsewhere(Arc::clone(&attachment), place)
            }
            _ => {
                let inlet = inlet_params(&spec, link.mtu, params.ssrc);
                SourceEnd::Inlet(attachment.add(spec, &inlet)?.1)
            }
        };
        ends.push(end);
    }
    Ok((Placed::Coprocessor(attachment), ends))
}
