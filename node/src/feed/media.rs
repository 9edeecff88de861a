//! A GStreamer source's thread: it delivers frames to inlets. When the source breaks off, the thread
//! opens it again, waiting longer each time. No other stream is affected.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use selvedge_control_config::SourceUri;
use selvedge_control_config::view::StreamState;
use selvedge_media::isolated::SourceProcess;
use selvedge_media::output::epoch;
use selvedge_media::{End, MediaFrame, Onlookers, Pair, SourceError, StreamInfo, Trouble, Watched};
use selvedge_os::keeper::{Keeper, Stop};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::Duration;

use super::{FeedStatus, OnInfo};
use crate::follow::{Content, SentPictures};
use crate::media_source::MediaSource;
use crate::source::{OPENING_LOCAL, may_be_absent};
use crate::source_spec::SourceSpec;

/// The first wait before a source is tried again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The same for sources that come and go: an attempt costs little, and a user who waits for a camera is
/// watching.
const RETRY_ABSENT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// How long a source that comes and goes may take to deliver its first frame.
const OPENING: Duration = Duration::from_secs(15);
/// A source that ran this long is not blamed for its earlier failures.
const HEALTHY: Duration = Duration::from_secs(20);

/// A source's thread; dropped, it stops and is waited for.
pub(super) struct SourceThread {
    pub(super) keeper: Keeper,
    /// It writes its state into this.
    pub(super) status: Arc<FeedStatus>,
}

impl SourceThread {
    pub(super) fn start(
        source: Option<MediaSource>,
        reopen: SourceSpec,
        status: Arc<FeedStatus>,
        mut frame_producers: Vec<FrameProducer>,
        on_info: OnInfo,
    ) -> std::io::Result<Self> {
        if source.is_none() {
            status.set(StreamState::Retrying, "it did not answer at the start");
        }
        let (name, of) = (format!("source {}", reopen.stream.spec.name), Arc::clone(&status));
        let keeper = Keeper::start(name, move |stop| {
            for frame_producer in &mut frame_producers {
                frame_producer.set_stop_flag(Arc::clone(stop.flag()));
            }
            of.packed.lock().iter_mut().for_each(|one| one.set_stop_flag(stop.flag()));
            let worker = Worker {
                reopen,
                frame_producers,
                stop: stop.clone(),
                status: of,
                info: source.as_ref().map(|source| source.info().clone()),
                on_info,
                process: None,
            };
            worker.run(source);
        })?;
        Ok(Self { keeper, status })
    }
}

/// The pages that watch a stream whose source was opened `since` its stream began.
#[derive(Debug)]
struct Pages {
    status: Arc<FeedStatus>,
    since: Duration,
}

impl Onlookers for Pages {
    fn watched(&self) -> Watched {
        let followed = self.status.followed();
        let each = followed.iter().filter_map(|one| Some(one.sent.as_ref()?.watched()));
        let pages = each.fold(Watched::default(), Watched::and);
        Watched { units: pages.units || !self.status.packed.lock().is_empty(), ..pages }
    }

    fn small(&self, jpeg: &[u8]) {
        let mut slot = self.status.thumbnail.lock();
        let number = slot.as_ref().map_or(0, |(number, _)| number + 1);
        *slot = Some((number, Arc::from(jpeg)));
    }

    fn refused(&self, packets: u64) {
        self.status.refused.fetch_add(packets, Ordering::Relaxed);
    }

    fn image(&self, present: Duration, jpeg: &[u8]) {
        for sent in self.status.followed().iter().filter_map(|one| one.sent.as_ref()) {
            sent.image(present + self.since, jpeg);
        }
    }
}

struct Worker {
    reopen: SourceSpec,
    frame_producers: Vec<FrameProducer>,
    stop: Stop,
    status: Arc<FeedStatus>,
    /// The stream's description, once its source was open for the first time.
    info: Option<StreamInfo>,
    on_info: OnInfo,
    /// The process that will open the source again, if it has one.
    process: Option<SourceProcess>,
}

impl Worker {
    fn run(mut self, mut source: Option<MediaSource>) {
        // A launch line that fails may be wrong; it is not tried four times a second.
        let comes_and_goes =
            matches!(self.reopen.stream.source, SourceUri::Camera(_) | SourceUri::Network(_));
        let (first, longest) = if comes_and_goes { RETRY_ABSENT } else { RETRY };
        let mut wait = first;
        while !self.stop.is_requested() {
            let began = Instant::now();
            let ended = source.take().map_or_else(|| self.open(), Ok).and_then(|s| self.deliver(s));
            match ended {
                Ok(End::Stopped) => break,
                Ok(End::Eos { note }) => {
                    tracing::info!(stream = self.reopen.stream.spec.name, "source ended");
                    self.status.set(StreamState::Ended, note.unwrap_or_default());
                    return;
                }
                Err(error) => {
                    let delivered = self.status.get().0 == StreamState::Running;
                    // The death of a process indicates nothing about its source.
                    let died = error.trouble() == Trouble::Died;
                    let is_first =
                        began.elapsed() > HEALTHY.to_std() || (comes_and_goes || died) && delivered;
                    if is_first {
                        wait = if died { RETRY_ABSENT.0 } else { first };
                    }
                    tracing::warn!(stream = self.reopen.stream.spec.name, %error, %wait, "source failed");
                    let detail = format!("{error}; trying again in {wait}");
                    self.status.set(StreamState::Retrying, detail);
                    self.stop.pause(wait);
                    // The cause of this failure may also cut the next attempt short.
                    wait = if is_first { wait } else { (wait * 2).min(longest) };
                }
            }
        }
    }

