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
pub(crate) use pictures::{Pictures, SentPictures};

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
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};

    use parking_lot::Mutex;
    use selvedge_data_stream::{Fate, Frame, References};
    use selvedge_media::{MediaFrame, Onlookers, Picture, PictureRings, StreamInfo, Watched};
    use selvedge_units::{Duration, Instant};

    use super::Followed;
    use crate::keeper::{Keeper, Stop};

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
        refs: References,
        on_time: bool,
        left: Duration,
    }

    /// One stream's frames on their way to a page.
    #[derive(Debug)]
    pub(crate) struct SentPictures {
        place: usize,
        info: StreamInfo,
        pub(crate) rings: PictureRings,
        watched: AtomicBool,
        waiting: Mutex<Waiting>,
        fates: SyncSender<Settled>,
    }

    #[derive(Debug, Default)]
    struct Waiting {
        frames: VecDeque<FrameAwaitingFate>,
        bytes: usize,
    }

    #[derive(Debug, PartialEq, Eq)]
    struct FrameAwaitingFate {
        seq: u32,
        picture: Picture,
        present: Duration,
        unit: Vec<u8>,
    }

    impl SentPictures {
        /// Offers a frame to the links of these streams by `enqueue`, which returns its number. Keeps its access unit
        /// for each that a page watches, until its fate is known. Its source began `since` its stream did.
        pub(crate) fn offer(
            streams: &[Arc<Followed>],
            frame: &MediaFrame<'_>,
            since: Duration,
            enqueue: impl FnOnce() -> Option<u32>,
        ) {
            // A source in another process takes a moment to begin sending units.
            let is_watched =
                |sent: &&Self| sent.watched.load(Ordering::Relaxed) && !frame.unit.is_empty();
            let sent = streams.iter().filter_map(|one| one.sent.as_deref()).filter(is_watched);
            // Locked meanwhile: the frame's fate may be known before the number is.
            let waiting: Vec<_> = sent.map(|sent| sent.waiting.lock()).collect();
            let Some(seq) = enqueue() else { return };
            for mut waiting in waiting {
                let (picture, unit) = (frame.picture, frame.unit.to_vec());
                waiting.bytes += unit.len();
                let present = frame.media_time + since;
                waiting.frames.push_back(FrameAwaitingFate { seq, picture, present, unit });
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
                    refs: frame.refs,
                    on_time: matches!(fate, Fate::Sent { on_time: true, .. }),
                    left: frame.deadline.map_or(Duration::ZERO, |deadline| deadline.since(now)),
                };
                // If this thread falls behind, pictures are lost; the engine is not delayed.
                let _ = self.fates.try_send(settled);
            }
        }

        /// Its pictures, for a page that watches.
        pub(crate) fn shown(&self) -> &PictureRings {
            self.watched.store(true, Ordering::Relaxed);
            &self.rings
        }

        /// The state of being watched by pages.
        pub(crate) fn watched(&self) -> Watched {
            if self.watched.load(Ordering::Relaxed) {
                self.rings.watched()
            } else {
                Watched::default()
            }
        }

        /// The codec as RFC 6381 writes it, as far as it was announced.
        pub(crate) fn codec(&self) -> String {
            let id = |fmtp: &String| {
                let id =
                    fmtp.split(';').find_map(|each| each.trim().strip_prefix("profile-level-id="));
                id.map(|id| format!("avc1.{id}"))
            };
            self.info.fmtp.as_ref().and_then(id).unwrap_or_default()
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
                self.bytes -= frame.unit.len();
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
        /// For streams with these media; `None` for those without pictures.
        pub(crate) fn start(infos: Vec<Option<StreamInfo>>) -> std::io::Result<Self> {
            let (fates, came) = sync_channel(FATES_MAX);
            let sent = |(place, info): (usize, Option<StreamInfo>)| {
                info.filter(|info| !info.codec.is_audio()).map(|info| {
                    let (rings, waiting) = (PictureRings::new(info.codec), Mutex::default());
                    let (watched, fates) = (AtomicBool::new(false), fates.clone());
                    Arc::new(SentPictures { place, info, rings, watched, waiting, fates })
                })
            };
            let streams: Vec<_> = infos.into_iter().enumerate().map(sent).collect();
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
                        let FrameAwaitingFate { picture, present, unit, .. } = frame;
                        sent.rings.push(picture, present, settled.left, &unit);
                        sent.watched.store(sent.rings.watched().units, Ordering::Relaxed);
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
                decodable.push(&Settled { stream: 0, seq, refs, on_time, left: Duration::ZERO })
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
                let (picture, present) = (Picture::DATA, Duration::ZERO);
                FrameAwaitingFate { seq, picture, present, unit: vec![seq as u8; 3] }
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
