//! The agreement of both sides of reliable transport: the window, and the kinds of messages.

/// The largest number of messages in flight; the receiver keeps as many early ones.
pub(super) const WINDOW: u64 = 256;
/// The largest number of bytes in flight, unless one message alone is larger.
pub(super) const WINDOW_BYTES: usize = 1 << 20;
/// The first byte of a message,
pub(super) const DATA: u8 = 1;
/// and of an acknowledgement.
pub(super) const ACK: u8 = 2;
/// The size of the bitmap after the next number, in bytes.
pub(super) const BITS: usize = WINDOW as usize / 8;