    fn open(&mut self) -> Result<MediaSource, SourceError> {
        let stream = &self.reopen.stream;
        let limit = match may_be_absent(&stream.source) {
            true => OPENING.max(stream.spec.declared_period().unwrap_or_default() * 2),
            false => OPENING_LOCAL,
        };
        MediaSource::open(&self.reopen, &mut self.process, limit, self.stop.flag())
    }

    /// Records the stream's description when its source is open for the first time; `Err` with the old
    /// encoding when the source has become something else.
    fn note_info(&mut self, info: &StreamInfo) -> Result<(), &'static str> {
        if let Some(was) = &self.info {
            let same = info.codec == was.codec && info.clock_rate == was.clock_rate;
            return if same { Ok(()) } else { Err(was.encoding()) };
        }
        self.info = Some(info.clone());
        self.status.set_info(Some(info.clone()));
        (self.on_info)(info);
        Ok(())
    }

    fn deliver(&mut self, mut source: MediaSource) -> Result<End, SourceError> {
        let info = source.info().clone();
        if let Err(was) = self.note_info(&info) {
            let is = info.encoding();
            self.status.set(StreamState::Failed, format!("was {was}, came back as {is}"));
            return Ok(End::Stopped);
        }
        let stream = &self.reopen.stream;
        let by_rtp = stream.output.is_none() && matches!(stream.source, SourceUri::File { .. });
        match (source.pair(), self.status.pair.get()) {
            (Some(pair), _) => drop(self.status.pair.set(pair)),
            // A reload may add the file's other stream later.
            (None, None) if by_rtp => source.join(self.status.pair.get_or_init(Pair::default)),
            (None, Some(pair)) => source.join(pair),
            (None, None) => {}
        }
        self.status.set_encoder(source.encoder());
        self.status.set(StreamState::Running, "");
        // A source begins its timestamps near zero each time it is opened; receivers must see them
        // continue. Those of a pair continue by themselves.
        let since = source.began().saturating_duration_since(epoch()).as_nanos();
        let base = (since * u128::from(info.clock_rate) / 1_000_000_000) as u32;
        let since = Duration(u64::try_from(since).unwrap_or(u64::MAX));
        let (frame_producers, status) = (&mut self.frame_producers, &self.status);
        let mut sink = |frame: MediaFrame<'_>| {
            enqueue(&frame, &info, (base, since), status, frame_producers);
        };
        let pages = Arc::new(Pages { status: Arc::clone(&self.status), since });
        source.run(&self.reopen, &mut self.process, &mut sink, pages, self.stop.flag())
    }
}

/// Enqueues a frame of this medium at each of the stream's links. Its timestamp counts from `base`, and its times from
/// `since`.
pub(crate) fn enqueue(
    frame: &MediaFrame<'_>,
    info: &StreamInfo,
    (base, since): (u32, Duration),
    status: &FeedStatus,
    frame_producers: &mut [FrameProducer],
) {
    let offer = FrameMetadata {
        kind: frame.picture.kind,
        referenced: frame.picture.referenced,
        closes: frame.picture.closes,
        refs: frame.picture.refs,
        timestamp: base.wrapping_add(frame.rtp_timestamp),
    };
    let content = || Content::Unit {
        picture: frame.picture,
        present: frame.media_time + since,
        unit: frame.unit.to_vec(),
    };
    SentPictures::offer(&status.followed(), content, Some(Duration::ZERO), || {
        let next = frame_producers.first().map_or(0, FrameProducer::next_number);
        // A refused frame is counted by its frame producer, and by the link as a gap.
        let offered = |one: &mut FrameProducer| one.enqueue(offer, frame.packets).ok();
        let numbers: Vec<_> = frame_producers.iter_mut().map(offered).collect();
        let mut packed = status.packed.lock();
        packed.retain(|one| !one.is_abandoned());
        let others = packed.iter_mut().map(|one| one.enqueue(offer, frame, (info, next, since)));
        let others: Vec<_> = others.collect();
        numbers.into_iter().chain(others).flatten().next()
    });
}
