//! The account of every frame that a link was given: the bytes that are left of it, and its fate.
//!
//! Frames are identified by a number in their payload's place. Frames that the link has given up but
//! not settled are not visible from outside, so the backlog is checked when all fates are known: it was
//! at least the frames that waited then and were not given up while waiting, and at most all that
//! waited.

use std::collections::HashMap;

use selvedge_data_link::{Link, Transmit};
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{DropReason, Fate, Frame, Late};
use selvedge_units::{Bytes, Instant};

/// A larger gap in the numbers is a fresh start.
const GAP_MAX: u32 = 1024;
/// References from this far back count as lost.
const REACH: u16 = 1024;
/// The link distinguishes losses over this many frames, from a reference to the newest waiting frame.
const TOLD_APART: usize = 1024;

struct Entry {
    stream: StreamIndex,
    frame: Frame,
    left: Bytes,
    packets_sent: u16,
    fate: Option<Fate>,
    /// Changes of the bytes that are left of it, each at a step.
    changes: Vec<(usize, i128)>,
}

/// The state of a stream that the link has now.
struct Stream {
    late: Late,
    next: Option<u32>,
    /// By frame number since the last fresh start: none while it waits.
    fates: HashMap<u32, Option<Fate>>,
    /// Numbers in order, with references, if there never was a fresh start.
    order: Option<Vec<(u32, Option<usize>)>>,
    waiting: usize,
    most_waited: usize,
    offered: u64,
}

pub(crate) struct Book {
    selection: bool,
    entries: Vec<Entry>,
    streams: HashMap<u32, Stream>,
    /// Frames lost before their arrival, not yet settled, by stream.
    absent: HashMap<u32, u64>,
    packets: usize,
    backlogs: Vec<Bytes>,
}

impl Book {
    pub(crate) fn new(selection: bool) -> Self {
        let (entries, streams, absent) = (Vec::new(), HashMap::new(), HashMap::new());
        Self { selection, entries, streams, absent, packets: 0, backlogs: Vec::new() }
    }

    /// Frames so far, including those lost before their arrival.
    pub(crate) fn offered(&self) -> usize {
        let absent: usize = self.absent.values().map(|&n| n as usize).sum();
        self.entries.len() + absent
    }

