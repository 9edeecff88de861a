//! The packets of a frame as they lie in its payload: records of a length, `u16` little-endian, and
//! that many bytes, one after the other.

use selvedge_units::Bytes;

/// Bytes that stand before each packet.
pub const PACKET_HEADER_LEN: usize = 2;

/// Why a packet could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketWriteError {
    /// Longer than 65535 bytes.
    #[error("a packet of {0} is longer than 65535 bytes; divide the frame further")]
    TooLong(Bytes),
    /// Longer than what is left of the payload.
    #[error(
        "a packet takes {wanted}, {left} of the payload are left; reserve its length and \
        {PACKET_HEADER_LEN} bytes for each packet"
    )]
    NoRoom {
        /// Bytes it would take, its length included.
        wanted: Bytes,
        /// Bytes left.
        left: Bytes,
    },
    /// The frame has 65535 packets already.
    #[error("a frame has at most 65535 packets; use longer ones")]
    TooMany,
}

/// Writes packets into a payload, one after the other.
#[derive(Debug)]
pub struct PacketWriter<'a> {
    /// The payload from behind the last packet.
    rest: &'a mut [u8],
    written: usize,
    packets: u16,
}

impl<'a> PacketWriter<'a> {
    /// Begins at the payload's first byte.
    pub const fn new(payload: &'a mut [u8]) -> Self {
        Self { rest: payload, written: 0, packets: 0 }
    }

    /// Appends a copy of a packet.
    ///
    /// # Errors
    /// [`PacketWriteError`]; nothing is then written.
    pub fn push(&mut self, packet: &[u8]) -> Result<(), PacketWriteError> {
        self.push_with(packet.len())?.copy_from_slice(packet);
        Ok(())
    }

    /// Appends a packet of `len` bytes and returns them, for the caller to fill.
    ///
    /// # Errors
    /// [`PacketWriteError`]; nothing is then written.
    pub fn push_with(&mut self, len: usize) -> Result<&'a mut [u8], PacketWriteError> {
        let size = |n: usize| Bytes(n as u64);
        let short = u16::try_from(len).map_err(|_| PacketWriteError::TooLong(size(len)))?;
        let packets = self.packets.checked_add(1).ok_or(PacketWriteError::TooMany)?;
        let (wanted, left) = (len + PACKET_HEADER_LEN, self.rest.len());
        if wanted > left {
            return Err(PacketWriteError::NoRoom { wanted: size(wanted), left: size(left) });
        }
        let (record, rest) = core::mem::take(&mut self.rest).split_at_mut(wanted);
        self.rest = rest;
        self.written += wanted;
        self.packets = packets;
        let (header, packet) = record.split_at_mut(PACKET_HEADER_LEN);
        header.copy_from_slice(&short.to_le_bytes());
        Ok(packet)
    }

    /// How many packets have been written.
    #[must_use]
    pub const fn packets(&self) -> u16 {
        self.packets
    }

    /// How many bytes of the payload have been written, lengths included.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.written
    }
}

/// A place between packets of a payload. It borrows nothing, so that a sender can keep it while the
/// pool is used for other frames, and continue packet by packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCursor {
    offset: usize,
}

impl PacketCursor {
    /// The next packet of the payload; `None` at its end, and where its bytes are not a packet.
    pub fn next<'a>(&mut self, payload: &'a [u8]) -> Option<&'a [u8]> {
        let (start, end) = self.advance(payload)?;
        payload.get(start..end)
    }

    /// The next packet of the payload, to be changed in place.
    pub fn next_mut<'a>(&mut self, payload: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (start, end) = self.advance(payload)?;
        payload.get_mut(start..end)
    }

    /// Bytes before the next packet, lengths included.
    #[must_use]
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Advances past the next packet, which has this length: for payloads that cannot be borrowed
    /// as a slice.
    pub const fn pass(&mut self, len: u16) {
        self.offset += PACKET_HEADER_LEN + len as usize;
    }

    fn advance(&mut self, payload: &[u8]) -> Option<(usize, usize)> {
        let (header, rest) =
            payload.get(self.offset..)?.split_first_chunk::<PACKET_HEADER_LEN>()?;
        let len = usize::from(u16::from_le_bytes(*header));
        if len > rest.len() {
            return None;
        }
        let start = self.offset + PACKET_HEADER_LEN;
        self.offset = start + len;
        Some((start, start + len))
    }
}

