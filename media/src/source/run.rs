//! Opening a source and running it: units in, frames out, at media speed or as fast as they come.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gstreamer as gst;
use selvedge_control_config::SourceUri;
use selvedge_data_stream::Kind;
use selvedge_units::{Duration, Instant};

use super::encoder::Encoder;
use super::feed::{Feed, PullResult};
use super::framing::{self, Framing};
use super::packetizer::Packetizer;
use super::together::{SLACK, Together};
use super::unit::Unit;
use super::{LOOK_AHEAD, PERIOD_DEFAULT, Source, SourceOpener, TIMEOUT, elements};
use crate::error::SourceError;
use crate::frame::{End, FrameSink, MediaFrame, StreamInfo};
use crate::onlookers::Onlookers;
use crate::pace::Pacer;
use crate::picture::{Codec, jpeg};
use crate::thumbnail::{ImageSize, Imager, Thumbnailer};
use crate::timeline::FrameTimes;

/// How long anything waits before it looks at the stop flag.
const STOP_POLL: Duration = Duration::from_millis(50);
/// How often in a row a pipeline must be found without a running thread to be given up.
const DEAD_POLLS: u32 = 6;
/// How long a camera or server may send nothing before it counts as gone.
const SILENCE: Duration = Duration::from_secs(5);
/// How often it is reported how many packets were refused.
const TELL: Duration = Duration::from_secs(1);
/// What may be missing at the end of a clip before it counts as cut off.
const CUT_OFF: Duration = Duration::from_secs(1);

impl Source {
    /// Opens a source and waits for its first frame, 10 s at most: [`Self::open_within`].
    ///
    /// # Errors
    /// [`SourceError`], which says what was found and what to do.
    pub fn open(uri: &SourceUri, base_dir: &Path, payload_max: usize) -> Result<Self, SourceError> {
        Self::open_within(uri, base_dir, payload_max, TIMEOUT, &AtomicBool::new(false))
    }

