//! The node's state of a stream whose frames are in the kernel: the frames that wait there, and their fates,
//! from what the producer handed over and from the packets' fates that the kernel reports. One thread keeps it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use selvedge_data_link::RateMeter;
use selvedge_data_memory::{Consumer, PayloadSpan};
use selvedge_data_stream::{Contract, DropReason, Fate, Frame, Kind, Ledger, References};
use selvedge_units::{Bytes, Duration, Instant};

use crate::replay::number;

/// A frame's number as a socket's mark: 24 bits of it, under a byte that marks it as ours.
const MARK: u32 = 0x5e00_0000;
/// The most numbers that may be missing at once; a larger gap is a fresh start.
const GAP_MAX: u32 = 1024;

/// The mark of the packets of a frame.
pub(super) const fn mark(seq: u32) -> u32 {
    MARK | (seq & 0x00ff_ffff)
}

/// `struct fate` of `bpf/queues.h`: the fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PacketFate {
    pub(super) at: Instant,
    pub(super) stream: u32,
    pub(super) mark: u32,
    /// Sent, or the reason why not.
    pub(super) lost: Option<DropReason>,
    /// The IP packet's bytes.
    pub(super) wire: Bytes,
    /// How much later it was sent than the link was free, if it waited for that.
    pub(super) late: Option<Duration>,
}

impl PacketFate {
    /// Reads a record of the kernel; `None` if it is invalid.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| number::<4>(bytes, at).map(u32::from_ne_bytes);
        let lost = match word(16)? {
            1 => Some(DropReason::Expired),
            3 => None,
            6 => Some(DropReason::Full),
            7 => Some(DropReason::Removed),
            _ => return None,
        };
        let at = Instant(u64::from_ne_bytes(number::<8>(bytes, 0)?));
        let (stream, mark, wire) = (word(8)?, word(12)?, Bytes(word(20)?.into()));
        let late = Duration(u64::from_ne_bytes(number::<8>(bytes, 24)?));
        let late = (late > Duration::ZERO).then_some(late);
        Some(Self { at, stream, mark, lost, wire, late })
    }
}

/// A frame with packets in the kernel.
#[derive(Clone, Copy, Debug)]
struct PendingFrame {
    frame: Frame,
    deadline: Instant,
    /// Packets with an unknown fate.
    left: u16,
    lost: Option<DropReason>,
    /// Bytes of its packets that were not sent.
    unsent: Bytes,
    /// When the last packet with a known fate was sent.
    gone: Instant,
}

/// What a stream's producer did, in the order in which it did it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Handover {
    /// It is about to hand over the packets of a frame.
    Frame { frame: Frame, deadline: Instant, now: Instant },
    /// So many packets of a frame did not reach the kernel's queue.
    Refused { seq: u32, packets: u16, reason: DropReason, now: Instant },
}

/// A stream's frames, and their fates.
pub(super) struct StreamAccount {
    /// The present contract.
    pub(super) contract: Contract,
    pub(super) ledger: Ledger,
    pub(super) offered: RateMeter,
    pub(super) sent: RateMeter,
    pub(super) sent_bytes: Bytes,
    /// Packets that the socket refused.
    pub(super) send_errors: u64,
    /// Frames that missed their deadlines since they were taken.
    pub(super) missed: Vec<Frame>,
    waiting: VecDeque<PendingFrame>,
    handovers: Consumer<Handover>,
    /// Frames whose fates are known, since the start; the producer reads it.
    settled: Arc<AtomicUsize>,
    next_seq: u32,
}

