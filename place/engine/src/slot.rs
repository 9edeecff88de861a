//! The streamlets of one stream at the engine: their frames come by the stream's ring, wait in a queue for each
//! streamlet, and go to the link one at a time, as the aggregate chooses (ShareStreams, section 5.1 "Stream
//! aggregation").
//!
//! A frame comes with its streamlet's number in place of an SSRC; any other number stands for all streamlets,
//! whose queues then share one copy. Idle streamlets cost memory and no time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use selvedge_control_config::SlotConfig;
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::aggregate::{Aggregate, SetIndex, StreamletCounts, StreamletIndex};
use selvedge_data_stream::rtp::{SSRC_AT, stamp_deadline, stamp_sequence, stamp_ssrc};
use selvedge_data_stream::{
    Fate, Frame, Kind, Numbering, PACKET_HEADER_LEN, PacketCursor, References,
};
use selvedge_units::{Bytes, Duration, Instant};

/// The number in place of an SSRC that stands for all streamlets.
pub const ALL_STREAMLETS: u32 = u32::MAX;
/// Frames that are given up at once before the engine looks at its other streams.
const GIVEN_UP_MAX: usize = 1024;

/// The parts of a slot.
#[derive(Clone, Debug)]
pub struct SlotParams {
    /// Its sets and streamlets.
    pub config: Arc<SlotConfig>,
    /// The longest that a frame may wait; older ones are dropped. `None`: any.
    pub delay: Option<Duration>,
    /// The most bytes of frames that may wait, over all streamlets. A frame for all streamlets counts once.
    pub pool: Bytes,
    /// The SSRC of the first streamlet; each other has the next. Those with an SSRC of their own keep it.
    pub ssrc: u32,
}

/// What became of the frames of one set, or of one streamlet, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamletReport {
    /// Frames sent, their bytes on the wire, and frames dropped.
    pub counts: StreamletCounts,
    /// Frames that wait.
    pub waiting: u64,
    /// From arrival to the last packet sent: the sum over all frames sent.
    pub delay_sum: Duration,
    /// The longest of these.
    pub delay_max: Duration,
}

fn add_delay(sum: &mut Duration, longest: &mut Duration, delay: Duration) {
    *sum = Duration(sum.0.saturating_add(delay.0));
    *longest = (*longest).max(delay);
}

/// A frame that waits.
#[derive(Debug)]
struct Waiting {
    kind: Kind,
    packets: u16,
    /// On the wire.
    size: Bytes,
    arrival: Instant,
    /// Its packets, as in a pool.
    payload: Box<[u8]>,
}

#[derive(Debug)]
struct Streamlet {
    set: u8,
    frames: VecDeque<Arc<Waiting>>,
    numbering: Numbering,
    delay_sum: Duration,
    delay_max: Duration,
}

/// The frame that the link has.
#[derive(Debug)]
struct Head {
    streamlet: u32,
    frame: Arc<Waiting>,
    /// When the link got it.
    promoted: Instant,
}

/// The streamlets of a stream.
#[derive(Debug)]
pub struct Slot {
    params: SlotParams,
    aggregate: Aggregate,
    streamlets: Vec<Streamlet>,
    /// Sums over the streamlets of each set.
    sets: Vec<StreamletReport>,
    /// The bytes of all frames that are kept, the head's included.
    kept: Bytes,
    head: Option<Head>,
    /// The head's packets, which are stamped here.
    payload: Vec<u8>,
    /// The number of the next frame for the link.
    seq: u32,
}

impl Slot {
    /// A slot without frames.
    ///
    /// # Panics
    /// If its sets can't share by their weights; a node file with such sets is refused.
    #[must_use]
    pub fn new(params: SlotParams) -> Self {
        let mut aggregate = Aggregate::new();
        let sets: Vec<SetIndex> = params
            .config
            .sets
            .iter()
            .map(|set| aggregate.add_set(set.weight).expect("sets are checked before"))
            .collect();
        let streamlets = params.config.streamlets().map(|streamlet| {
            aggregate.add(sets[streamlet.set]);
            Streamlet {
                set: sets[streamlet.set].0,
                frames: VecDeque::new(),
                numbering: Numbering::default(),
                delay_sum: Duration::ZERO,
                delay_max: Duration::ZERO,
            }
        });
        let streamlets = streamlets.collect();
        let reports = vec![StreamletReport::default(); sets.len()];
        let (kept, head, payload) = (Bytes(0), None, Vec::new());
        Self { params, aggregate, streamlets, sets: reports, kept, head, payload, seq: 0 }
    }

    /// Takes a frame that arrived; its payload is copied.
    pub fn take(&mut self, frame: &Frame, payload: &[u8]) {
        let at = PACKET_HEADER_LEN + SSRC_AT;
        let Some(&number) = payload.get(at..).and_then(|rest| rest.first_chunk()) else { return };
        let number = u32::from_be_bytes(number);
        let all = self.streamlets.len() as u32;
        let waiting = Arc::new(Waiting {
            kind: frame.kind,
            packets: frame.packets,
            size: frame.size,
            arrival: frame.arrival,
            payload: payload.into(),
        });
        let has_room = self.kept + frame.size <= self.params.pool;
        self.kept += frame.size;
        let which = if number < all { number..number + 1 } else { 0..all };
        which.for_each(|streamlet| self.enqueue(streamlet, has_room.then_some(&waiting)));
        self.release(waiting);
    }

