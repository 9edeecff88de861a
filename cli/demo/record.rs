//! What came and what became of it, for the whole of a demo: the frames as the engine saw them.

use std::sync::Arc;

use parking_lot::Mutex;
use selvedge_data_link::bound::{Bound, OfflineFrame, decodable_bound};
use selvedge_data_link::default_catch_up;
use selvedge_data_stream::{Fate, Frame, Histogram, References};
use selvedge_place_engine::engine::FateTap;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Frames of one stream kept for the bound, at most: beyond, the bound covers the first part.
const FRAMES_MAX: usize = 4_000_000;

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

/// Keeps what the result is made of, for all streams of a node.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    streams: Arc<[Mutex<Log>]>,
    keeps_frames: bool,
}

impl Recorder {
    /// `keeps_frames` if the bound will be asked for.
    pub(super) fn new(streams: usize, keeps_frames: bool) -> Self {
        Self { streams: (0..streams).map(|_| Mutex::default()).collect(), keeps_frames }
    }

    /// A tap for one engine, whose streams are these of the node's.
    pub(super) fn tap(&self, members: &[usize]) -> Box<dyn FateTap> {
        Box::new(DemoTap { recorder: self.clone(), members: members.to_vec() })
    }

    /// Frames offered, and how long those sent had waited.
    pub(super) fn stream(&self, n: usize) -> (u64, Histogram) {
        let log = self.streams[n].lock();
        (log.offered, log.queueing.clone())
    }

    /// The most that any sender could have made decodable of these frames.
    pub(super) fn bound(&self, rate: Bitrate, delay: Duration) -> Bound {
        let streams: Vec<Vec<OfflineFrame>> = self
            .streams
            .iter()
            .map(|log| {
                let log = log.lock();
                let frame = |f: &BoundFrame| OfflineFrame {
                    arrival: f.arrival,
                    deadline: f.arrival + delay,
                    size: Bytes(u64::from(f.size)),
                    refs: f.refs,
                };
                log.frames.iter().map(frame).collect()
            })
            .collect();
        // What is made up for goes at once as well.
        let mtu = Bytes(1500);
        decodable_bound(&streams, rate, mtu + default_catch_up(rate, mtu, Some(delay)))
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
