//! A source's thread: it delivers frames to one or more inlets, and when the source breaks off it
//! says so and tries again, waiting longer each time. Nobody else's stream is touched by that.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use selvedge_control_config::view::StreamState;
use selvedge_control_config::{NodeConfig, SourceUri};
use selvedge_media::{End, MediaFrame, Source, SourceError, StreamInfo};
use selvedge_place_coprocessor::client::Attachment;
use selvedge_place_coprocessor::feeder::Feeder;
use selvedge_place_engine::inlet::{Inlet, Offer};

use super::{Medium, Opened, SourceEnd};

/// The first wait before a source is tried again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A source that ran this long is not blamed for its earlier failures.
const HEALTHY: Duration = Duration::from_secs(20);

/// A stored thumbnail: its number, and a JPEG image.
pub(crate) type Thumbnail = (u64, Arc<[u8]>);

/// How a source does, for whoever watches.
#[derive(Debug, Default)]
pub(crate) struct FeedStatus {
    state: Mutex<(StreamState, String)>,
    thumbnail: Mutex<Option<Thumbnail>>,
}

impl FeedStatus {
    fn set(&self, state: StreamState, detail: impl Into<String>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = (state, detail.into());
    }

    pub(crate) fn get(&self) -> (StreamState, String) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn thumbnail(&self) -> Option<Thumbnail> {
        self.thumbnail.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.get().0, StreamState::Ended | StreamState::Failed)
    }
}

/// What a feed needs to open its source, now and again.
#[derive(Clone, Debug)]
pub(crate) struct Reopen {
    pub(crate) name: String,
    pub(crate) uri: SourceUri,
    pub(crate) base: PathBuf,
    pub(crate) payload_max: usize,
    pub(crate) thumbnail: bool,
}

impl Reopen {
    /// For the stream at this place of a node file that lies in `base`.
    pub(crate) fn of(config: &NodeConfig, stream: usize, base: &Path) -> Self {
        let it = &config.streams[stream];
        Self {
            name: it.spec.name.clone(),
            uri: it.source.clone(),
            base: base.to_owned(),
            payload_max: super::payload_of(config, stream),
            thumbnail: it.thumbnail,
        }
    }
}

/// The threads of a node's sources; dropped, they stop, all at once.
#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Vec<Feed>,
    recordings: Vec<Recording>,
}

/// A recording that is read, here or by a coprocessor.
struct Recording {
    status: Arc<FeedStatus>,
    reader: Reader,
}

enum Reader {
    Here(Feeder),
    Elsewhere { attachment: Arc<Attachment>, place: usize, asked: Mutex<Instant> },
}

/// How often a coprocessor is asked how its readers do.
const ASK: Duration = Duration::from_millis(250);

impl Feeds {
    /// Starts one more: its frames go to each of the ends; how it does can be seen in `status`.
    pub(crate) fn start(
        &mut self,
        opened: Opened,
        reopen: Reopen,
        status: Arc<FeedStatus>,
        ends: Vec<SourceEnd>,
    ) -> std::io::Result<()> {
        let mut inlets = Vec::new();
        for end in ends {
            match end {
                SourceEnd::Inlet(inlet) => inlets.push(inlet),
                SourceEnd::Elsewhere(attachment, place) => {
                    let asked = Mutex::new(Instant::now());
                    let reader = Reader::Elsewhere { attachment, place, asked };
                    status.set(StreamState::Running, "");
                    self.recordings.push(Recording { status: Arc::clone(&status), reader });
                }
            }
        }
        match opened.source {
            Medium::Media(source) if !inlets.is_empty() => {
                self.feeds.push(Feed::start(*source, opened.info, reopen, status, inlets)?);
            }
            Medium::Recording(recording) => {
                // Without an inlet the coprocessor reads it; nobody feeds two from a recording.
                if let Some(inlet) = inlets.pop() {
                    let feeder = recording.start(inlet).map_err(std::io::Error::other)?;
                    status.set(StreamState::Running, "");
                    self.recordings.push(Recording { status, reader: Reader::Here(feeder) });
                }
            }
            Medium::Media(_) => {}
        }
        Ok(())
    }

    /// Whether nothing more will come of any.
    pub(crate) fn are_over(&self) -> bool {
        self.recordings.iter().for_each(Recording::look);
        self.feeds.iter().all(|feed| feed.status.is_over())
            && self.recordings.iter().all(|recording| recording.status.is_over())
    }
}

