//! The datagrams of a survey, in the encoding of `postcard` with zeros behind it, and the receiver of trains.

use selvedge_units::{Bitrate, Bytes, Duration, Instant};
use serde::{Deserialize, Serialize};

/// The beginning of each.
const MAGIC: u32 = u32::from_be_bytes(*b"SLV1");
/// All but those of trains have this many bytes, so that no answer is longer than what it answers.
pub(super) const PROBE_SIZE: Bytes = Bytes(84);
pub(super) const TRAIN_PACKET_SIZE: Bytes = Bytes(1200);
pub(super) const PROBE_INTERVAL: Duration = Duration::from_millis(10);
pub(super) const TRAIN_INTERVAL: Duration = Duration::from_secs(1);

/// Times are nanoseconds of the sender's clock. Trains and probes are counted from 1.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Content {
    /// Wants an echo, and the train back of this number with so many packets, unless that has been sent.
    Probe { number: u32, train: u32, packets: u32 },
    /// A probe came at `came`; bit `n` of `seen` says that probe `number - n` has come.
    Echo { number: u32, came: u64, seen: u64, dispersion: Dispersion },
    /// The answer to a probe without the nonce that it is to have.
    Nonce,
    /// A packet of a train.
    Train { train: u32, number: u32, sent: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    /// The nonces of its receiver and of its sender.
    pub(super) to: u64,
    pub(super) from: u64,
    pub(super) content: Content,
}

impl Datagram {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (magic, to, from, content) = postcard::from_bytes::<(u32, _, _, _)>(bytes).ok()?;
        let is_whole = magic == MAGIC && bytes.len() as u64 >= PROBE_SIZE.0;
        is_whole.then_some(Self { to, from, content })
    }

    pub(super) fn write(&self, buffer: &mut Vec<u8>) {
        let is_train = matches!(self.content, Content::Train { .. });
        let size = if is_train { TRAIN_PACKET_SIZE } else { PROBE_SIZE };
        buffer.clear();
        buffer.resize(size.0 as usize, 0);
        let words = (MAGIC, self.to, self.from, self.content);
        postcard::to_slice(&words, buffer).expect("the longest one fits");
    }
}

/// The packets of a train that came right behind the one before them: so many, the nanoseconds between them, and what
/// these were at the sender. Losses in front of the narrow link or behind it do not change the quotient.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Dispersion {
    pub(super) train: u32,
    pub(super) pairs: u32,
    pub(super) span: u64,
    pub(super) sent_span: u64,
}

#[derive(Debug, Default)]
pub(super) struct TrainReceiver {
    pub(super) dispersion: Dispersion,
    /// The last packet's number, when it came, and when it was sent.
    last: Option<(u32, Instant, u64)>,
}

impl TrainReceiver {
    pub(super) fn handle_packet(&mut self, now: Instant, train: u32, number: u32, sent: u64) {
        if train > self.dispersion.train {
            *self = Self { dispersion: Dispersion { train, ..Dispersion::default() }, last: None };
        }
        if train == self.dispersion.train
            && let Some((before, at, sent_before)) = self.last.replace((number, now, sent))
            && before.checked_add(1) == Some(number)
        {
            let it = &mut self.dispersion;
            it.pairs = it.pairs.saturating_add(1);
            it.span = it.span.saturating_add(now.since(at).0);
            it.sent_span = it.sent_span.saturating_add(sent.saturating_sub(sent_before));
        }
    }
}

/// How many packets a train may have so that an end sends no more than this on average, probes and the headers of IPv6
/// included.
pub(super) fn train_packets_max(limit: Bitrate) -> u32 {
    let probes = (PROBE_SIZE.0 + 48) * (TRAIN_INTERVAL.0 / PROBE_INTERVAL.0);
    let packets = (limit * TRAIN_INTERVAL).0.saturating_sub(probes) / (TRAIN_PACKET_SIZE.0 + 48);
    packets.min(1000) as u32
}
