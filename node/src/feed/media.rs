//! A GStreamer source's thread: it delivers frames to inlets, and when the source breaks off it
//! opens it again, waiting longer each time. No other stream is touched by that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use selvedge_control_config::view::StreamState;
use selvedge_media::{End, MediaFrame, Source, SourceError, StreamInfo};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::Duration;

use super::{FeedStatus, SourceSpec};

/// The first wait before a source is tried again, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// A source that ran this long is not blamed for its earlier failures.
const HEALTHY: Duration = Duration::from_secs(20);

/// A source's thread; dropped, it stops and is waited for.
pub(super) struct SourceThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    status: Arc<FeedStatus>,
}

impl SourceThread {
    pub(super) fn start(
        source: Source,
        reopen: SourceSpec,
        status: Arc<FeedStatus>,
        mut frame_producers: Vec<FrameProducer>,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        frame_producers
            .iter_mut()
            .for_each(|frame_producer| frame_producer.set_stop_flag(Arc::clone(&stop)));
        let worker = Worker {
            reopen,
            frame_producers,
            stop: Arc::clone(&stop),
            status: Arc::clone(&status),
            began: Instant::now(),
            info: source.info().clone(),
        };
        let thread = thread::Builder::new()
            .name(format!("source {}", worker.reopen.stream.spec.name))
            .spawn(move || worker.run(source))?;
        Ok(Self { stop, thread: Some(thread), status })
    }

    /// What it writes how it does into.
    pub(super) const fn status(&self) -> &Arc<FeedStatus> {
        &self.status
    }

    /// Whether nothing more will come.
    pub(super) fn is_over(&self) -> bool {
        self.status.is_over()
    }

    /// Asks it to stop; `drop` waits for it.
    pub(super) fn request_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for SourceThread {
    fn drop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

struct Worker {
    reopen: SourceSpec,
    frame_producers: Vec<FrameProducer>,
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
                    tracing::info!(stream = self.reopen.stream.spec.name, "source ended");
                    self.status.set(StreamState::Ended, note.unwrap_or_default());
                    return;
                }
                Err(error) => {
                    if began.elapsed() > HEALTHY.to_std() {
                        wait = RETRY.0;
                    }
                    tracing::warn!(stream = self.reopen.stream.spec.name, %error, ?wait, "source failed");
                    let detail = format!("{error}; trying again in {wait}");
                    self.status.set(StreamState::Retrying, detail);
                    self.pause(wait);
                    wait = (wait * 2).min(RETRY.1);
                }
            }
        }
    }

    fn open(&self) -> Result<Source, SourceError> {
        let SourceSpec { stream, base, payload_max } = &self.reopen;
        Source::open(&stream.source, base, *payload_max)
    }

    fn deliver(&mut self, mut source: Source) -> Result<End, SourceError> {
        let info = source.info().clone();
        if info.codec != self.info.codec || info.clock_rate != self.info.clock_rate {
            let (was, is) = (self.info.encoding(), info.encoding());
            self.status.set(StreamState::Failed, format!("was {was}, came back as {is}"));
            return Ok(End::Stopped);
        }
        if self.reopen.stream.thumbnail {
            let status = Arc::clone(&self.status);
            let give = move |jpeg: &[u8], _at| {
                let mut slot = status.thumbnail.lock();
                let number = slot.as_ref().map_or(0, |(number, _)| number + 1);
                *slot = Some((number, Arc::from(jpeg)));
            };
            // Pictures on the page are worth no stream: without them it goes on.
            if let Err(error) = source.thumbnails(give) {
                tracing::warn!(stream = self.reopen.stream.spec.name, %error, "no thumbnails");
            }
        }
        self.status.set(StreamState::Running, "");
        // A source begins its timestamps near zero each time it is opened; receivers must see
        // them go on.
        let elapsed = self.began.elapsed().as_nanos() * u128::from(info.clock_rate);
        let base = (elapsed / 1_000_000_000) as u32;
        let frame_producers = &mut self.frame_producers;
        let mut sink = |frame: MediaFrame<'_>| {
            let offer = FrameMetadata {
                kind: frame.picture.kind,
                referenced: frame.picture.referenced,
                closes: frame.picture.closes,
                refs: frame.picture.refs,
                timestamp: base.wrapping_add(frame.rtp_timestamp),
            };
            for frame_producer in frame_producers.iter_mut() {
                // A refused frame is counted by the inlet, and by the link as a gap.
                let _ = frame_producer.enqueue(offer, frame.packets);
            }
        };
        source.run(&mut sink, &self.stop)
    }

    /// Waits, unless asked to stop.
    fn pause(&self, wait: Duration) {
        let until = Instant::now() + wait.to_std();
        while !self.stop.load(Ordering::Relaxed) && Instant::now() < until {
            thread::park_timeout(until.saturating_duration_since(Instant::now()));
        }
    }
}
