//! A frame's descriptor as it lies in shared memory: integers at fixed places, for which every bit
//! pattern is valid, and the check that makes a [`Frame`] of it.

use selvedge_units::{Bytes, Duration, Instant};

use crate::{Frame, Kind, References};
use selvedge_data_memory::PayloadSpan;
#[cfg(not(loom))]
use selvedge_data_memory::Plain;

/// One slot of a shared ring, 64 bytes. Numbers are native-endian; times are nanoseconds of
/// `CLOCK_MONOTONIC`.
///
/// | offset | what |
/// |---|---|
/// | 0 | `seq`, `u32` |
/// | 4 | packets, `u16` |
/// | 6 | kind, `u8`: the number of a [`Kind`] |
/// | 7 | flags, `u8`: 1 referenced, 2 the packets bear our header extension |
/// | 8 | zeros |
/// | 12 | bytes of payload, `u32` |
/// | 16 | position of the payload, `u64` |
/// | 24 | arrival, `u64` |
/// | 32 | deadline, `u64`; 0: as the contract says |
/// | 40 | references, `u64`: bit `n` says that the frame needs the one `n + 1` before it, for 48 of \
/// them; the upper 16 bits are the distance to a farther one, 0 for none, 65,535 if it is unknown |
/// | 48 | zeros |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Number within its stream, in decoding order; wraps.
    pub seq: u32,
    /// Packets of the frame, at least 1.
    pub packets: u16,
    /// Number of its kind.
    pub kind: u8,
    /// [`REFERENCED`](Self::REFERENCED) and [`STAMPED`](Self::STAMPED).
    pub flags: u8,
    /// Zeros.
    pub unused: u32,
    /// Bytes of payload.
    pub len: u32,
    /// Position of the payload in the pool.
    pub start: u64,
    /// When the frame arrived.
    pub arrival: u64,
    /// Its deadline; 0: by the contract.
    pub deadline: u64,
    /// The frames that it needs, as [`References::bits`] encodes them.
    pub refs: u64,
    /// Zeros.
    pub reserved: [u64; 2],
}

const _: () = assert!(size_of::<Descriptor>() == 64);

// SAFETY: integers, which fill all of its 64 bytes.
#[cfg(not(loom))]
unsafe impl Plain for Descriptor {}

selvedge_units::named! {
    /// Why data written by a producer were refused; each reason is counted apart.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum Refusal {
        /// The ring's counter claims more items than there are slots.
        Ring = "ring",
        /// The payload lies outside the pool, in two pieces, or not behind those before it.
        Duration = "span",
        /// The kind's number is unknown, or an undefined flag is set.
        Kind = "kind",
        /// There are no packets, or they do not fill the payload.
        Packets = "packets",
        /// A packet is empty or larger than the link takes.
        PacketSize = "packet-size",
        /// The deadline lies before the arrival, or more than an hour after it.
        Deadline = "deadline",
        /// Bytes that must be zero are not.
        Reserved = "reserved",
    }
}

/// Numbers of refusals, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals(pub [u64; Refusal::COUNT]);

impl Refusals {
    /// One more.
    pub const fn count(&mut self, why: Refusal) {
        self.0[why as usize] = self.0[why as usize].saturating_add(1);
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

impl Descriptor {
    /// A later frame may refer to it.
    pub const REFERENCED: u8 = 1;
    /// Each of its packets bears our header extension where
    /// [`write_packet`](crate::rtp::write_packet) puts it, and the sender is to write the deadline
    /// there.
    pub const STAMPED: u8 = 2;
    /// The longest time from a frame's arrival to its deadline.
    const DELAY_MAX: Duration = Duration::from_secs(3600);

    /// Describes a frame of which all is known.
    #[must_use]
    pub const fn of(frame: &Frame, stamped: bool) -> Self {
        let referenced = if frame.referenced { Self::REFERENCED } else { 0 };
        Self {
            seq: frame.seq,
            packets: frame.packets,
            kind: frame.kind as u8,
            flags: referenced | if stamped { Self::STAMPED } else { 0 },
            unused: 0,
            len: frame.payload.len,
            start: frame.payload.start,
            arrival: frame.arrival.0,
            deadline: match frame.deadline {
                Some(at) => at.0,
                None => 0,
            },
            refs: frame.refs.bits(),
            reserved: [0; 2],
        }
    }

    /// Where its payload lies, according to the descriptor.
    #[must_use]
    pub const fn span(&self) -> PayloadSpan {
        PayloadSpan { start: self.start, len: self.len }
    }

    /// The described frame, its size still unknown; an arrival in the future becomes now.
    ///
    /// # Errors
    /// [`Refusal`], for faults that show without the payload.
    pub fn frame(&self, now: Instant) -> Result<Frame, Refusal> {
        if self.reserved != [0; 2] || self.unused != 0 {
            return Err(Refusal::Reserved);
        }
        let kind = Kind::from_number(self.kind).ok_or(Refusal::Kind)?;
        if self.flags & !(Self::REFERENCED | Self::STAMPED) != 0 {
            return Err(Refusal::Kind);
        }
        if self.packets == 0 {
            return Err(Refusal::Packets);
        }
        let arrival = Instant(self.arrival).min(now);
        let deadline = (self.deadline != 0).then_some(Instant(self.deadline));
        if deadline.is_some_and(|at| at < arrival || at > arrival + Self::DELAY_MAX) {
            return Err(Refusal::Deadline);
        }
        Ok(Frame {
            seq: self.seq,
            kind,
            referenced: self.flags & Self::REFERENCED != 0,
            refs: References::from_bits(self.refs),
            packets: self.packets,
            size: Bytes(0),
            arrival,
            deadline,
            payload: self.span(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        Frame {
            seq: 7,
            kind: Kind::Predicted,
            referenced: true,
            refs: References::to([1, 3, 900]),
            packets: 2,
            size: Bytes(0),
            arrival: Instant(1000),
            deadline: Some(Instant(5000)),
            payload: PayloadSpan { start: 48, len: 9 },
        }
    }

    #[test]
    fn a_frame_survives_its_description() {
        let described = Descriptor::of(&frame(), true);
        assert_eq!(described.flags, 3);
        assert_eq!(described.frame(Instant(2000)), Ok(frame()));
        let later = Frame { deadline: None, ..frame() };
        assert_eq!(Descriptor::of(&later, false).frame(Instant(2000)), Ok(later));
    }

    #[test]
    fn each_lie_has_its_reason() {
        let good = Descriptor::of(&frame(), false);
        let why = |bad: Descriptor| bad.frame(Instant(2000)).unwrap_err();
        assert_eq!(why(Descriptor { kind: 6, ..good }), Refusal::Kind);
        assert_eq!(why(Descriptor { flags: 4, ..good }), Refusal::Kind);
        assert_eq!(why(Descriptor { packets: 0, ..good }), Refusal::Packets);
        assert_eq!(why(Descriptor { deadline: 999, ..good }), Refusal::Deadline);
        assert_eq!(why(Descriptor { deadline: u64::MAX, ..good }), Refusal::Deadline);
        assert_eq!(why(Descriptor { reserved: [0, 1], ..good }), Refusal::Reserved);
        assert_eq!(why(Descriptor { unused: 1, ..good }), Refusal::Reserved);
        let future = Descriptor { arrival: u64::MAX, deadline: 0, ..good };
        assert_eq!(future.frame(Instant(2000)).unwrap().arrival, Instant(2000));
    }
}