    /// Opens a source and waits for its first frame, so long at most, and no longer once `stop` is set.
    ///
    /// `base_dir` is where relative paths begin; `payload_max` is how many bytes a packet may
    /// carry behind its 12-byte fixed header (64 to 65000).
    ///
    /// # Errors
    /// [`SourceError`], which says what was found and what to do.
    pub fn open_within(
        uri: &SourceUri,
        base_dir: &Path,
        payload_max: usize,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Self, SourceError> {
        elements::init()?;
        Self::open_by(SourceOpener::new(uri, base_dir)?, payload_max, limit, stop)
    }

    /// The same, once its description is read.
    pub(crate) fn open_by(
        opener: SourceOpener,
        payload_max: usize,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Self, SourceError> {
        let mut feed = opener.feed().map_err(|e| opener.explain(e))?;
        let (format, fmtp, first) = match opener.known_format() {
            Some((format, fmtp)) => (format, fmtp, None),
            None => {
                let (first, caps) = first_unit(&mut feed, &opener.what, limit, stop)
                    .map_err(|e| opener.explain(e))?;
                (framing::format(&opener.what, &caps)?, None, Some(first))
            }
        };
        let framing = Framing::new(&opener.what, format, payload_max)?;
        let mut source = Self {
            encoder: feed.encoder(opener.knob()),
            feed,
            thumbnailer: None,
            imager: None,
            expected: Duration::ZERO,
            together: None,
            ahead: first.into_iter().collect(),
            info: StreamInfo { fmtp, ..framing.info() },
            framing,
            opener,
            opened: std::time::Instant::now(),
        };
        source.learn(payload_max)?;
        Ok(source)
    }

    /// What the stream is.
    #[must_use]
    pub const fn info(&self) -> &StreamInfo {
        &self.info
    }

    /// Its encoder, if it is encoded here and the rate may change.
    #[must_use]
    pub fn encoder(&self) -> Option<Encoder> {
        self.encoder.clone()
    }

    /// When its time began: that of what is live with its first frame, that of a file when it is run.
    #[must_use]
    pub fn began(&self) -> std::time::Instant {
        match &self.together {
            Some(together) => together.began(),
            None if self.feed.is_live() => self.opened,
            None => std::time::Instant::now(),
        }
    }

    /// A camera or server whose pictures come at this period is not given up between two of them.
    pub const fn expect_period(&mut self, period: Duration) {
        self.expected = period;
    }

    /// From now on, `give` gets small pictures of the stream while it runs: see
    /// [`Thumbnailer::new`]. False for sound, which has none.
    ///
    /// # Errors
    /// As [`Thumbnailer::new`].
    pub fn thumbnails(
        &mut self,
        give: impl FnMut(&[u8], Duration) + Send + 'static,
    ) -> Result<bool, SourceError> {
        self.thumbnailer = Thumbnailer::new(self.framing.format.codec, ImageSize::SMALL, give)?;
        Ok(self.thumbnailer.is_some())
    }

    /// From now on, these see what becomes of the source while it runs: its small pictures if they are wanted,
    /// and what else they look at. Sound has no pictures.
    ///
    /// # Errors
    /// As [`Thumbnailer::new`].
    pub fn show(
        &mut self,
        onlookers: Arc<dyn Onlookers>,
        thumbnails: bool,
    ) -> Result<(), SourceError> {
        self.imager = Some(Imager::new(self.framing.format.codec, Arc::clone(&onlookers)));
        if thumbnails {
            self.thumbnails(move |jpeg, _at| onlookers.small(jpeg))?;
        }
        Ok(())
    }

    /// Delivers frames at media speed until the media ends or `stop` is set, which is looked at
    /// at least every 100 ms. Blocks; for a thread of its own. A source that loops does not end.
    ///
    /// # Errors
    /// [`SourceError`] if the source breaks in a way that is no end: see its cases. A file that
    /// is cut off or damaged plays as far as it goes, and ends with a note.
    pub fn run(&mut self, sink: &mut dyn FrameSink, stop: &AtomicBool) -> Result<End, SourceError> {
        let pacer = (!self.feed.is_live()).then(|| Pacer::new(SLACK));
        self.deliver(sink, stop, pacer)
    }

    /// Like [`Self::run`], but as fast as frames can be read.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_unpaced(
        &mut self,
        sink: &mut dyn FrameSink,
        stop: &AtomicBool,
    ) -> Result<End, SourceError> {
        self.deliver(sink, stop, None)
    }

    /// Completes `info` from the first units, and prepares for the rest.
    fn learn(&mut self, payload_max: usize) -> Result<(), SourceError> {
        if !self.framing.is_audio() && self.framing.format.period.is_none() {
            self.info.period = self.measured_period()?;
            self.framing.timeline.set_period(self.info.period);
        }
        let Some(first) = self.ahead.front() else { return Ok(()) };
        let map = first.buffer.map_readable();
        let bytes = map.as_deref().unwrap_or_default();
        if self.framing.format.codec == Codec::Jpeg {
            let size = jpeg::check(bytes)
                .map_err(|reason| SourceError::Jpeg { what: self.opener.what.clone(), reason })?;
            self.info.width = Some(size.width.into());
            self.info.height = Some(size.height.into());
        }
        // Only a payloader that has seen a unit knows the parameters; this one is thrown away.
        let mut scout = Packetizer::new(self.framing.format.codec, payload_max)?;
        let at = FrameTimes { decode: Duration::ZERO, present: Duration::ZERO };
        scout.push(&first.buffer, &self.framing.format.caps, at)?;
        self.info.fmtp = scout.fmtp(bytes);
        Ok(())
    }

    /// The middle of the steps between the first units; the default if they show nothing.
    fn measured_period(&mut self) -> Result<Duration, SourceError> {
        if !self.feed.is_live() {
            while self.ahead.len() < LOOK_AHEAD {
                match self.feed.pull(STOP_POLL)? {
                    PullResult::Unit(unit, _) => self.ahead.push_back(unit),
                    PullResult::Nothing | PullResult::End(_) => break,
                }
            }
        }
        let mut times = self.ahead.iter().filter_map(|u| u.pts.or(u.dts)).collect::<Vec<_>>();
        times.sort_unstable();
        let mut steps = times.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
        steps.sort_unstable();
        let middle = steps.get(steps.len() / 2).and_then(|&ns| u64::try_from(ns).ok());
        Ok(middle.filter(|&ns| ns > 0).map_or(PERIOD_DEFAULT, Duration))
    }

    fn deliver(
        &mut self,
        sink: &mut dyn FrameSink,
        stop: &AtomicBool,
        mut pacer: Option<Pacer>,
    ) -> Result<End, SourceError> {
        let clock = std::time::Instant::now();
        let together = self.together.clone();
        let now = || match &together {
            Some(shared) => shared.now(),
            None => Instant(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX)),
        };
        let mut heard = now();
        let (mut reported, mut refused) = (heard, 0);
        let from_network = !self.opener.waits_for_packets() && self.feed.is_from_network();
        while !stop.load(Ordering::Relaxed) {
            if let Some(imager) = self.imager.as_ref().filter(|_| now().since(reported) > TELL) {
                let before = std::mem::replace(&mut refused, self.feed.refused());
                imager.onlookers.refused(refused.saturating_sub(before));
                reported = now();
            }
            let pulled = match self.ahead.pop_front() {
                Some(unit) => PullResult::Unit(unit, self.framing.format.caps.clone()),
                None => self.feed.pull(STOP_POLL).map_err(|e| self.opener.explain(e))?,
            };
            let (frames, end) = match pulled {
                PullResult::Unit(unit, caps) => {
                    self.accept_caps(&caps)?;
                    (self.framing.frames(unit, self.info.period), None)
                }
                PullResult::Nothing => {
                    let waited = now().since(heard);
                    let rare = self.info.period.max(self.expected) * 2;
                    let limit = if from_network { SILENCE.max(rare) } else { TIMEOUT };
                    if waited > limit && (from_network || !self.feed.is_live()) {
                        let what = self.opener.what.clone();
                        return Err(SourceError::Stalled { what, waited });
                    }
                    continue;
                }
                PullResult::End(note) if self.opener.repeat => {
                    self.restart_medium(note)?;
                    heard = now();
                    continue;
                }
                PullResult::End(_) if from_network => {
                    let (what, message) = (self.opener.what.clone(), "it has gone".into());
                    return Err(SourceError::Unreachable { what, message });
                }
                PullResult::End(note) => {
                    let note = note.or_else(|| self.cut_off());
                    (self.framing.drain_rest().into_iter().collect(), Some(End::Eos { note }))
                }
            };
            for (unit, at) in frames {
                let late = |shared: &Together| shared.catches_up && shared.is_past(at.decode);
                if self.together.as_ref().is_some_and(late) {
                    continue;
                }
                if let Some(pacer) = &mut pacer {
                    let due = match &together {
                        Some(shared) => shared.due(now(), at.decode),
                        None => pacer.due(now(), at.decode),
                    };
                    if !sleep_until(due, now, stop) {
                        return Ok(End::Stopped);
                    }
                }
                self.enqueue(&unit, at, sink)?;
            }
            if let Some(end) = end {
                return Ok(end);
            }
            heard = now();
        }
        Ok(End::Stopped)
    }

