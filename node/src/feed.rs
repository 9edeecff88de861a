//! The threads of a node's sources. Each delivers frames to one or more inlets and reports its state in
//! its status.

#[cfg(feature = "gstreamer")]
pub(crate) mod media;
#[cfg(feature = "gstreamer")]
pub(crate) mod packed;
#[cfg(feature = "gstreamer")]
mod shared;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;
#[cfg(feature = "gstreamer")]
use parking_lot::MutexGuard;
#[cfg(feature = "gstreamer")]
use selvedge_control_config::StreamConfig;
use selvedge_control_config::view::StreamState;
use selvedge_data_stream::Totals;
use selvedge_media::StreamInfo;
#[cfg(feature = "gstreamer")]
use selvedge_media::{Encoder, Pair};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::feeder::{Feeder, FeederError};
use selvedge_place_engine::frame_producer::fan_out::FanOut;
use selvedge_units::{Bitrate, Duration};

#[cfg(feature = "gstreamer")]
use self::media::SourceThread;
#[cfg(feature = "gstreamer")]
use self::packed::PackedReceiver;
#[cfg(feature = "gstreamer")]
use crate::encoders::Following;
use crate::follow::Followed;
use crate::output::Described;
#[cfg(feature = "gstreamer")]
use crate::output::StreamOutput;
use crate::passed_nodes::PassedNodes;
use crate::placement::{RemoteSource, StreamEnd};
use crate::source::Medium;
use crate::source_spec::SourceSpec;

/// A stored thumbnail: its number, and a JPEG image.
type Thumbnail = (u64, Arc<[u8]>);

/// The state of a source, for observers.
#[derive(Default)]
pub(crate) struct FeedStatus {
    state: Mutex<(StreamState, String)>,
    /// The description of its medium, once that is known.
    info: Mutex<Option<StreamInfo>>,
    thumbnail: Mutex<Option<Thumbnail>>,
    /// The streams that get its frames, one for each receiver.
    followed: Mutex<Vec<Weak<Followed>>>,
    /// Its receivers, which others may join.
    pub(crate) receivers: OnceLock<FanOut>,
    /// Its receivers that take other packets than those of RTP.
    #[cfg(feature = "gstreamer")]
    pub(crate) packed: Mutex<Vec<PackedReceiver>>,
    /// Whether its encoder has yet to be asked for an intra picture.
    wants_intra: AtomicBool,
    /// The nodes by which it came over bonds.
    pub(crate) passed: Mutex<PassedNodes>,
    /// How old its frames are when they come over a bond, in the mean; `None` of other sources, or if it is not known.
    pub(crate) age: Mutex<Option<Duration>>,
    /// Packets of its source that were not authentic.
    pub(crate) refused: AtomicU64,
    /// The pair that its source is synchronised by, or would be if the other stream of its file came.
    #[cfg(feature = "gstreamer")]
    pub(crate) pair: OnceLock<Pair>,
    /// Its encoder, which may follow a measured rate.
    #[cfg(feature = "gstreamer")]
    following: Mutex<Option<Following>>,
}

impl fmt::Debug for FeedStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedStatus").finish_non_exhaustive()
    }
}

impl FeedStatus {
    pub(crate) fn set(&self, state: StreamState, detail: impl Into<String>) {
        *self.state.lock() = (state, detail.into());
    }

    /// Takes the age of a frame that came over a bond into the mean, if it is known.
    pub(crate) fn note_age(&self, age: Option<Duration>) {
        let mut mean = self.age.lock();
        let next = |mean: Duration, age: Duration| mean - mean / AGES + age / AGES;
        *mean = age.map(|age| mean.map_or(age, |mean| next(mean, age)));
    }

    pub(crate) fn set_info(&self, info: Option<StreamInfo>) {
        *self.info.lock() = info;
        self.announce();
    }

    /// Lets pages know the medium.
    fn announce(&self) {
        #[cfg(feature = "gstreamer")]
        if let Some(info) = self.info() {
            let followed = self.followed();
            let sent = followed.iter().filter_map(|one| one.sent.as_ref());
            sent.for_each(|sent| sent.set_medium(&info));
        }
    }

