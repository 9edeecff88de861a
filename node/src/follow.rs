//! Follows the frames of inline links to their fates: counts how long sent frames had waited and the
//! kinds of dropped ones, and shows the frames that left the node to the pages that watch a stream.
//!
//! `engine -> NodeTap -> counters`, and while a page watches: `source -> FramesAwaitingFate`, `NodeTap
//! -> channel -> thread "pictures" -> PictureRings`. The engine's thread never waits here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use selvedge_control_config::view::{QUEUEING_BOUNDS, QueueingCounts};
use selvedge_data_stream::{Fate, Frame, Kind};
use selvedge_place_engine::engine::FateTap;
use selvedge_units::Instant;

#[cfg(feature = "gstreamer")]
pub(crate) use pictures::{Content, Pictures, SentPictures};

/// How long frames of a stream had waited when they were sent, since the start.
#[derive(Debug, Default)]
pub(crate) struct QueueingCounters {
    counts: [AtomicU64; QUEUEING_BOUNDS.len() + 1],
    sum_ns: AtomicU64,
}

impl QueueingCounters {
    pub(crate) fn counts(&self) -> QueueingCounts {
        QueueingCounts {
            counts: self.counts.each_ref().map(|count| count.load(Ordering::Relaxed)),
            sum_ms: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }
}

/// The counters and pictures of one stream.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    pub(crate) queueing: QueueingCounters,
    pub(crate) dropped: [AtomicU64; Kind::COUNT],
    #[cfg(feature = "gstreamer")]
    pub(crate) sent: Option<Arc<SentPictures>>,
}