    /// What to say of media that end long before the end that their container states.
    fn cut_off(&self) -> Option<String> {
        let whole = self.feed.duration()?;
        let played = self.framing.timeline.next_decode();
        let missing = whole - played;
        (!self.framing.is_audio() && missing > CUT_OFF && missing.0 > whole.0 / 10).then(|| {
            let (played, whole) = (played.as_secs_f64(), whole.as_secs_f64());
            format!("it ends after {played:.1} s of {whole:.1} s: the file may be cut off")
        })
    }

    /// The medium from its beginning; time goes on without a gap.
    fn restart_medium(&mut self, note: Option<String>) -> Result<(), SourceError> {
        if let Some(note) = note {
            tracing::warn!("{} ended early and begins again: {note}", self.opener.what);
        }
        let length = self.feed.duration();
        let feed = self.opener.feed()?;
        if let Some(encoder) = &self.encoder
            && let Some(next) = feed.encoder(None)
        {
            encoder.handle_next(&next);
        }
        self.feed = feed;
        self.framing.restart();
        if let Some((shared, length)) = self.together.as_mut().zip(length) {
            self.framing.align(shared.next_pass(length));
        }
        Ok(())
    }

    /// Takes a change of caps in mid-stream, if the stream stays what it was announced to be.
    fn accept_caps(&mut self, caps: &gst::Caps) -> Result<(), SourceError> {
        if *caps == self.framing.format.caps {
            return Ok(());
        }
        self.framing.accept_caps(caps)?;
        if let Some(period) = self.framing.format.period {
            self.framing.timeline.set_period(period);
        }
        Ok(())
    }

    fn enqueue(
        &mut self,
        unit: &gst::Buffer,
        at: FrameTimes,
        sink: &mut dyn FrameSink,
    ) -> Result<(), SourceError> {
        let mut begins = self.together.as_ref().is_none_or(|shared| !shared.catches_up);
        let mut beginning = |frame: MediaFrame<'_>| {
            begins |= !matches!(frame.picture.kind, Kind::Predicted | Kind::Bidirectional);
            if begins {
                sink.enqueue(frame);
            }
        };
        let picture = self.framing.enqueue(unit, at, &mut beginning)?;
        if let Some(shared) = &mut self.together {
            shared.catches_up &= !begins;
        }
        let Some(picture) = picture.filter(|_| begins) else { return Ok(()) };
        if let Some(thumbnailer) = &mut self.thumbnailer {
            thumbnailer.feed_buffer(picture, at.present, unit);
        }
        if let Some(imager) = self.imager.as_mut().and_then(Imager::made) {
            imager.feed_buffer(picture, at.present, unit);
        }
        Ok(())
    }
}

fn first_unit(
    feed: &mut Feed,
    what: &str,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<(Unit, gst::Caps), SourceError> {
    let began = std::time::Instant::now();
    let mut dead = 0;
    while began.elapsed() < limit.to_std() && !stop.load(Ordering::Relaxed) {
        match feed.pull(STOP_POLL)? {
            PullResult::Unit(unit, caps) => return Ok((unit, caps)),
            PullResult::Nothing => {}
            PullResult::End(_) => break,
        }
        // Threads also stand still for a moment while elements are put in place.
        dead = if !feed.is_live() && feed.is_dead() { dead + 1 } else { 0 };
        if dead > DEAD_POLLS {
            let found = "it breaks off before its first frame".into();
            return Err(SourceError::NotMedia { what: what.into(), found });
        }
    }
    Err(SourceError::Stalled { what: what.into(), waited: limit })
}

/// Sleeps in slices; false if `stop` was set meanwhile.
fn sleep_until(due: Instant, now: impl Fn() -> Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        match due.since(now()) {
            Duration::ZERO => return true,
            left => std::thread::park_timeout(STOP_POLL.min(left).into()),
        }
    }
}