impl StreamAccount {
    pub(super) fn new(
        contract: Contract,
        handovers: Consumer<Handover>,
        settled: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            contract,
            ledger: Ledger::default(),
            offered: RateMeter::default(),
            sent: RateMeter::default(),
            sent_bytes: Bytes(0),
            send_errors: 0,
            missed: Vec::new(),
            waiting: VecDeque::new(),
            handovers,
            settled,
            next_seq: 0,
        }
    }

    /// Frames in the kernel.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The bytes of these frames, including packets that were already sent.
    pub(super) fn backlog(&self) -> Bytes {
        self.waiting.iter().map(|waiting| waiting.frame.size).sum()
    }

    /// Records what the producer has done since the last call.
    pub(super) fn read_handovers(&mut self) {
        while let Some(handover) = self.handovers.pop() {
            match handover {
                Handover::Frame { frame, deadline, now } => self.offer(&frame, deadline, now),
                Handover::Refused { seq, packets, reason, now } => {
                    self.refused(seq, packets, reason, now);
                }
            }
        }
    }

    /// Records a frame that is about to go to the kernel. Omitted numbers were lost for want of room.
    fn offer(&mut self, frame: &Frame, deadline: Instant, now: Instant) {
        let gap = frame.seq.wrapping_sub(self.next_seq);
        for n in (0..gap).filter(|_| gap <= GAP_MAX) {
            let seq = self.next_seq.wrapping_add(n);
            let lost = placeholder_frame(seq, frame);
            self.ledger.offered(&lost);
            self.ledger.settle(&lost, Fate::Dropped(DropReason::Full), now);
        }
        self.next_seq = frame.seq.wrapping_add(1);
        self.offered.add(now, frame.size);
        self.ledger.offered(frame);
        self.waiting.push_back(PendingFrame {
            frame: *frame,
            deadline,
            left: frame.packets,
            lost: None,
            unsent: frame.size,
            gone: now,
        });
    }

    /// Records that `packets` packets of a frame did not reach the kernel's queue.
    fn refused(&mut self, seq: u32, packets: u16, reason: DropReason, now: Instant) {
        self.send_errors += u64::from(packets);
        if let Some(waiting) = self.waiting.iter_mut().rev().find(|w| w.frame.seq == seq) {
            waiting.left = waiting.left.saturating_sub(packets);
            waiting.lost = Some(reason);
        }
        self.settle_front(now);
    }

    /// Records the fate of a packet. Packets of a stream leave in order, so packets of earlier frames without
    /// a reported fate are lost.
    pub(super) fn settle(&mut self, happened: &PacketFate) {
        let of = |waiting: &PendingFrame| mark(waiting.frame.seq) == happened.mark;
        let Some(at) = self.waiting.iter().position(of) else { return };
        let now = happened.at.max(self.waiting[at].frame.arrival);
        // A packet that is refused on arrival stands behind all waiting ones.
        if happened.lost != Some(DropReason::Full) {
            self.waiting.iter_mut().take(at).for_each(abandon);
        }
        let frame = &mut self.waiting[at];
        frame.left = frame.left.saturating_sub(1);
        match happened.lost {
            None => {
                frame.gone = now;
                frame.unsent = frame.unsent - happened.wire;
                self.sent_bytes += happened.wire;
                self.sent.add(now, happened.wire);
            }
            lost => frame.lost = lost,
        }
        self.settle_front(now);
    }

    /// The kernel holds nothing of the stream: it will not report on frames handed over before `then`.
    pub(super) fn abandon_before(&mut self, then: Instant, now: Instant) {
        self.waiting.iter_mut().filter(|frame| frame.gone < then).for_each(abandon);
        self.settle_front(now);
    }

    /// Settles the frames at the front whose packets' fates are all known.
    fn settle_front(&mut self, now: Instant) {
        while let Some(done) = self.waiting.front().filter(|waiting| waiting.left == 0) {
            let fate = done.lost.map_or_else(
                || Fate::Sent {
                    on_time: done.gone <= done.deadline,
                    queueing: done.gone.since(done.frame.arrival),
                },
                Fate::Dropped,
            );
            self.ledger.settle(&Frame { size: done.unsent, ..done.frame }, fate, now);
            if fate.is_miss() {
                self.missed.push(done.frame);
            }
            self.waiting.pop_front();
            self.settled.fetch_add(1, Ordering::Release);
        }
    }
}

fn abandon(frame: &mut PendingFrame) {
    if frame.left > 0 {
        frame.left = 0;
        frame.lost.get_or_insert(DropReason::SendFailed);
    }
}

