//! What a sender's link promises, held to what it does: its pace, one fate for each frame, no frame without what
//! it refers to, bounded queues, and the offline bound. The fuzz of `sim` reads it.

use std::collections::BTreeMap;

use selvedge_data_link::bound::{OfflineFrame, decodable_bound};
use selvedge_data_link::{Link, Settled, WAITING_MAX};
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{Fate, Frame, References};
use selvedge_units::{Bytes, Duration, Instant};

use crate::promise::{Breach, Promise};

/// Bits and nanoseconds: a byte of an allowance, so that nothing is rounded.
const BYTE: u128 = 8 * 1_000_000_000;
/// The offline bound is only computed of so many frames.
const BOUND_MAX: usize = 500;
/// Of a frame that leaves so close to its deadline a receiver may find otherwise.
const NEAR: Duration = Duration::from_millis(3);

/// A frame that the link took.
#[derive(Clone, Copy, Debug)]
struct Taken {
    frame: Frame,
    is_sent: Option<bool>,
}

/// Follows one link from its first frame on.
#[derive(Debug, Default)]
pub(super) struct Audit {
    frames: BTreeMap<(u32, u32), Taken>,
    /// What was sent above the rate, in [`BYTE`]s.
    above: u128,
    last: Instant,
    /// The first packet.
    pub(super) first: Option<Instant>,
    near: BTreeMap<u32, u64>,
    breaches: Vec<Breach>,
}

impl Audit {
    fn breach(&mut self, promise: Promise, text: String) {
        if self.breaches.len() < 16 {
            self.breaches.push(Breach { promise, what: text });
        }
    }

    pub(super) fn handle_frame(&mut self, link: &Link, stream: StreamIndex, frame: Frame) {
        let taken = Taken { frame, is_sent: None };
        self.frames.insert((stream.0, frame.seq), taken);
        let waiting = link.queued(stream);
        if waiting > WAITING_MAX {
            self.breach(Promise::Bounded, format!("{waiting} frames of stream {} wait", stream.0));
        }
    }

    pub(super) fn handle_sent(&mut self, now: Instant, link: &Link, size: Bytes) {
        let params = link.params();
        let passed = u128::from(params.rate.0) * u128::from(now.since(self.last).0);
        self.above = self.above.saturating_sub(passed) + u128::from(size.0) * BYTE;
        self.last = now;
        self.first.get_or_insert(now);
        let most = params.burst.max(params.mtu);
        // The pacer counts whole nanoseconds.
        let slack = u128::from(params.rate.0) + BYTE;
        if self.above > u128::from(most.0) * BYTE + slack {
            let above = self.above / BYTE;
            let at = now.since(Instant::ZERO);
            self.breach(Promise::Pace, format!("{above} B above the rate at {at}, {most} allowed"));
        }
    }

    pub(super) fn handle_packet(&mut self, now: Instant, stream: StreamIndex, deadline: Instant) {
        if deadline.since(now).max(now.since(deadline)) <= NEAR {
            *self.near.entry(stream.0).or_default() += 1;
        }
    }

    pub(super) fn handle_settled(&mut self, settled: &Settled, selects: bool) {
        let (stream, seq) = (settled.stream.0, settled.frame.seq);
        let is_sent = matches!(settled.fate, Fate::Sent { .. });
        let before =
            self.frames.get_mut(&(stream, seq)).map(|taken| taken.is_sent.replace(is_sent));
        if before != Some(None) {
            self.breach(Promise::Settled, format!("frame {seq} of stream {stream}: {before:?}"));
        }
        let refs: References = settled.frame.refs;
        if is_sent && selects {
            let lost = refs.of(seq).find(|back| {
                self.frames.get(&(stream, *back)).is_some_and(|taken| taken.is_sent == Some(false))
            });
            if let Some(lost) = lost {
                let text = format!("frame {seq} of stream {stream} is sent without frame {lost}");
                self.breach(Promise::References, text);
            }
        }
    }

    /// Packets of a stream that left so close to their deadlines that a receiver may judge otherwise.
    #[must_use]
    pub(super) fn near(&self, stream: StreamIndex) -> u64 {
        self.near.get(&stream.0).copied().unwrap_or(0)
    }

    /// All that was not as promised, at the end.
    #[must_use]
    pub(super) fn breaches(&self, link: &Link, streams: &[StreamIndex]) -> Vec<Breach> {
        let mut breaches = self.breaches.clone();
        let mut decodable = 0;
        for stream in streams {
            let of = self.frames.range((stream.0, 0)..=(stream.0, u32::MAX));
            let open = of.clone().filter(|(_, taken)| taken.is_sent.is_none()).count();
            let (waiting, ledger) = (link.queued(*stream), link.ledger(*stream));
            if open != waiting {
                let text =
                    format!("{open} frames of stream {} have no fate, {waiting} wait", stream.0);
                breaches.push(Breach { promise: Promise::Settled, what: text });
            }
            decodable += ledger.map_or(0, |ledger| ledger.totals().decodable);
        }
        let (could, did) = (link.could_send(), link.sent_bytes());
        let missed = could.0.saturating_sub(did.0 + 2 * link.params().mtu.0);
        if missed * 50 > could.0 {
            let what = format!("{did} sent, {could} could have been");
            breaches.push(Breach { promise: Promise::Used, what });
        }
        breaches.extend(self.beyond_bound(link, streams, decodable));
        breaches
    }

