//! The arrivals and their fates, for the whole of a demo: the frames as the engine saw them.

use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_data_link::bound::{Bound, OfflineFrame, decodable_bound};
use selvedge_data_link::default_catch_up;
use selvedge_data_stream::{Fate, Frame, Histogram, References};
use selvedge_place_engine::engine::FateTap;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Frames of one stream kept for the bound, at most: beyond, the bound covers the first part.
const FRAMES_MAX: usize = 4_000_000;

/// Changes of the rate that are kept.
const RATES_MAX: usize = 64;
/// The needed rate of the streams is measured over this much of the past.
const NEEDED_OF: Duration = Duration::from_secs(20);

/// A frame as the bound needs it, in 24 bytes: a demo may run for a day.
#[derive(Clone, Copy, Debug)]
struct BoundFrame {
    arrival: Instant,
    size: u32,
    refs: References,
}

#[derive(Debug, Default)]
struct Log {
    /// In the order of their numbers, without a gap: a link settles a stream's frames in order.
    frames: Vec<BoundFrame>,
    queueing: Histogram,
    offered: u64,
}

/// Keeps the data for the result, for all streams of a node.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    streams: Arc<[Mutex<Log>]>,
    keeps_frames: bool,
    /// The link's rates, each with its start: the first is that from the beginning.
    rates: Arc<Mutex<Vec<(Instant, Bitrate)>>>,
}

impl Recorder {
    /// `keeps_frames` if the bound will be computed.
    pub(super) fn new(streams: usize, keeps_frames: bool, rate: Bitrate) -> Self {
        let streams = (0..streams).map(|_| Mutex::default()).collect();
        let rates = Arc::new(Mutex::new(vec![(Instant::ZERO, rate)]));
        Self { streams, keeps_frames, rates }
    }

    /// The link has another rate from now on.
    pub(super) fn set_rate(&self, now: Instant, rate: Bitrate) {
        let mut rates = self.rates.lock();
        // If there are too many changes, two count as one, at the higher rate.
        if rates.len() >= RATES_MAX {
            let (_, merged) = rates.remove(1);
            rates[0].1 = rates[0].1.max(merged);
        }
        rates.push((now, rate));
    }

    /// The link's rates, each with its start.
    pub(super) fn rates(&self) -> Vec<(Instant, Bitrate)> {
        self.rates.lock().clone()
    }

    /// When the first frame arrived.
    pub(super) fn began(&self) -> Instant {
        let first = self.streams.iter().filter_map(|log| Some(log.lock().frames.first()?.arrival));
        first.min().unwrap_or_default()
    }

    /// The rate that the streams have needed recently.
    pub(super) fn needed(&self, now: Instant) -> Bitrate {
        let from = Instant(now.0.saturating_sub(NEEDED_OF.0));
        let of = |log: &Mutex<Log>| {
            let log = log.lock();
            let late = log.frames.iter().rev().take_while(|f| f.arrival >= from);
            late.map(|f| u64::from(f.size)).sum::<u64>()
        };
        let span = now.since(self.began().max(from));
        Bytes(self.streams.iter().map(of).sum()) / span
    }

    /// A tap for one engine, whose streams are `members` of the node's.
    pub(super) fn tap(&self, members: &[usize]) -> Box<dyn FateTap> {
        Box::new(DemoTap { recorder: self.clone(), members: members.to_vec() })
    }

    /// Frames offered, and how long those sent had waited.
    pub(super) fn stream(&self, n: usize) -> (u64, Histogram) {
        let log = self.streams[n].lock();
        (log.offered, log.queueing.clone())
    }

    /// The most that any sender could have made decodable of the frames that arrived since then: the
    /// sum over the intervals between two changes of the rate. A frame that arrives in one interval may
    /// be sent in those that begin within the delay, so the highest rate of these counts.
    pub(super) fn bound(&self, since: Instant, delay: Duration) -> Bound {
        let rates = self.rates();
        let mut sum = Bound { decodable: 0.0, frames: 0 };
        for (n, (from, _)) in rates.iter().enumerate() {
            let until = rates.get(n + 1).map_or(Instant(u64::MAX), |(next, _)| *next);
            let sent_in =
                rates[n..].iter().take_while(|(at, _)| at <= from || at.since(until) < delay);
            let rate = sent_in.map(|(_, rate)| *rate).max().unwrap_or_default();
            let frames = self.offline(since.max(*from)..until, delay);
            // Caught-up bytes are sent at once as well.
            let mtu = Bytes(1500);
            let burst = mtu + default_catch_up(rate, mtu, Some(delay));
            let part = decodable_bound(&frames, rate, burst);
            sum.decodable += part.decodable;
            sum.frames += part.frames;
        }
        sum
    }

    /// The frames that arrived in this time.
    fn offline(&self, time: Range<Instant>, delay: Duration) -> Vec<Vec<OfflineFrame>> {
        let frame = |f: &BoundFrame| OfflineFrame {
            arrival: f.arrival,
            deadline: f.arrival + delay,
            size: Bytes(u64::from(f.size)),
            refs: f.refs,
        };
        let of = |log: &Mutex<Log>| {
            let log = log.lock();
            let begin = log.frames.partition_point(|f| f.arrival < time.start);
            let end = log.frames.partition_point(|f| f.arrival < time.end);
            log.frames[begin..end.max(begin)].iter().map(frame).collect()
        };
        self.streams.iter().map(of).collect()
    }
}

struct DemoTap {
    recorder: Recorder,
    members: Vec<usize>,
}

impl FateTap for DemoTap {
    fn settled(&mut self, stream: usize, frame: &Frame, fate: Fate, _now: Instant) {
        let mut log = self.recorder.streams[self.members[stream]].lock();
        log.offered += 1;
        if let Fate::Sent { queueing, .. } = fate {
            log.queueing.record(queueing);
        }
        if self.recorder.keeps_frames && log.frames.len() < FRAMES_MAX {
            let size = u32::try_from(frame.size.0).unwrap_or(u32::MAX);
            log.frames.push(BoundFrame { arrival: frame.arrival, size, refs: frame.refs });
        }
    }
}