impl Followed {
    /// Frames dropped since the start, by the numbers of their kinds.
    pub(crate) fn dropped_kinds(&self) -> [u64; Kind::COUNT] {
        self.dropped.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    fn settled(&self, frame: &Frame, fate: Fate) {
        match fate {
            Fate::Sent { queueing, .. } => {
                let place = QUEUEING_BOUNDS.partition_point(|bound| *bound < queueing);
                self.queueing.counts[place].fetch_add(1, Ordering::Relaxed);
                self.queueing.sum_ns.fetch_add(queueing.0, Ordering::Relaxed);
            }
            Fate::Dropped(_) => {
                self.dropped[frame.kind as usize].fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// The followed streams of one link, by their numbers there. The number of a removed stream is given
/// again.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowedStreams(Arc<RwLock<Vec<Arc<Followed>>>>);

impl FollowedStreams {
    pub(crate) fn new(streams: Vec<Arc<Followed>>) -> Self {
        Self(Arc::new(RwLock::new(streams)))
    }

    /// Follows a new stream that has this number.
    pub(crate) fn add(&self, number: usize) -> Arc<Followed> {
        let mut streams = self.0.write();
        if number >= streams.len() {
            streams.resize_with(number + 1, Arc::default);
        }
        streams[number] = Arc::default();
        Arc::clone(&streams[number])
    }
}

/// Receives the fates of a link's frames, and passes them on.
pub(crate) struct NodeTap {
    pub(crate) streams: FollowedStreams,
    pub(crate) next: Option<Box<dyn FateTap>>,
}

impl FateTap for NodeTap {
    fn settled(&mut self, stream: usize, frame: &Frame, fate: Fate, now: Instant) {
        let streams = self.streams.0.read();
        let followed = streams.get(stream);
        if let Some(followed) = followed {
            followed.settled(frame, fate);
        }
        #[cfg(feature = "gstreamer")]
        if let Some(sent) = followed.and_then(|followed| followed.sent.as_ref()) {
            sent.settled(frame, fate, now);
        }
        if let Some(next) = &mut self.next {
            next.settled(stream, frame, fate, now);
        }
    }
}

#[cfg(feature = "gstreamer")]
mod pictures {
    //! The frames that left, as pictures.

    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
    use std::sync::{Arc, OnceLock};

    use parking_lot::Mutex;
    use selvedge_control_config::view::VideoTrack;
    use selvedge_control_config::{SourceUri, StreamConfig};
    use selvedge_data_stream::{Fate, Frame, Kind, References};
    use selvedge_media::{
        Onlookers, Picture, PictureRings, PictureTimes, StreamInfo, Units, Watched,
    };
    use selvedge_units::{Duration, Instant};

    use super::Followed;
    use selvedge_os::keeper::{Keeper, Stop};

    /// Fates on their way to the thread, and frames and bytes of a stream that await theirs.
    const FATES_MAX: usize = 4096;
    const FRAMES_MAX: usize = 2048;
    const BYTES_MAX: usize = 16 << 20;
    /// How often the thread checks which streams are watched.
    const LOOK: Duration = Duration::from_millis(500);

    /// A frame that was settled.
    #[derive(Clone, Copy, Debug)]
    struct Settled {
        stream: usize,
        seq: u32,
        kind: Kind,
        referenced: bool,
        refs: References,
        on_time: bool,
        left: Duration,
        /// Since it arrived.
        waited: Duration,
    }

    /// What a frame brings to a page.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) enum Content {
        Unit {
            picture: Picture,
            present: Duration,
            unit: Vec<u8>,
        },
        /// Whole packets, which only become a unit while they are shown.
        Packets(Vec<Vec<u8>>),
    }

    impl Content {
        fn len(&self) -> usize {
            match self {
                Self::Unit { unit, .. } => unit.len(),
                Self::Packets(packets) => packets.iter().map(Vec::len).sum(),
            }
        }
    }

    /// One stream's frames on their way to a page.
    #[derive(Debug)]
    pub(crate) struct SentPictures {
        place: usize,
        /// Whether frames come as packets.
        by_packets: bool,
        medium: OnceLock<ShownMedium>,
        watched: AtomicBool,
        waiting: Mutex<Waiting>,
        fates: SyncSender<Settled>,
    }

    /// What is shown, once it is known.
    #[derive(Debug)]
    struct ShownMedium {
        info: StreamInfo,
        rings: PictureRings,
        /// Where frames come as packets.
        units: Option<Mutex<Units>>,
    }

    #[derive(Debug, Default)]
    struct Waiting {
        frames: VecDeque<FrameAwaitingFate>,
        bytes: usize,
    }

    #[derive(Debug, PartialEq, Eq)]
    struct FrameAwaitingFate {
        seq: u32,
        /// Since its source took it in, when it arrived here.
        age: Option<Duration>,
        content: Content,
    }

    impl SentPictures {
        /// Offers a frame of this age to the links of these streams by `enqueue`, which returns its number. Keeps its
        /// content for each that a page watches, until its fate is known.
        pub(crate) fn offer(
            streams: &[Arc<Followed>],
            content: impl Fn() -> Content,
            age: Option<Duration>,
            enqueue: impl FnOnce() -> Option<u32>,
        ) {
            let is_watched = |sent: &&Self| sent.watched.load(Ordering::Relaxed);
            let sent = streams.iter().filter_map(|one| one.sent.as_deref()).filter(is_watched);
            // Locked meanwhile: the frame's fate may be known before the number is.
            let waiting: Vec<_> = sent.map(|sent| sent.waiting.lock()).collect();
            let Some(seq) = enqueue() else { return };
            for mut waiting in waiting {
                let content = content();
                // A source in another process takes a moment to begin sending units.
                if content.len() == 0 {
                    continue;
                }
                waiting.bytes += content.len();
                waiting.frames.push_back(FrameAwaitingFate { seq, age, content });
                while waiting.frames.len() > FRAMES_MAX || waiting.bytes > BYTES_MAX {
                    let oldest = waiting.frames.front().map_or(0, |frame| frame.seq);
                    waiting.take(oldest);
                }
            }
        }

        /// On the engine's thread.
        pub(super) fn settled(&self, frame: &Frame, fate: Fate, now: Instant) {
            if self.watched.load(Ordering::Relaxed) {
                let settled = Settled {
                    stream: self.place,
                    seq: frame.seq,
                    kind: frame.kind,
                    referenced: frame.referenced,
                    refs: frame.refs,
                    on_time: matches!(fate, Fate::Sent { on_time: true, .. }),
                    left: frame.deadline.map_or(Duration::ZERO, |deadline| deadline.since(now)),
                    waited: now.since(frame.arrival),
                };
                // If this thread falls behind, pictures are lost; the engine is not delayed.
                let _ = self.fates.try_send(settled);
            }
        }

        /// The medium is known; a stream never gets another one. Nothing is shown of one that pages can't show.
        pub(crate) fn set_medium(&self, info: &StreamInfo) {
            let units = Units::new(info.codec, info.clock_rate).filter(|_| self.by_packets);
            let is_shown = if self.by_packets {
                units.is_some()
            } else {
                !info.codec.is_audio() || info.codec.sound().is_some()
            };
            if is_shown {
                let (info, units) = (info.clone(), units.map(Mutex::new));
                let rings = PictureRings::new(info.codec);
                self.medium.get_or_init(|| ShownMedium { info, rings, units });
            }
        }

        /// Whether pages can be shown it.
        pub(crate) fn is_shown(&self) -> bool {
            self.medium.get().is_some()
        }

        /// Its pictures, for a page that watches.
        pub(crate) fn shown(&self) -> Option<&PictureRings> {
            let medium = self.medium.get()?;
            self.watched.store(true, Ordering::Relaxed);
            Some(&medium.rings)
        }

        /// Takes an image of a frame.
        pub(crate) fn image(&self, present: Duration, jpeg: &[u8]) {
            self.medium.get().into_iter().for_each(|medium| medium.rings.image(present, jpeg));
        }

        /// The state of being watched by pages.
        pub(crate) fn watched(&self) -> Watched {
            let medium = self.medium.get().filter(|_| self.watched.load(Ordering::Relaxed));
            medium.map_or_else(Watched::default, |medium| medium.rings.watched())
        }

        /// What pages can be shown of the stream with this name, once its medium is known.
        pub(crate) fn track(&self, stream: &str) -> Option<VideoTrack> {
            let info = &self.medium.get()?.info;
            let (codec, sound) =
                (info.codec.browser_name(info.fmtp.as_deref()), info.codec.sound());
            let (stream, label) = (stream.to_owned(), "sent".to_owned());
            Some(VideoTrack { stream, label, by: String::new(), codec, sound })
        }

        /// Shows a frame.
        fn show(
            &self,
            FrameAwaitingFate { age, content, .. }: FrameAwaitingFate,
            settled: &Settled,
        ) {
            let Some(ShownMedium { info, rings, units }) = self.medium.get() else { return };
            let times =
                PictureTimes { left: settled.left, age: age.map(|age| age + settled.waited) };
            match content {
                Content::Unit { picture, present, unit } => {
                    rings.push(picture, present, times, &unit);
                }
                Content::Packets(packets) => {
                    let unit = units.as_ref().and_then(|units| units.lock().push(&packets));
                    let stated = Picture::stated(settled.kind, settled.referenced);
                    if let Some((present, unit)) = unit {
                        let picture = info.codec.picture_or(&unit, stated);
                        rings.push(picture, present, times, &unit);
                    }
                }
            }
        }
    }

    impl Waiting {
        /// The frame with this number; frames offered before it are discarded.
        fn take(&mut self, seq: u32) -> Option<FrameAwaitingFate> {
            let is_before = |other: u32| other.wrapping_sub(seq).cast_signed() < 0;
            loop {
                let next = self.frames.front()?.seq;
                if next != seq && !is_before(next) {
                    return None;
                }
                let frame = self.frames.pop_front()?;
                self.bytes -= frame.content.len();
                if next == seq {
                    return Some(frame);
                }
            }
        }
    }

    /// The thread that joins fates and frames; dropped, it stops.
    #[derive(Debug)]
    pub(crate) struct Pictures {
        pub(crate) streams: Vec<Option<Arc<SentPictures>>>,
        _keeper: Keeper,
    }

    impl Pictures {
        /// For these streams.
        pub(crate) fn start(streams: &[StreamConfig]) -> std::io::Result<Self> {
            let (fates, came) = sync_channel(FATES_MAX);
            let sent = |(place, stream): (usize, &StreamConfig)| {
                stream.thumbnail.then(|| {
                    let by_packets = matches!(stream.source, SourceUri::Bond { .. });
                    let (medium, waiting) = (OnceLock::new(), Mutex::default());
                    let (watched, fates) = (AtomicBool::new(false), fates.clone());
                    Arc::new(SentPictures { place, by_packets, medium, watched, waiting, fates })
                })
            };
            let streams: Vec<_> = streams.iter().enumerate().map(sent).collect();
            let of = streams.clone();
            let keeper = Keeper::start("pictures".to_owned(), move |stop| run(&of, &came, stop))?;
            Ok(Self { streams, _keeper: keeper })
        }
    }

    /// Which of the 64 frames before the last can be decoded.
    #[derive(Clone, Copy, Debug, Default)]
    struct Decodable {
        last: u32,
        history: u64,
    }

    impl Decodable {
        /// Whether the next frame can be: it was sent on time, as were all frames that it refers to.
        fn push(&mut self, settled: &Settled) -> bool {
            let step = settled.seq.wrapping_sub(self.last);
            self.history = self.history.checked_shl(step.wrapping_sub(1)).unwrap_or(0);
            self.last = settled.seq;
            // References beyond this page's memory count as lost.
            let decodable = settled.on_time && settled.refs.are_met(self.history, |_| false);
            self.history = self.history << 1 | u64::from(decodable);
            // The bit of this frame is the lowest when the next one comes.
            decodable
        }
    }

    fn run(streams: &[Option<Arc<SentPictures>>], came: &Receiver<Settled>, stop: &Stop) {
        let mut decodable = vec![Decodable::default(); streams.len()];
        while !stop.is_requested() {
            match came.recv_timeout(LOOK.to_std()) {
                Ok(settled) => {
                    let Some(Some(sent)) = streams.get(settled.stream) else { continue };
                    let shown = decodable[settled.stream].push(&settled);
                    let frame = sent.waiting.lock().take(settled.seq);
                    if let (true, Some(frame)) = (shown, frame) {
                        sent.show(frame, &settled);
                        sent.watched.store(sent.watched().units, Ordering::Relaxed);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_frame_is_shown_if_it_left_on_time_and_all_that_it_needs() {
            let mut decodable = Decodable::default();
            let mut push = |seq, back: u32, on_time| {
                let refs = if back == 0 { References::NONE } else { References::to([back]) };
                let (left, waited) = (Duration::ZERO, Duration::ZERO);
                let (kind, referenced) = (Kind::Predicted, true);
                decodable.push(&Settled {
                    stream: 0,
                    seq,
                    kind,
                    referenced,
                    refs,
                    on_time,
                    left,
                    waited,
                })
            };
            assert!(!push(10, 1, true), "what it needs was not seen");
            assert!(push(11, 0, true) && push(12, 1, true));
            assert!(!push(13, 1, false) && !push(14, 1, true) && push(15, 3, true));
            assert!(push(18, 3, true), "of a gap only what lies in it is lost");
            assert!(!push(19, 2, true) && !push(300, 1, true) && push(301, 0, true));
        }

        #[test]
        fn frames_wait_for_their_fate_and_no_longer() {
            let mut waiting = Waiting::default();
            let frame = |seq| {
                let content = Content::Packets(vec![vec![seq as u8; 3]]);
                FrameAwaitingFate { seq, age: None, content }
            };
            for seq in [u32::MAX - 1, u32::MAX, 0, 2] {
                waiting.bytes += 3;
                waiting.frames.push_back(frame(seq));
            }
            assert_eq!(waiting.take(u32::MAX), Some(frame(u32::MAX)));
            assert_eq!((waiting.frames.len(), waiting.bytes), (2, 6));
            assert_eq!(waiting.take(1), None);
            assert_eq!(waiting.take(2), Some(frame(2)));
            assert_eq!((waiting.frames.len(), waiting.bytes), (0, 0));
        }
    }
}