    /// Enqueues a frame, or counts it as dropped if it is none or its streamlet has enough.
    fn enqueue(&mut self, streamlet: u32, frame: Option<&Arc<Waiting>>) {
        let index = StreamletIndex(streamlet);
        self.aggregate.arrive(index);
        let Streamlet { set, frames, .. } = &mut self.streamlets[streamlet as usize];
        match frame.filter(|_| frames.len() < self.params.config.queue as usize) {
            Some(frame) => {
                frames.push_back(Arc::clone(frame));
                self.sets[usize::from(*set)].waiting += 1;
            }
            None => self.aggregate.drop_waiting(index),
        }
    }

    /// Gives back the room of a frame that no queue holds any more.
    fn release(&mut self, frame: Arc<Waiting>) {
        if let Some(frame) = Arc::into_inner(frame) {
            self.kept = self.kept - frame.size;
        }
    }

    /// The next frame for the link, if the last one is settled and a frame waits.
    pub fn promote(&mut self, now: Instant) -> Option<Frame> {
        if self.head.is_some() {
            return None;
        }
        for _ in 0..GIVEN_UP_MAX {
            let streamlet = self.aggregate.promote_head()?.0;
            let Streamlet { set, frames, .. } = &mut self.streamlets[streamlet as usize];
            let frame = frames.pop_front().expect("the aggregate counts the frames of each queue");
            if frames.is_empty() {
                // Streamlets are many, and most are idle.
                *frames = VecDeque::new();
            }
            self.sets[usize::from(*set)].waiting -= 1;
            if self.params.delay.is_some_and(|delay| now > frame.arrival + delay) {
                self.aggregate.dropped();
                self.release(frame);
                continue;
            }
            let seq = self.seq;
            self.seq = seq.wrapping_add(1);
            self.payload.clear();
            self.payload.extend_from_slice(&frame.payload);
            let next = Frame {
                seq,
                kind: frame.kind,
                referenced: false,
                refs: References::NONE,
                packets: frame.packets,
                size: frame.size,
                arrival: now,
                deadline: None,
                payload: PayloadSpan { start: seq.into(), len: self.payload.len() as u32 },
            };
            self.head = Some(Head { streamlet, frame, promoted: now });
            return Some(next);
        }
        None
    }

    /// Settles the frame that the link had.
    pub fn settled(&mut self, fate: Fate) {
        let Some(Head { streamlet, frame, promoted }) = self.head.take() else { return };
        match fate {
            Fate::Dropped(_) => self.aggregate.dropped(),
            Fate::Sent { queueing, .. } => {
                self.aggregate.sent(frame.size);
                let delay = promoted.since(frame.arrival) + queueing;
                let Streamlet { set, delay_sum, delay_max, .. } =
                    &mut self.streamlets[streamlet as usize];
                add_delay(delay_sum, delay_max, delay);
                let set = &mut self.sets[usize::from(*set)];
                add_delay(&mut set.delay_sum, &mut set.delay_max, delay);
            }
        }
        self.release(frame);
    }

    /// Whether no frame waits, but for the one that the link has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sets.iter().all(|set| set.waiting == 0)
    }

    /// The next packet of the link's frame behind the cursor, which moves behind it: its position in the payload and its
    /// length.
    pub fn packet(&self, cursor: &mut PacketCursor) -> Option<(usize, usize)> {
        let at = cursor.offset() + PACKET_HEADER_LEN;
        Some((at, cursor.next(&self.payload)?.len()))
    }

    /// The bytes of a packet of the link's frame; none if there is no such packet.
    #[must_use]
    pub fn bytes(&self, (at, len): (usize, usize)) -> &[u8] {
        self.payload.get(at..at + len).unwrap_or_default()
    }

    /// The receiver of the link's frame.
    #[must_use]
    pub fn to(&self) -> Option<SocketAddr> {
        Some(self.params.config.streamlet(self.head.as_ref()?.streamlet)?.to)
    }

    /// The sequence numbers of the streamlet whose frame the link has.
    pub fn numbering(&mut self) -> Option<&mut Numbering> {
        let head = self.head.as_ref()?;
        self.streamlets.get_mut(head.streamlet as usize).map(|streamlet| &mut streamlet.numbering)
    }

    /// Writes the fields of a packet that are known only when it leaves, with the streamlet's own deadline.
    pub fn stamp(
        &mut self,
        (at, len): (usize, usize),
        sequence: u16,
        (deadline, now): (Instant, Instant),
    ) {
        let Some(head) = &self.head else { return };
        let Some(packet) = self.payload.get_mut(at..at + len) else { return };
        let own = self.params.config.streamlet(head.streamlet).and_then(|one| one.ssrc);
        let next = || self.params.ssrc.wrapping_add(head.streamlet);
        stamp_ssrc(packet, own.unwrap_or_else(next));
        stamp_sequence(packet, sequence);
        let deadline = self.params.delay.map_or(deadline, |delay| head.frame.arrival + delay);
        stamp_deadline(packet, deadline, now);
    }

    /// The reports of its sets, in their order.
    #[must_use]
    pub fn sets(&self) -> Vec<StreamletReport> {
        let set = |(at, set): (usize, &StreamletReport)| {
            let counts = self.aggregate.set_tally(SetIndex(at as u8));
            StreamletReport { counts, ..*set }
        };
        self.sets.iter().enumerate().map(set).collect()
    }

    /// The report of one streamlet; `None` if there is none of this number.
    #[must_use]
    pub fn streamlet(&self, number: u32) -> Option<StreamletReport> {
        let &Streamlet { delay_sum, delay_max, .. } = self.streamlets.get(number as usize)?;
        let index = StreamletIndex(number);
        Some(StreamletReport {
            counts: self.aggregate.streamlet_tally(index),
            waiting: self.aggregate.waiting(index),
            delay_sum,
            delay_max,
        })
    }
}
