//! Frames a second through queues, decisions and a sink that takes everything, on one core.

use std::hint::black_box;
use std::time::Instant as StdInstant;

use selvedge_data_memory::fetch::prefetch;
use selvedge_data_sched::{Decision, Head, Scheduler, StreamIndex};
use selvedge_units::{Bytes, Instant};

use crate::load::{Load, batch, median, timed};

/// Frames are put in and taken out in bursts of so many.
const BURST: usize = 32;
/// So many frames of each stream are there between two bursts.
const RESIDENT: u32 = 2;
/// What a stream's queue holds at most.
const RING: u32 = 4;

/// What a dataplane does.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    /// Nanoseconds for each frame.
    pub ns: f64,
    /// Frames in a second.
    pub per_second: f64,
}

/// Measures a dataplane: medians of `samples` (at least 1) samples of about 0.3 ms each.
///
/// A frame is put into its stream's queue, chosen, taken out again and counted; its payload is
/// not touched. Each stream has a ring of descriptors of 16 bytes (arrival, buffer, length), and
/// 2 frames in it. Bursts of 32 are taken out, then 32 frames of the same streams put in, as
/// DPDK's test of `rte_sched` does. The clock is read once for each burst; nothing is late enough
/// to be lost, because the streams want less than they get.
#[must_use]
pub fn dataplane(load: Load, samples: usize) -> Frames {
    let mut plane = Dataplane::new(load);
    let bursts = batch(|n| plane.run(n));
    let frames = bursts as f64 * BURST as f64;
    let figures: Vec<f64> = (0..samples.max(1))
        .map(|_| timed(|| plane.run(bursts)).as_nanos() as f64 / frames)
        .collect();
    let ns = median(figures);
    Frames { ns, per_second: 1e9 / ns }
}

/// A frame in a queue.
#[derive(Clone, Copy, Debug, Default)]
struct Descriptor {
    arrival: Instant,
    /// Where its payload lies.
    buffer: u32,
    bytes: u32,
}

/// A stream's queue: the ring in one cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Ring([Descriptor; RING as usize]);

/// Which descriptors of a ring hold frames; both count on for ever.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    first: u16,
    end: u16,
}

/// What the sink has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sink {
    frames: u64,
    bytes: Bytes,
    buffers: u64,
    lost: u64,
}

struct Dataplane {
    sched: Scheduler,
    rings: Vec<Ring>,
    ends: Vec<Ends>,
    sink: Sink,
    began: StdInstant,
    burst: [(StreamIndex, u32); BURST],
}

impl Dataplane {
    fn new(load: Load) -> Self {
        let streams = load.streams.max(1) as usize;
        let mut new = Self {
            sched: load.scheduler(),
            rings: vec![Ring::default(); streams],
            ends: vec![Ends::default(); streams],
            sink: Sink::default(),
            began: StdInstant::now(),
            burst: [(StreamIndex(0), 0); BURST],
        };
        for n in 0..RESIDENT {
            for s in load.indexes() {
                new.put(s, Descriptor { buffer: RESIDENT * s.0 + n, bytes: 1200, ..new.frame() });
            }
        }
        new
    }

    fn frame(&self) -> Descriptor {
        Descriptor { arrival: self.now(), ..Descriptor::default() }
    }

    fn now(&self) -> Instant {
        Instant(self.began.elapsed().as_nanos() as u64)
    }

    fn run(&mut self, bursts: u64) {
        for _ in 0..bursts {
            let now = self.now();
            let taken = self.take_burst(now);
            let burst = self.burst;
            for &(s, buffer) in &burst[..taken] {
                self.put(s, Descriptor { arrival: now, buffer, bytes: 1200 });
            }
        }
        black_box(self.sink);
    }