    fn beyond_bound(&self, link: &Link, streams: &[StreamIndex], decodable: u64) -> Option<Breach> {
        if self.frames.len() > BOUND_MAX {
            return None;
        }
        let frames = |stream: &StreamIndex| {
            let delay = link.contract(*stream)?.delay?;
            let of = self.frames.range((stream.0, 0)..=(stream.0, u32::MAX));
            let offline = of.map(|(_, Taken { frame, .. })| OfflineFrame {
                arrival: frame.arrival,
                deadline: frame.arrival + delay,
                size: frame.size,
                refs: frame.refs,
            });
            Some(offline.collect())
        };
        let streams: Vec<Vec<OfflineFrame>> = streams.iter().map(frames).collect::<Option<_>>()?;
        let params = link.params();
        let bound = decodable_bound(&streams, params.rate, params.burst.max(params.mtu));
        let most = bound.decodable as u64 + 1;
        (decodable > most).then(|| {
            let what = format!("{decodable} frames are decodable, at most {most} can be");
            Breach { promise: Promise::Bound, what }
        })
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_link::LinkParams;
    use selvedge_data_memory::PayloadSpan;
    use selvedge_data_sched::Discipline;
    use selvedge_data_stream::{Contract, DropReason, Kind, Window};
    use selvedge_units::Bitrate;

    use super::*;

    fn link(rate: Bitrate) -> (Link, StreamIndex) {
        let mut link = Link::new(LinkParams {
            discipline: Discipline::Dwcs,
            selection: true,
            rate,
            burst: Bytes(1_000),
            catch_up: None,
            mtu: Bytes(1_000),
            queue: None,
        });
        let period = Duration::from_millis(100);
        let contract = Contract::new(period, Window { lose: 1, of: 5 });
        let stream = link.add_stream(Contract { delay: Some(period), ..contract });
        (link, stream)
    }

    fn frame(seq: u32, size: u64) -> Frame {
        Frame {
            seq,
            kind: Kind::Predicted,
            referenced: true,
            refs: References::to((seq > 0).then_some(1)),
            packets: 1,
            size: Bytes(size),
            arrival: Instant(u64::from(seq) * 100_000_000),
            deadline: None,
            payload: PayloadSpan::default(),
        }
    }

    fn promises(breaches: &[Breach]) -> Vec<Promise> {
        breaches.iter().map(|breach| breach.promise).collect()
    }

    #[test]
    fn packets_that_leave_too_soon_are_found() {
        let (link, _) = link(Bitrate(80_000));
        let mut audit = Audit::default();
        audit.handle_sent(Instant(0), &link, Bytes(1_000));
        // At 80 kbit/s a packet of 1,000 B takes 100 ms.
        audit.handle_sent(Instant(100_000_000), &link, Bytes(1_000));
        assert_eq!(audit.breaches(&link, &[]), []);
        audit.handle_sent(Instant(199_000_000), &link, Bytes(1_000));
        assert_eq!(promises(&audit.breaches(&link, &[])), [Promise::Pace]);
    }

    #[test]
    fn fates_that_come_twice_or_never_and_lost_references_are_found() {
        let (link, stream) = link(Bitrate(80_000));
        let mut audit = Audit::default();
        let settled = |seq, fate| Settled { stream, frame: frame(seq, 500), fate };
        let sent = Fate::Sent { on_time: true, queueing: Duration::ZERO };
        for seq in 0..3 {
            audit.handle_frame(&link, stream, frame(seq, 500));
        }
        audit.handle_settled(&settled(0, Fate::Dropped(DropReason::Expired)), true);
        audit.handle_settled(&settled(1, sent), true);
        assert_eq!(promises(&audit.breaches), [Promise::References]);
        audit.handle_settled(&settled(0, sent), true);
        assert_eq!(promises(&audit.breaches), [Promise::References, Promise::Settled]);
        // The third one has no fate, and does not wait.
        let all = audit.breaches(&link, &[stream]);
        assert_eq!(promises(&all), [Promise::References, Promise::Settled, Promise::Settled]);
    }

    #[test]
    fn a_link_that_stands_still_or_does_more_than_is_possible_is_found() {
        let (mut link, stream) = link(Bitrate(800_000));
        let mut audit = Audit::default();
        for seq in 0..40 {
            let frame = frame(seq, 900);
            // What was enqueued was far larger than what was sent.
            audit.handle_frame(&link, stream, Frame { size: Bytes(90_000), ..frame });
            link.handle_frame(frame.arrival, stream, frame);
            assert!(link.poll_transmit(frame.arrival).is_some(), "frame {seq}");
            link.sent(frame.arrival, Bytes(900));
            while let Some(settled) = link.poll_settled() {
                audit.handle_settled(&settled, true);
            }
        }
        assert_eq!(promises(&audit.breaches(&link, &[stream])), [Promise::Bound]);
        // Frames wait, and none is taken.
        let mut audit = Audit::default();
        for seq in 40..80 {
            let frame = Frame { refs: References::NONE, ..frame(seq, 900) };
            audit.handle_frame(&link, stream, frame);
            link.handle_frame(frame.arrival, stream, frame);
            let _ = link.poll_transmit(frame.arrival);
            while let Some(settled) = link.poll_settled() {
                audit.handle_settled(&settled, true);
            }
        }
        assert_eq!(promises(&audit.breaches(&link, &[])), [Promise::Used]);
    }
}