/// A placeholder for a frame of which only the number is known.
fn placeholder_frame(seq: u32, next: &Frame) -> Frame {
    Frame {
        seq,
        kind: Kind::Data,
        referenced: false,
        refs: References::NONE,
        packets: 0,
        size: Bytes(0),
        payload: PayloadSpan::default(),
        ..*next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_data_memory::{Producer, ring};
    use selvedge_data_stream::Window;

    fn frame(seq: u32, packets: u16) -> Frame {
        Frame {
            seq,
            kind: Kind::Still,
            referenced: false,
            refs: References::NONE,
            packets,
            size: Bytes(100 * u64::from(packets)),
            arrival: Instant(1000),
            deadline: None,
            payload: PayloadSpan::default(),
        }
    }

    /// An account, and its producer's end.
    struct Trial {
        account: StreamAccount,
        producer: Producer<Handover>,
    }

    impl Trial {
        fn new() -> Self {
            let contract = Contract::new(Duration::from_millis(40), Window { lose: 1, of: 5 });
            let (producer, consumer) = ring(8);
            Self { account: StreamAccount::new(contract, consumer, Arc::default()), producer }
        }

        /// Hands over a frame that is due 1000 ns after its arrival.
        fn offer(&mut self, frame: Frame, now: u64) {
            let (deadline, now) = (frame.arrival + Duration(1000), Instant(now));
            let handed = self.producer.push(Handover::Frame { frame, deadline, now });
            assert!(handed.is_ok());
            self.account.read_handovers();
        }
    }

    fn observed(seq: u32, at: u64, kind: u32) -> PacketFate {
        let mut bytes = Vec::new();
        bytes.extend(at.to_ne_bytes());
        for word in [0, mark(seq), kind, 100] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([0; 8]);
        PacketFate::read(&bytes).unwrap()
    }

    #[test]
    fn a_frame_is_on_time_when_its_last_packet_is() {
        let mut trial = Trial::new();
        for seq in 0..3 {
            trial.offer(frame(seq, 2), 1000);
        }
        for (seq, at) in [(0, 1500), (0, 2000), (1, 2000), (1, 2001)] {
            trial.account.settle(&observed(seq, at, 3));
        }
        trial.account.settle(&observed(2, 2002, 3));
        assert_eq!((trial.account.waiting(), trial.account.backlog()), (1, Bytes(200)));
        trial.account.settle(&observed(2, 2002, 1));
        let totals = trial.account.ledger.totals();
        assert_eq!((totals.frames, totals.sent, totals.on_time, totals.decodable), (3, 2, 1, 1));
        assert_eq!(totals.dropped[DropReason::Expired as usize], 1);
        assert_eq!((trial.account.waiting(), trial.account.sent_bytes), (0, Bytes(500)));
        assert_eq!(trial.account.settled.load(Ordering::Relaxed), 3);
        assert_eq!(totals.dropped_bytes, Bytes(100), "one of its two packets was sent");
        let missed: Vec<u32> = trial.account.missed.iter().map(|frame| frame.seq).collect();
        assert_eq!(missed, [1, 2], "one late, one expired");
    }

    #[test]
    fn what_is_not_told_is_lost_when_others_pass_or_nothing_waits() {
        let mut trial = Trial::new();
        for seq in [0, 1, 4] {
            trial.offer(frame(seq, 1), 1000 + u64::from(seq));
        }
        // 2 and 3 never arrived here; nothing was reported of 0.
        trial.account.settle(&observed(1, 1500, 3));
        assert_eq!(trial.account.ledger.totals().dropped[DropReason::Full as usize], 2);
        assert_eq!(
            trial.account.ledger.totals().dropped_bytes,
            Bytes(100),
            "of 0 alone a size is known"
        );
        assert_eq!(trial.account.ledger.totals().dropped[DropReason::SendFailed as usize], 1);
        // A refused packet stands behind the waiting ones.
        trial.offer(frame(5, 1), 1100);
        trial.account.settle(&observed(5, 0, 6));
        assert_eq!(trial.account.waiting(), 2);
        trial.account.abandon_before(Instant(1004), Instant(3000));
        assert_eq!(trial.account.waiting(), 2, "handed over too late to be sure");
        trial.account.abandon_before(Instant(1005), Instant(3000));
        let totals = trial.account.ledger.totals();
        assert_eq!((trial.account.waiting(), totals.frames, totals.sent), (0, 6, 1));
        assert_eq!(totals.dropped.iter().sum::<u64>(), 5);
    }

    #[test]
    fn nothing_that_comes_from_outside_does_harm() {
        let mut trial = Trial::new();
        trial.offer(frame(0, 1), 1000);
        trial.account.settle(&observed(7, 1500, 3));
        trial.account.refused(9, 3, DropReason::SendFailed, Instant(1500));
        trial.account.refused(0, 3, DropReason::SendFailed, Instant(1500));
        assert_eq!((trial.account.waiting(), trial.account.send_errors), (0, 6));
        trial.offer(frame(1 << 30, 1), 1600);
        assert_eq!(trial.account.waiting(), 1);
        for bytes in [&[][..], &[0; 32], &[255; 32], &[3; 31]] {
            assert_eq!(PacketFate::read(bytes), None);
        }
    }
}
