//! What the two sides of reliable transport agree on: the window, and the kinds of messages.

/// Messages on their way at most; the receiver keeps as many that came early.
pub(super) const WINDOW: u64 = 256;
/// Bytes on their way at most, unless one message alone is larger.
pub(super) const WINDOW_BYTES: usize = 1 << 20;
/// What the first byte says: a message,
pub(super) const DATA: u8 = 1;
/// or an acknowledgement.
pub(super) const ACK: u8 = 2;
/// Bytes of the bits behind the next number.
pub(super) const BITS: usize = WINDOW as usize / 8;
