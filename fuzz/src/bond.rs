//! Both ends of a bond of two paths, whose datagrams arrive, are lost or come twice, and between them any bytes as
//! datagrams: rates stay within their limits, packets are counted as they come out, and no end that has done what is
//! due is due at once again.

use selvedge_data_net_bond::{PathId, PathParams, Receiver, Sender, StreamId};
use selvedge_data_stream::rtp::FrameTag;
use selvedge_data_stream::{Kind, References};
use selvedge_units::{Bytes, Duration, Instant};

struct Ends {
    now: Instant,
    sender: Sender,
    receiver: Receiver,
    /// Datagrams under way to the far end, and reports under way back.
    there: Vec<Vec<u8>>,
    back: Vec<Vec<u8>>,
    delivered: u64,
    frame: u32,
}

/// Each step is an operation, an argument, and what the operation takes of the bytes that follow.
pub(crate) fn fuzz(mut bytes: &[u8]) {
    let now = Instant::ZERO + Duration::from_secs(1);
    let (sender, receiver) = (Sender::new(Bytes(28)), Receiver::default());
    let mut ends =
        Ends { now, sender, receiver, there: vec![], back: vec![], delivered: 0, frame: 0 };
    for path in 0..2 {
        ends.sender.add_path(now, PathId(path), PathParams::default());
    }
    while let Some(([operation, argument], rest)) = bytes.split_first_chunk() {
        let (raw, after) = rest.split_at(rest.len().min(usize::from(*argument)));
        let any = u64::from(*argument);
        bytes = rest;
        match operation % 8 {
            0 | 1 => {
                let (stream, size) = (StreamId(u16::from(argument & 3)), 1 + any as usize * 5);
                let due = ends.now + Duration::from_millis(any * 4);
                let tag = ends.tag(operation >> 3);
                ends.sender.handle_packet(
                    ends.now,
                    stream,
                    due,
                    tag.as_ref(),
                    vec![0; size].into(),
                );
            }
            2 => ends.now += Duration::from_millis(any),
            3 => ends.deliver(*argument),
            4 => ends.report(*argument),
            5 => {
                let _ = ends.receiver.handle_datagram(ends.now, raw, argument & 1 == 1);
                bytes = after;
            }
            6 => {
                let _ = ends.sender.handle_datagram(ends.now, raw);
                bytes = after;
            }
            _ if *argument < 8 => ends.sender.remove_path(ends.now, PathId(argument & 1)),
            _ => {
                ends.sender.add_path(ends.now, PathId(argument & 1), PathParams::default());
                ends.sender.describe(ends.now, StreamId(u16::from(argument & 3)), "a stream");
            }
        }
        ends.settle();
    }
}

impl Ends {
    /// The tag of the next packet, if it has one, by five bits.
    fn tag(&mut self, bits: u8) -> Option<FrameTag> {
        let [has_tag, is_intra, referenced, first, last] =
            [0, 1, 2, 3, 4].map(|at| bits >> at & 1 == 1);
        self.frame = self.frame.wrapping_add(first.into());
        has_tag.then(|| FrameTag {
            seq: self.frame,
            kind: if is_intra { Kind::Intra } else { Kind::Bidirectional },
            referenced,
            first,
            last,
            refs: References::NONE,
            left_ms: 0,
            deadline_ms: 0,
        })
    }

    /// One datagram arrives, is lost or comes twice.
    fn deliver(&mut self, how: u8) {
        if self.there.is_empty() {
            return;
        }
        let datagram = self.there.swap_remove(usize::from(how >> 2) % self.there.len());
        for _ in 0..how & 3 {
            self.receiver.handle_datagram(self.now, &datagram, false).expect("the sender made it");
        }
    }

    /// The same of a report.
    fn report(&mut self, how: u8) {
        if self.back.is_empty() {
            return;
        }
        let report = self.back.swap_remove(usize::from(how >> 2) % self.back.len());
        for _ in 0..how & 3 {
            self.sender.handle_datagram(self.now, &report).expect("the receiver made it");
        }
    }

    /// Both ends do what is due.
    fn settle(&mut self) {
        let now = self.now;
        self.sender.handle_timeout(now);
        while let Some(transmit) = self.sender.poll_transmit(now) {
            self.there.push(transmit.bytes);
        }
        self.receiver.handle_timeout(now);
        while let Some(transmit) = self.receiver.poll_transmit(now) {
            self.back.push(transmit.bytes);
        }
        while self.receiver.poll_packet().is_some() {
            self.delivered += 1;
        }
        while self.receiver.poll_description().is_some() {}
        assert_eq!(self.delivered, self.receiver.counts().delivered);
        // A network forgets what it can't hold.
        self.there.truncate(256);
        self.back.truncate(256);
        let limits = PathParams::default().rate;
        for (path, status) in self.sender.paths() {
            assert!((limits.least..=limits.most).contains(&status.rate), "{path:?} {status:?}");
        }
        let path = self.sender.estimate();
        assert!(path.expected >= path.rate, "{path:?}");
        let due = [self.sender.poll_timeout(), self.receiver.poll_timeout()];
        assert!(due.iter().flatten().all(|due| *due > now), "{due:?} at {now:?}");
    }
}