    pub(crate) const fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) fn add_stream(&mut self, stream: StreamIndex, late: Late) {
        let fresh = Stream {
            late,
            next: None,
            fates: HashMap::new(),
            order: Some(Vec::new()),
            waiting: 0,
            most_waited: 0,
            offered: 0,
        };
        assert!(self.streams.insert(stream.0, fresh).is_none(), "the place was free");
    }

    pub(crate) fn remove_stream(&mut self, stream: StreamIndex) {
        // Its waiting frames are settled by now, though not reported yet.
        self.streams.remove(&stream.0);
    }

    /// Numbers the frame, and records it and the gap before it.
    pub(crate) fn enqueue(&mut self, stream: StreamIndex, frame: &mut Frame) {
        frame.payload.start = self.entries.len() as u64 + 1;
        let step = self.backlogs.len();
        let left = frame.size;
        let changes = vec![(step, i128::from(left.0))];
        let packets_sent = 0;
        let entry = Entry { stream, frame: *frame, left, packets_sent, fate: None, changes };
        let id = self.entries.len();
        self.entries.push(entry);
        self.packets += usize::from(frame.packets);
        let Some(known) = self.streams.get_mut(&stream.0) else { return };
        // Streams begin at 0.
        let expected = known.next.unwrap_or(0);
        let gap = frame.seq.wrapping_sub(expected);
        if gap <= GAP_MAX {
            for n in 0..gap {
                let seq = expected.wrapping_add(n);
                known.fates.insert(seq, Some(Fate::Dropped(DropReason::Full)));
                known.order.iter_mut().for_each(|order| order.push((seq, None)));
            }
            known.waiting += gap as usize;
            known.offered += u64::from(gap);
            *self.absent.entry(stream.0).or_default() += u64::from(gap);
        } else {
            known.fates.clear();
            known.order = None;
        }
        known.fates.insert(frame.seq, None);
        known.order.iter_mut().for_each(|order| order.push((frame.seq, Some(id))));
        known.next = Some(frame.seq.wrapping_add(1));
        known.waiting += 1;
        known.most_waited = known.most_waited.max(known.waiting);
        known.offered += 1;
    }

    /// Takes all frames that the link has settled.
    pub(crate) fn settle(&mut self, link: &mut Link) {
        let step = self.backlogs.len();
        while let Some(settled) = link.poll_settled() {
            let known = self.streams.get_mut(&settled.stream.0);
            let Some(id) = (settled.frame.payload.start as usize).checked_sub(1) else {
                // The numbers of a gap.
                assert!(matches!(settled.fate, Fate::Dropped(_)));
                if let Some(known) = known {
                    known.waiting = known.waiting.saturating_sub(1);
                }
                continue;
            };
            let entry = &mut self.entries[id];
            assert_eq!((entry.stream, entry.frame), (settled.stream, settled.frame));
            assert_eq!(entry.fate, None, "settled twice");
            entry.fate = Some(settled.fate);
            entry.changes.push((step, -i128::from(entry.left.0)));
            entry.left = Bytes(0);
            if let Fate::Sent { .. } = settled.fate {
                assert!(entry.packets_sent >= entry.frame.packets, "sent without its packets");
            }
            let Some(known) = known else { continue };
            known.waiting = known.waiting.saturating_sub(1);
            if let Some(fate) = known.fates.get_mut(&settled.frame.seq) {
                *fate = Some(settled.fate);
            }
            let farthest = settled.frame.refs.distances().last().unwrap_or(0);
            let told_apart =
                known.order.is_some() && known.most_waited + usize::from(farthest) <= TOLD_APART;
            if settled.fate == Fate::Dropped(DropReason::ReferenceLost) && told_apart {
                assert!(self.selection);
                assert!(
                    Self::misses(known, &settled.frame).is_some(),
                    "nothing that this refers to was lost: {:?}, while {} wait",
                    settled.frame,
                    known.waiting
                );
            }
        }
    }

    /// The first of a frame's references that is lost, by distance.
    fn misses(stream: &Stream, frame: &Frame) -> Option<u16> {
        let lost = |&distance: &u16| {
            let seq = frame.seq.wrapping_sub(distance.into());
            let fate = stream.fates.get(&seq).copied().flatten();
            distance >= REACH || matches!(fate, Some(Fate::Dropped(_)))
        };
        frame.refs.distances().find(lost)
    }

    /// Checks a packet that is to be sent.
    pub(crate) fn polled(&self, next: &Transmit, now: Instant) {
        let entry = &self.entries[next.frame.payload.start as usize - 1];
        assert_eq!((entry.stream, entry.frame), (next.stream, next.frame));
        assert_eq!((entry.fate, entry.packets_sent), (None, next.packet));
        let stream = &self.streams[&next.stream.0];
        assert!(stream.late == Late::Send || next.deadline > now, "late, but not dropped");
        if self.selection {
            let missing = Self::misses(stream, &next.frame);
            assert_eq!(missing, None, "frame {} goes though it can't be decoded", next.frame.seq);
            assert!(next.frame.refs.is_known());
        }
    }

    /// The packet's size on the wire: its share of the frame, or an odd value.
    pub(crate) fn packet_size(&self, next: &Transmit, odd: u8) -> Bytes {
        let entry = &self.entries[next.frame.payload.start as usize - 1];
        match odd {
            200.. => Bytes(u64::from(odd) * 16),
            _ => Bytes(entry.frame.size.0.div_ceil(entry.frame.packets.max(1).into())),
        }
    }

    pub(crate) fn sent(&mut self, next: &Transmit, size: Bytes) {
        let step = self.backlogs.len();
        let entry = &mut self.entries[next.frame.payload.start as usize - 1];
        entry.packets_sent += 1;
        if entry.packets_sent < entry.frame.packets {
            let part = size.min(entry.left);
            entry.left = entry.left - part;
            entry.changes.push((step, -i128::from(part.0)));
        }
    }

    /// Ends a step: compares the visible state now, and keeps the backlog for later.
    pub(crate) fn check(&mut self, link: &mut Link, streams: &[StreamIndex], now: Instant) {
        self.settle(link);
        for stream in streams {
            let waiting = self.streams.get(&stream.0).map_or(0, |known| known.waiting);
            assert_eq!(link.queued(*stream), waiting, "stream {}", stream.0);
        }
        let _ = (link.rates(now), link.params());
        self.backlogs.push(link.backlog());
    }

    /// At the end: every frame has one fate, and every backlog was right.
    pub(crate) fn close(mut self, link: &Link, streams: &[StreamIndex]) {
        assert_eq!(link.backlog(), Bytes(0), "nothing waits");
        for stream in streams {
            self.check_ledger(link, *stream);
        }
        let steps = self.backlogs.len();
        let (mut sure, mut perhaps) = (vec![0_i128; steps + 1], vec![0_i128; steps + 1]);
        for entry in &mut self.entries {
            let fate = entry.fate.unwrap_or_else(|| panic!("{:?} was never settled", entry.frame));
            let given_up = matches!(
                fate,
                Fate::Dropped(
                    DropReason::ReferenceLost
                        | DropReason::GroupSkipped
                        | DropReason::Sacrificed
                        | DropReason::Full
                )
            );
            let account = if given_up { &mut perhaps } else { &mut sure };
            for (step, change) in entry.changes.drain(..) {
                account[step] += change;
            }
        }
        let (mut least, mut more) = (0, 0);
        for (step, backlog) in self.backlogs.iter().enumerate() {
            least += sure[step];
            more += perhaps[step];
            let backlog = i128::from(backlog.0);
            assert!(
                (least..=least + more).contains(&backlog),
                "step {step}: the backlog is {backlog}, not {least} to {}",
                least + more
            );
        }
    }

    /// The ledger agrees with the definition, where numbers never began afresh.
    fn check_ledger(&self, link: &Link, stream: StreamIndex) {
        let Some(known) = self.streams.get(&stream.0) else { return };
        let Some(order) = &known.order else { return };
        let totals = link.ledger(stream).expect("a stream has a ledger").totals();
        assert_eq!(totals.frames, known.offered);
        let settled = totals.sent + totals.dropped.iter().sum::<u64>() + totals.unknown;
        assert_eq!(settled, totals.frames);
        let mut good: HashMap<u32, bool> = HashMap::new();
        for &(seq, id) in order {
            let decodable = id.is_some_and(|id| {
                let Entry { frame, fate, .. } = &self.entries[id];
                let ready = |seq| good.get(&seq).copied().unwrap_or(false);
                matches!(fate, Some(Fate::Sent { on_time: true, .. }))
                    && frame.refs.is_known()
                    && frame.refs.of(seq).all(ready)
            });
            good.insert(seq, decodable);
        }
        let decodable = good.values().filter(|&&good| good).count();
        assert_eq!(totals.decodable, decodable as u64);
    }
}