    pub(crate) fn info(&self) -> Option<StreamInfo> {
        self.info.lock().clone()
    }

    #[cfg(feature = "gstreamer")]
    pub(crate) fn set_encoder(&self, encoder: Option<Encoder>) {
        *self.following.lock() = encoder.map(Following::new);
    }

    #[cfg(feature = "gstreamer")]
    pub(crate) fn following(&self) -> MutexGuard<'_, Option<Following>> {
        self.following.lock()
    }

    /// Somebody joined, or lost pictures, who needs one that needs no other: its encoder makes one, at most one a second.
    pub(crate) fn want_intra(&self) {
        self.wants_intra.store(true, Ordering::Relaxed);
        self.serve_intra();
    }

    /// Requests what is wanted, once it may be requested.
    pub(crate) fn serve_intra(&self) {
        #[cfg(feature = "gstreamer")]
        if self.wants_intra.swap(false, Ordering::Relaxed)
            && let Some(following) = &mut *self.following.lock()
            && !following.request_intra()
        {
            self.wants_intra.store(true, Ordering::Relaxed);
        }
    }

    /// What its encoder aims at, if that follows a measured rate.
    pub(crate) fn encoder_rate(&self) -> Option<Bitrate> {
        #[cfg(feature = "gstreamer")]
        return self.following.lock().as_ref()?.rate();
        #[cfg(not(feature = "gstreamer"))]
        None
    }

    /// Adds the end of a stream that takes packets of its own to its source; returns one that others may join. All
    /// other ends stay.
    #[cfg(feature = "gstreamer")]
    pub(crate) fn packed(
        &self,
        config: &StreamConfig,
        source: &Medium,
        output: Option<&StreamOutput>,
        end: StreamEnd,
    ) -> StreamEnd {
        let is_media =
            matches!(source, Medium::Media(_) | Medium::OtherProgram(_) | Medium::Shared);
        match (end, output) {
            (StreamEnd::FrameProducer(own), Some(output)) if is_media && !config.takes_rtp() => {
                let others = own.without_receivers();
                self.packed.lock().push(output.packed(own));
                StreamEnd::FrameProducer(others)
            }
            (end, _) => end,
        }
    }

    pub(crate) fn get(&self) -> (StreamState, String) {
        self.state.lock().clone()
    }

    /// Follows its frames to their fates from now on, at one more receiver.
    pub(crate) fn follow(&self, followed: &Arc<Followed>) {
        let mut all = self.followed.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(followed));
        drop(all);
        self.announce();
    }

    #[cfg(feature = "gstreamer")]
    pub(crate) fn followed(&self) -> Vec<Arc<Followed>> {
        self.followed.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn thumbnail(&self) -> Option<Thumbnail> {
        self.thumbnail.lock().clone()
    }

    /// Whether no more frames will come.
    fn is_over(&self) -> bool {
        matches!(self.get().0, StreamState::Ended | StreamState::Failed)
    }
}

impl Described for FeedStatus {
    fn described(&self) -> Option<StreamInfo> {
        self.info()
    }

    fn want_intra(&self) {
        Self::want_intra(self);
    }
}

/// The parts from which a feed is made.
pub(crate) struct Plan {
    pub(crate) source: Medium,
    pub(crate) reopen: SourceSpec,
    pub(crate) clock: Clock,
    pub(crate) status: Arc<FeedStatus>,
    /// Where its frames go: to more than one end where another node sends the same frames.
    pub(crate) ends: Vec<StreamEnd>,
    /// Is called with the description of the medium if that becomes known only now.
    pub(crate) on_info: OnInfo,
    /// What became of its frames so far.
    pub(crate) counts: StreamCounts,
}

/// The counts of a stream, while its link has it.
pub(crate) type StreamCounts = Arc<dyn Fn() -> Option<Totals> + Send + Sync>;

/// Receives the description of a stream's medium.
pub(crate) type OnInfo = Arc<dyn Fn(&StreamInfo) + Send + Sync>;

