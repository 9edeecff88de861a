//! An open source of media: read by this process, or by a separate one if the source parses network
//! data. Frames go from either to the same sink.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use selvedge_media::isolated::{SourceProcess, SourceRequest, comes_from_network};
use selvedge_media::{Encoder, End, FrameSink, Onlookers, Pair, Source, SourceError, StreamInfo};
use selvedge_units::Duration;

use crate::source_spec::SourceSpec;

/// How long a process that failed to open its source is reused. Its knowledge of the host, such as the
/// name servers, becomes outdated.
const RENEWED: Duration = Duration::from_secs(60);

/// A source that is open.
pub(crate) enum MediaSource {
    /// GStreamer runs in this process.
    Here(Box<Source>),
    /// GStreamer runs in a separate process.
    Isolated(Box<SourceProcess>, StreamInfo),
}

impl MediaSource {
    /// Opens a source within `limit`. `process` is one that could not open it before, and that may try
    /// again; if it fails it is put back there.
    pub(crate) fn open(
        spec: &SourceSpec,
        process: &mut Option<SourceProcess>,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Self, SourceError> {
        let SourceSpec { stream, base, payload_max, isolates_by, units } = spec;
        let (uri, payload_max) = (&stream.source, *payload_max);
        let Some(program) = isolates_by.as_ref().filter(|_| comes_from_network(uri)) else {
            let source = Source::open_within(uri, base, payload_max, limit, stop)?;
            return Ok(Self::Here(Box::new(source)));
        };
        let fresh = |process: &SourceProcess| process.is_alive() && process.age() < RENEWED;
        let mut isolated = match process.take().filter(fresh) {
            Some(process) => process,
            None => {
                let (thumbnails, units) = (stream.thumbnail, *units);
                let expected = stream.spec.declared_period().unwrap_or_default();
                let request = SourceRequest { uri, base, payload_max, thumbnails, units, expected };
                SourceProcess::start(program, &request)?
            }
        };
        match isolated.open(limit, stop) {
            Ok(info) => Ok(Self::Isolated(Box::new(isolated), info)),
            Err(error) => {
                *process = Some(isolated).filter(SourceProcess::is_alive);
                Err(error)
            }
        }
    }

    /// The stream's description.
    pub(crate) const fn info(&self) -> &StreamInfo {
        match self {
            Self::Here(source) => source.info(),
            Self::Isolated(_, info) => info,
        }
    }

    /// When its time began: for a source in a separate process with its first frame, which comes now.
    pub(crate) fn began(&self) -> Instant {
        match self {
            Self::Here(source) => source.began(),
            Self::Isolated(..) => Instant::now(),
        }
    }

    /// Its encoder, if it is encoded here or in its process, and the rate may change.
    pub(crate) fn encoder(&self) -> Option<Encoder> {
        match self {
            Self::Here(source) => source.encoder(),
            Self::Isolated(process, _) => process.encoder(),
        }
    }

    /// The pair that synchronises it with another stream; only files have one, and they are read here.
    pub(crate) fn pair(&self) -> Option<Pair> {
        match self {
            Self::Here(source) => source.pair(),
            Self::Isolated(..) => None,
        }
    }

    /// Synchronises it with the other stream of a pair.
    pub(crate) fn join(&mut self, pair: &Pair) {
        if let Self::Here(source) = self {
            source.join(pair);
        }
    }

    /// Delivers frames until the source ends or `stop` is set. Afterwards `process` holds the process,
    /// if that may open the source again.
    pub(crate) fn run(
        self,
        spec: &SourceSpec,
        process: &mut Option<SourceProcess>,
        sink: &mut dyn FrameSink,
        onlookers: Arc<dyn Onlookers>,
        stop: &AtomicBool,
    ) -> Result<End, SourceError> {
        let stream = &spec.stream;
        match self {
            Self::Here(mut source) => {
                // Pictures on the page are less important than the stream: it continues without them.
                if let Err(error) = source.show(onlookers, stream.thumbnail) {
                    tracing::warn!(stream = stream.spec.name, %error, "no thumbnails");
                }
                source.expect_period(stream.spec.declared_period().unwrap_or_default());
                source.run(sink, stop)
            }
            Self::Isolated(mut isolated, _) => {
                let ended = isolated.run(sink, &*onlookers, stop);
                *process = Some(*isolated).filter(SourceProcess::is_alive);
                ended
            }
        }
    }
}