/// Iterates over the packets of a payload. Ends early where the bytes are not packets:
/// [`remainder`](Self::remainder) returns those bytes.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    payload: &'a [u8],
    cursor: PacketCursor,
}

impl<'a> Packets<'a> {
    /// The packets of this payload. The `k`-th is `nth(k)`, in time linear in `k`.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { payload, cursor: PacketCursor { offset: 0 } }
    }

    /// The bytes not yet iterated: after the last packet, bytes that are not a packet, if any.
    #[must_use]
    pub fn remainder(&self) -> &'a [u8] {
        &self.payload[self.cursor.offset..]
    }
}

impl<'a> Iterator for Packets<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.cursor.next(self.payload)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remainder().len() / PACKET_HEADER_LEN))
    }
}

impl core::iter::FusedIterator for Packets<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_was_written() {
        let mut payload = [0xff; 16];
        let mut writer = PacketWriter::new(&mut payload);
        writer.push(b"one").unwrap();
        writer.push(b"").unwrap();
        writer.push_with(2).unwrap().copy_from_slice(b"xy");
        assert_eq!((writer.packets(), writer.written()), (3, 11));
        let payload = &payload[..11];
        let mut packets = Packets::new(payload);
        assert!(packets.by_ref().eq([&b"one"[..], b"", b"xy"]));
        assert!(packets.remainder().is_empty());
        assert_eq!(Packets::new(payload).nth(2), Some(&b"xy"[..]));
        assert_eq!(Packets::new(payload).nth(3), None);
    }

    #[test]
    fn what_does_not_fit_leaves_the_rest_as_it_was() {
        let mut payload = [0; 6];
        let mut writer = PacketWriter::new(&mut payload);
        writer.push(b"a").unwrap();
        let no_room = PacketWriteError::NoRoom { wanted: Bytes(4), left: Bytes(3) };
        assert_eq!(writer.push(b"bc"), Err(no_room));
        assert_eq!(writer.push(&[0; 65_536]), Err(PacketWriteError::TooLong(Bytes(65_536))));
        assert_eq!((writer.packets(), writer.written()), (1, 3));
        writer.push(b"d").unwrap();
        assert!(Packets::new(&payload).eq([b"a", b"d"]));
    }

    #[cfg(not(miri))] // too many for it
    #[test]
    fn a_frame_has_at_most_65535_packets() {
        let mut payload = vec![0; 2 * 65_536];
        let mut writer = PacketWriter::new(&mut payload);
        for _ in 0..u16::MAX {
            writer.push(b"").unwrap();
        }
        assert_eq!(writer.push(b""), Err(PacketWriteError::TooMany));
    }

    #[test]
    fn garbage_ends_the_walk() {
        let long = [1, 0, b'a', 9, 0, b'b'];
        let mut packets = Packets::new(&long);
        assert_eq!((packets.next(), packets.next(), packets.next()), (Some(&b"a"[..]), None, None));
        assert_eq!(packets.remainder(), [9, 0, b'b']);
        assert_eq!(Packets::new(&[7]).next(), None);
        assert_eq!(Packets::new(&[]).next(), None);
    }

    #[test]
    fn a_cursor_changes_packets_in_place() {
        let mut payload = [2, 0, b'a', b'b', 1, 0, b'c'];
        let mut cursor = PacketCursor::default();
        cursor.next_mut(&mut payload).unwrap()[0] = b'A';
        assert_eq!(cursor.offset(), 4);
        cursor.next_mut(&mut payload).unwrap()[0] = b'C';
        assert_eq!(cursor.next_mut(&mut payload), None);
        assert_eq!(payload, [2, 0, b'A', b'b', 1, 0, b'C']);
        // A cursor of another payload finds nothing, and stays valid.
        assert_eq!(cursor.next(&[0]), None);
    }
}
