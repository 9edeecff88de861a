//! The threads of a node's sources. Each delivers frames to one or more inlets; how it does can be
//! seen in its status.

#[cfg(feature = "gstreamer")]
mod media;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use selvedge_control_config::view::StreamState;
#[cfg(feature = "gstreamer")]
use selvedge_media::Pair;
use selvedge_media::StreamInfo;
use selvedge_place_coprocessor::feeder::{Feeder, FeederError};
use selvedge_units::Duration;

#[cfg(feature = "gstreamer")]
use self::media::SourceThread;
use crate::follow::Followed;
use crate::placement::{RemoteSource, StreamEnd};
use crate::source::Medium;
use crate::source_spec::SourceSpec;

/// A stored thumbnail: its number, and a JPEG image.
type Thumbnail = (u64, Arc<[u8]>);

/// How a source does, for those who watch.
#[derive(Debug, Default)]
pub(crate) struct FeedStatus {
    state: Mutex<(StreamState, String)>,
    /// What its medium is, once that is known.
    info: Mutex<Option<StreamInfo>>,
    thumbnail: Mutex<Option<Thumbnail>>,
    followed: OnceLock<Arc<Followed>>,
    /// Packets of its source that were not authentic.
    pub(crate) refused: AtomicU64,
    /// What its source keeps together with, or would if the other stream of its file came.
    #[cfg(feature = "gstreamer")]
    pub(crate) pair: OnceLock<Pair>,
}

impl FeedStatus {
    pub(crate) fn set(&self, state: StreamState, detail: impl Into<String>) {
        *self.state.lock() = (state, detail.into());
    }

    pub(crate) fn set_info(&self, info: Option<StreamInfo>) {
        *self.info.lock() = info;
    }

    pub(crate) fn info(&self) -> Option<StreamInfo> {
        self.info.lock().clone()
    }

    pub(crate) fn get(&self) -> (StreamState, String) {
        self.state.lock().clone()
    }

    /// Its frames are followed to their ends from now on.
    pub(crate) fn follow(&self, followed: Arc<Followed>) {
        let _ = self.followed.set(followed);
    }

    pub(crate) fn followed(&self) -> Option<&Followed> {
        self.followed.get().map(|followed| &**followed)
    }

    pub(crate) fn thumbnail(&self) -> Option<Thumbnail> {
        self.thumbnail.lock().clone()
    }

    /// Whether nothing more will come.
    fn is_over(&self) -> bool {
        matches!(self.get().0, StreamState::Ended | StreamState::Failed)
    }
}

/// What a feed is made of.
pub(crate) struct Plan {
    pub(crate) source: Medium,
    pub(crate) reopen: SourceSpec,
    pub(crate) status: Arc<FeedStatus>,
    /// Where its frames go: to more than one end where another node sends the same frames.
    pub(crate) ends: Vec<StreamEnd>,
    /// Is given what the medium is when it is known only now.
    pub(crate) on_info: OnInfo,
}

/// Takes what a stream's medium is.
pub(crate) type OnInfo = Box<dyn Fn(&StreamInfo) + Send>;

/// The threads of a node's sources; dropped, they stop, all at once.
#[derive(Default)]
pub(crate) struct SourceThreads {
    #[cfg(feature = "gstreamer")]
    source_threads: Vec<SourceThread>,
    recordings: Vec<Recording>,
}

impl SourceThreads {
    /// Takes out those that feed streams which `which` finds by the status that they write; dropped, they
    /// stop.
    pub(crate) fn taken(&mut self, which: impl Fn(&Arc<FeedStatus>) -> bool) -> Self {
        Self {
            #[cfg(feature = "gstreamer")]
            source_threads: self.source_threads.extract_if(.., |one| which(one.status())).collect(),
            recordings: self.recordings.extract_if(.., |one| which(&one.status)).collect(),
        }
    }
}

/// A recording that is read, here or by a placement.
struct Recording {
    status: Arc<FeedStatus>,
    reader: Reader,
}

enum Reader {
    Local(Feeder),
    Coprocessor { source: Box<dyn RemoteSource>, asked: Mutex<Instant> },
}

/// How often a placement is asked how its readers do.
const ASK: Duration = Duration::from_millis(250);

impl SourceThreads {
    /// Starts one more.
    pub(crate) fn start(&mut self, plan: Plan) -> Result<(), FeederError> {
        let Plan { source, reopen, status, ends, on_info } = plan;
        let mut frame_producers = Vec::new();
        for end in ends {
            match end {
                StreamEnd::FrameProducer(frame_producer) => frame_producers.push(frame_producer),
                StreamEnd::Elsewhere(source) => {
                    let reader = Reader::Coprocessor { source, asked: Mutex::new(Instant::now()) };
                    status.set(StreamState::Running, "");
                    self.recordings.push(Recording { status: Arc::clone(&status), reader });
                }
            }
        }
        match source {
            #[cfg(feature = "gstreamer")]
            Medium::Media(source) if !frame_producers.is_empty() => {
                let source = source.map(|source| *source);
                self.source_threads.push(SourceThread::start(
                    source,
                    reopen,
                    status,
                    frame_producers,
                    on_info,
                )?);
            }
            // Without an inlet the placement reads it; nobody feeds two from a recording.
            Medium::Recording(recording) => {
                if let Some(frame_producer) = frame_producers.pop() {
                    let reader = Reader::Local(recording.start(frame_producer)?);
                    status.set(StreamState::Running, "");
                    self.recordings.push(Recording { status, reader });
                }
            }
            _ => drop((reopen, on_info)),
        }
        Ok(())
    }

    /// Whether nothing more will come of any.
    pub(crate) fn all_ended(&self) -> bool {
        self.recordings.iter().for_each(Recording::poll_ready);
        #[cfg(feature = "gstreamer")]
        if !self.source_threads.iter().all(SourceThread::is_over) {
            return false;
        }
        self.recordings.iter().all(|recording| recording.status.is_over())
    }
}

impl Recording {
    /// Notes how its reader does.
    fn poll_ready(&self) {
        let (problem, ended) = match &self.reader {
            Reader::Local(feeder) => feeder.state().status(),
            Reader::Coprocessor { source, asked } => {
                let mut asked = asked.lock();
                if asked.elapsed() < ASK.to_std() {
                    return;
                }
                *asked = Instant::now();
                source.state()
            }
        };
        match problem {
            Some(why) => self.status.set(StreamState::Failed, why),
            None if ended => self.status.set(StreamState::Ended, ""),
            None => {}
        }
    }
}

#[cfg(feature = "gstreamer")]
impl Drop for SourceThreads {
    fn drop(&mut self) {
        // Each takes a moment to see it, so all are asked before one is waited for.
        self.source_threads.iter().for_each(SourceThread::request_stop);
    }
}