    /// Puts a frame into its stream's queue; it is lost if that is full.
    #[inline]
    fn put(&mut self, s: StreamIndex, frame: Descriptor) {
        let (ring, ends) = (&mut self.rings[s.0 as usize], &mut self.ends[s.0 as usize]);
        let queued = ends.end.wrapping_sub(ends.first);
        if u32::from(queued) == RING {
            self.sink.lost += 1;
            return;
        }
        ring.0[usize::from(ends.end) % RING as usize] = frame;
        ends.end = ends.end.wrapping_add(1);
        if queued == 0 {
            self.sched.enqueue_head(s, head(&frame));
        }
    }

    /// Takes a frame out, and says which comes after it.
    #[inline]
    fn take(&mut self, s: StreamIndex) -> (Descriptor, Option<Descriptor>) {
        let (ring, ends) = (&self.rings[s.0 as usize].0, &mut self.ends[s.0 as usize]);
        let frame = ring[usize::from(ends.first) % RING as usize];
        ends.first = ends.first.wrapping_add(1);
        let next = ring[usize::from(ends.first) % RING as usize];
        (frame, (ends.first != ends.end).then_some(next))
    }

    /// Takes out as many frames as a burst holds, best first; how many there were.
    fn take_burst(&mut self, now: Instant) -> usize {
        for n in 0..BURST {
            let s = loop {
                match self.sched.decide(now) {
                    Decision::Expired(expired) => {
                        self.sink.lost += 1;
                        if let (_, Some(next)) = self.take(expired.stream) {
                            self.sched.enqueue_head(expired.stream, head(&next));
                        }
                    }
                    Decision::Send(s) => break s,
                    Decision::Idle => return n,
                }
            };
            let (frame, next) = self.take(s);
            match next {
                Some(next) => self.sched.dequeue_and_enqueue(s, head(&next)),
                None => self.sched.dequeue(s),
            };
            if let Some(soon) = self.sched.likely_next() {
                prefetch(&self.rings[soon.0 as usize]);
                prefetch(&self.ends[soon.0 as usize]);
            }
            self.burst[n] = (s, frame.buffer);
            self.sink.frames += 1;
            self.sink.bytes += Bytes(frame.bytes.into());
            self.sink.buffers ^= u64::from(frame.buffer);
        }
        BURST
    }
}

#[inline(always)]
fn head(frame: &Descriptor) -> Head {
    Head { size: Bytes(frame.bytes.into()), ..Head::arrived(frame.arrival) }
}

#[cfg(test)]
mod tests {
    use selvedge_data_sched::Discipline;

    use super::*;

    #[test]
    fn every_frame_goes_out_once_and_in_its_turn() {
        for discipline in Discipline::ALL {
            let load = Load { discipline, streams: 50, ties: false };
            let mut plane = Dataplane::new(load);
            // Buffers of a stream alternate as long as its queue keeps their order.
            let mut last = vec![None; 50];
            let now = Instant::ZERO;
            for _ in 0..2000 {
                let taken = plane.take_burst(now);
                assert_eq!(taken, BURST, "{discipline}");
                for (s, buffer) in plane.burst {
                    assert_eq!(buffer / RESIDENT, s.0, "{discipline}");
                    assert_ne!(last[s.0 as usize].replace(buffer), Some(buffer), "{discipline}");
                    plane.put(s, Descriptor { arrival: now, buffer, bytes: 1200 });
                }
            }
            let frames = 2000 * BURST as u64;
            assert_eq!(plane.sink.frames, frames, "{discipline}");
            assert_eq!(plane.sink.bytes, Bytes(1200 * frames), "{discipline}");
            assert_eq!(plane.sink.lost, 0, "{discipline}");
            let resident: u16 = plane.ends.iter().map(|e| e.end.wrapping_sub(e.first)).sum();
            assert_eq!(u32::from(resident), RESIDENT * 50, "{discipline}");
        }
    }

    #[test]
    fn measures() {
        let figure = dataplane(Load { discipline: Discipline::Dwcs, streams: 8, ties: false }, 1);
        assert!(figure.ns > 0.0 && figure.per_second.is_finite(), "{figure:?}");
    }
}
