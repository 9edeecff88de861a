//! The agreement of both sides of reliable transport: windows, and the kinds of messages.

/// The number of messages that a receiver which states no room keeps, and the least window of a sender.
pub(super) const ROOM_MIN: u64 = 256;
/// The largest number of messages in flight; the receiver keeps as many early ones.
pub(super) const ROOM_MAX: u64 = 4096;
/// The least window in bytes, and the largest, unless one message alone is larger; the receiver keeps as many
/// bytes of early messages.
pub(super) const BYTES_MIN: u64 = 1 << 20;
pub(super) const BYTES_MAX: u64 = 16 << 20;
/// The first byte of a message,
pub(super) const DATA: u8 = 1;
/// and of an acknowledgement.
pub(super) const ACK: u8 = 2;
/// The size of the bitmap after the next number, in bytes; what it lacks follows after the room.
pub(super) const BITS: usize = ROOM_MIN as usize / 8;
