//! Sources: one file for each kind, one feed and one payloader behind them all.
//!
//! `kind -> feed (encoded access units) -> timeline -> packetizer -> FrameSink`. The feed runs in
//! GStreamer's threads and waits when it is a few units ahead; the rest runs in the thread that
//! calls [`Source::run`].

mod carry;
mod elements;
mod feed;
mod file;
mod packetizer;
mod run;
mod unit;

use std::collections::VecDeque;
use std::path::Path;

use selvedge_node::config::SourceUri;
use selvedge_units::Span;

use crate::error::SourceError;
use crate::frame::StreamInfo;
use crate::picture::mpeg::DisplayOrder;
use crate::sound::SoundCutter;
use crate::timeline::Timeline;

use feed::Feed;
use packetizer::Packetizer;
use unit::{Format, Unit};

/// How long opening may take, and a file may give nothing.
const PATIENCE: Span = Span::from_secs(10);
/// The period of a source that does not tell its own.
const PERIOD_DEFAULT: Span = Span::from_millis(40);
/// Units looked at for a period that the medium does not state.
const LOOK_AHEAD: usize = 9;

/// An open source.
///
/// Its elements are stopped when it is dropped.
#[derive(Debug)]
pub struct Source {
    opener: Opener,
    feed: Feed,
    format: Format,
    info: StreamInfo,
    timeline: Timeline,
    order: DisplayOrder,
    packetizer: Packetizer,
    /// Cuts sound into packets; `None` for pictures.
    sound: Option<SoundCutter>,
    /// Units that were read to learn of the stream and are not delivered yet.
    ahead: VecDeque<Unit>,
}

/// Makes the feed of a source, again for each time it loops.
#[derive(Clone, Debug)]
struct Opener {
    /// The source as errors name it.
    what: String,
    make: Make,
    repeat: bool,
}

/// The kinds of source.
#[derive(Clone, Debug)]
enum Make {
    File(std::path::PathBuf),
}

impl Opener {
    fn new(uri: &SourceUri, base_dir: &Path) -> Result<Self, SourceError> {
        match uri {
            SourceUri::File { path, repeat } => {
                let make = Make::File(base_dir.join(path));
                Ok(Self { what: format!("file:{path}"), make, repeat: *repeat })
            }
            other => Err(SourceError::Option {
                what: format!("{other:?}"),
                option: "the kind of source".into(),
                remedy: "give a file: source",
            }),
        }
    }

    fn feed(&self) -> Result<Feed, SourceError> {
        match &self.make {
            Make::File(path) => file::feed(&self.what, path),
        }
    }
}