/// The threads of a node's sources; dropped, they stop, all at once.
#[derive(Default)]
pub(crate) struct SourceThreads {
    #[cfg(feature = "gstreamer")]
    source_threads: Vec<SourceThread>,
    recordings: Vec<Recording>,
    elsewhere: Vec<Elsewhere>,
}

/// A stream whose frames come on another thread, until its place there is dropped.
struct Elsewhere {
    status: Arc<FeedStatus>,
    _place: Box<dyn Send>,
}

/// A recording that is read, here or by a placement.
struct Recording {
    status: Arc<FeedStatus>,
    reader: Reader,
}

enum Reader {
    Local(Feeder),
    Coprocessor { source: RemoteSource, asked: Mutex<Instant> },
}

/// The mean age of frames follows the last one by one part in so many.
const AGES: u64 = 16;
/// How often a placement is queried for the state of its readers.
const ASK: Duration = Duration::from_millis(250);

impl SourceThreads {
    /// Starts one more thread.
    pub(crate) fn start(&mut self, plan: Plan) -> Result<(), FeederError> {
        let Plan { source, reopen, clock, status, ends, on_info, counts } = plan;
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
            // Without an inlet the placement reads it; no recording feeds two inlets.
            Medium::Recording(recording) => {
                if let Some(frame_producer) = frame_producers.pop() {
                    let reader = Reader::Local(recording.start(frame_producer, None)?);
                    status.set(StreamState::Running, "");
                    self.recordings.push(Recording { status, reader });
                }
            }
            #[cfg(feature = "gstreamer")]
            Medium::OtherProgram(source) if !frame_producers.is_empty() => {
                let of = Arc::clone(&status);
                let thread =
                    source.start(&reopen.stream.spec.name, status, frame_producers, counts)?;
                self.keep(of, thread);
            }
            Medium::Streamlets(listeners) => {
                if let Some(frame_producer) = frame_producers.pop() {
                    status.set(StreamState::Running, "");
                    let of = Arc::clone(&status);
                    let refused = move || {
                        of.refused.fetch_add(1, Ordering::Relaxed);
                    };
                    let thread = listeners.start(clock, frame_producer, refused)?;
                    self.keep(status, thread);
                }
            }
            _ => drop((reopen, on_info, counts)),
        }
        Ok(())
    }

    /// Keeps the place of a stream whose frames come on another thread.
    pub(crate) fn keep(&mut self, status: Arc<FeedStatus>, place: impl Send + 'static) {
        self.elsewhere.push(Elsewhere { status, _place: Box::new(place) });
    }

    /// Takes out the threads that feed streams selected by `which`, which examines their status;
    /// dropped, they stop.
    pub(crate) fn taken(&mut self, which: impl Fn(&Arc<FeedStatus>) -> bool) -> Self {
        Self {
            #[cfg(feature = "gstreamer")]
            source_threads: self.source_threads.extract_if(.., |one| which(&one.status)).collect(),
            recordings: self.recordings.extract_if(.., |one| which(&one.status)).collect(),
            elsewhere: self.elsewhere.extract_if(.., |one| which(&one.status)).collect(),
        }
    }

    /// Whether no more frames will come from any source.
    pub(crate) fn all_ended(&self) -> bool {
        // They may always come again.
        if !self.elsewhere.is_empty() {
            return false;
        }
        self.recordings.iter().for_each(Recording::poll_ready);
        #[cfg(feature = "gstreamer")]
        if !self.source_threads.iter().all(|one| one.status.is_over()) {
            return false;
        }
        self.recordings.iter().all(|recording| recording.status.is_over())
    }
}

impl Recording {
    /// Records its reader's state.
    fn poll_ready(&self) {
        let (problem, ended) = match &self.reader {
            Reader::Local(feeder) => feeder.state().status(),
            Reader::Coprocessor { source, asked } => {
                let mut asked = asked.lock();
                if asked.elapsed() < ASK.to_std() {
                    return;
                }
                *asked = Instant::now();
                source()
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
        // Each takes a moment to notice, so all are requested to stop before one is waited for.
        self.source_threads.iter().for_each(|one| one.keeper.request_stop());
    }
}