impl Recording {
    /// Notes how its reader does.
    fn look(&self) {
        let (trouble, ended) = match &self.reader {
            Reader::Here(feeder) => feeder.state().told(),
            Reader::Elsewhere { attachment, place, asked } => {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                if asked.elapsed() < ASK {
                    return;
                }
                *asked = Instant::now();
                attachment.source(*place)
            }
        };
        match trouble {
            Some(why) => self.status.set(StreamState::Failed, why),
            None if ended => self.status.set(StreamState::Ended, ""),
            None => {}
        }
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        // Each takes a moment to see it, so all are told before one is waited for.
        self.feeds.iter().for_each(Feed::ask_to_stop);
    }
}

/// A source's thread; dropped, it stops and is waited for.
struct Feed {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    status: Arc<FeedStatus>,
}

impl Feed {
    fn start(
        source: Source,
        info: StreamInfo,
        reopen: Reopen,
        status: Arc<FeedStatus>,
        mut inlets: Vec<Inlet>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        inlets.iter_mut().for_each(|inlet| inlet.give_up_with(Arc::clone(&stop)));
        let worker = Worker {
            reopen,
            inlets,
            stop: Arc::clone(&stop),
            status: Arc::clone(&status),
            began: Instant::now(),
            info,
        };
        let thread = thread::Builder::new()
            .name(format!("source {}", worker.reopen.name))
            .spawn(move || worker.run(source))?;
        Ok(Self { stop, thread: Some(thread), status })
    }

    /// Asks it to stop; `drop` waits for it.
    fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

struct Worker {
    reopen: Reopen,
    inlets: Vec<Inlet>,
    stop: Arc<AtomicBool>,
    status: Arc<FeedStatus>,
    began: Instant,
    info: StreamInfo,
}

impl Worker {
    fn run(mut self, source: Source) {
        let mut source = Some(source);
        let mut wait = RETRY.0;
        while !self.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            let ended = source.take().map_or_else(|| self.open(), Ok).and_then(|s| self.deliver(s));
            match ended {
                Ok(End::Stopped) => break,
                Ok(End::Eos { note }) => {
                    tracing::info!(stream = self.reopen.name, "source ended");
                    self.status.set(StreamState::Ended, note.unwrap_or_default());
                    return;
                }
                Err(error) => {
                    if began.elapsed() > HEALTHY {
                        wait = RETRY.0;
                    }
                    tracing::warn!(stream = self.reopen.name, %error, ?wait, "source failed");
                    let detail = format!("{error}; trying again in {} s", wait.as_secs());
                    self.status.set(StreamState::Retrying, detail);
                    self.pause(wait);
                    wait = (wait * 2).min(RETRY.1);
                }
            }
        }
    }

    fn open(&self) -> Result<Source, SourceError> {
        let Reopen { uri, base, payload_max, .. } = &self.reopen;
        Source::open(uri, base, *payload_max)
    }

    fn deliver(&mut self, mut source: Source) -> Result<End, SourceError> {
        let info = source.info().clone();
        if info.codec != self.info.codec || info.clock_rate != self.info.clock_rate {
            let (was, is) = (self.info.encoding(), info.encoding());
            self.status.set(StreamState::Failed, format!("was {was}, came back as {is}"));
            return Ok(End::Stopped);
        }
        if self.reopen.thumbnail {
            let status = Arc::clone(&self.status);
            let give = move |jpeg: &[u8], _at| {
                let mut slot = status.thumbnail.lock().unwrap_or_else(PoisonError::into_inner);
                let number = slot.as_ref().map_or(0, |(number, _)| number + 1);
                *slot = Some((number, Arc::from(jpeg)));
            };
            // Pictures on the page are worth no stream: without them it goes on.
            if let Err(error) = source.thumbnails(give) {
                tracing::warn!(stream = self.reopen.name, %error, "no thumbnails");
            }
        }
        self.status.set(StreamState::Running, "");
        // A source begins its timestamps near zero each time it is opened; receivers must see
        // them go on.
        let elapsed = self.began.elapsed().as_nanos() * u128::from(info.clock_rate);
        let base = (elapsed / 1_000_000_000) as u32;
        let inlets = &mut self.inlets;
        let mut sink = |frame: MediaFrame<'_>| {
            let offer = Offer {
                kind: frame.picture.kind,
                referenced: frame.picture.referenced,
                closes: frame.picture.closes,
                timestamp: base.wrapping_add(frame.rtp_timestamp),
            };
            for inlet in inlets.iter_mut() {
                // A refused frame is counted by the inlet, and by the link as a gap.
                let _ = inlet.offer(offer, frame.packets);
            }
        };
        source.run(&mut sink, &self.stop)
    }

    /// Waits, unless asked to stop.
    fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait;
        while !self.stop.load(Ordering::Relaxed) && Instant::now() < until {
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}
