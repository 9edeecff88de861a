//! A message on its way through a stack, and the buffers that messages are in.

use std::sync::Mutex;

use selvedge_units::{Bytes, Instant};

/// Room before a message's bytes, for the headers of all modules below.
pub const HEAD_ROOM: usize = 96;

/// A message. Modules put headers before its bytes and take them off in place.
#[derive(Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
    start: usize,
    /// Its number in the order in which the application sent it; transports number by it.
    pub ticket: u64,
    /// What these very bytes are called, for fragments: sent again, they have the same name.
    pub name: u32,
    /// When it entered the stack.
    pub arrived: Instant,
    /// Made by a module and not by the application (an acknowledgement, a parity).
    pub control: bool,
}

impl Message {
    /// A message with a copy of these bytes in a buffer that was used before.
    #[must_use]
    pub fn copy_of(bytes: &[u8], buffers: &Buffers) -> Self {
        let mut message = Self::empty(buffers);
        message.bytes.extend_from_slice(bytes);
        message
    }

    /// A message of no bytes.
    #[must_use]
    pub fn empty(buffers: &Buffers) -> Self {
        let mut bytes = buffers.take();
        bytes.resize(HEAD_ROOM, 0);
        Self { bytes, start: HEAD_ROOM, ..Self::default() }
    }

    /// A message of this length, to be written; what is in it is what was in the buffer before.
    #[must_use]
    pub fn of_len(len: usize, buffers: &Buffers) -> Self {
        let mut bytes = buffers.take_used();
        bytes.resize(HEAD_ROOM + len, 0);
        Self { bytes, start: HEAD_ROOM, ..Self::default() }
    }

    /// The same bytes, ticket, name and time in another buffer.
    #[must_use]
    pub fn duplicate(&self, buffers: &Buffers) -> Self {
        Self::copy_of(self.bytes(), buffers).named_as(self)
    }

    /// These bytes with the ticket, name, time and sort of another message.
    #[must_use]
    pub fn named_as(self, other: &Self) -> Self {
        let Self { ticket, name, arrived, control, .. } = *other;
        Self { ticket, name, arrived, control, ..self }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// The bytes, to be changed in place.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are, with the unit.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.len() as u64)
    }

    /// Puts a header before the bytes: in place while there is room, else by moving them.
    pub fn push(&mut self, header: &[u8]) {
        if self.start < header.len() {
            let more = HEAD_ROOM.max(header.len());
            self.bytes.splice(0..0, std::iter::repeat_n(0, more));
            self.start += more;
        }
        self.start -= header.len();
        self.bytes[self.start..][..header.len()].copy_from_slice(header);
    }

    /// Takes a header of `N` bytes off the front; `None` if there are not so many.
    pub fn pull<const N: usize>(&mut self) -> Option<[u8; N]> {
        let header = self.bytes().first_chunk::<N>().copied()?;
        self.start += N;
        Some(header)
    }

    /// Appends a trailer.
    pub fn append(&mut self, trailer: &[u8]) {
        self.bytes.extend_from_slice(trailer);
    }

    /// Takes a trailer of `N` bytes off the end; `None` if there are not so many.
    pub fn cut<const N: usize>(&mut self) -> Option<[u8; N]> {
        let trailer = self.bytes().last_chunk::<N>().copied()?;
        self.bytes.truncate(self.bytes.len() - N);
        Some(trailer)
    }

    /// Makes it exactly this long; bytes that are new are zero.
    pub fn set_len(&mut self, len: usize) {
        self.bytes.resize(self.start + len, 0);
    }

    /// Its buffer, to be used again.
    #[must_use]
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

/// Buffers that wait for their next message: at most so many, each of at most so many bytes.
#[derive(Debug)]
pub struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
    most: usize,
}

/// Larger buffers are given back to the allocator.
const KEPT_MAX: usize = 1 << 17;

impl Buffers {
    /// Keeps at most this many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { free: Mutex::new(Vec::with_capacity(most)), most }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<Vec<u8>>> {
        // Nothing in the critical sections can panic, and any state of the list is a good one.
        self.free.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn take(&self) -> Vec<u8> {
        let mut bytes = self.take_used();
        bytes.clear();
        bytes
    }

    fn take_used(&self) -> Vec<u8> {
        self.free().pop().unwrap_or_default()
    }

    /// A message that is no longer needed.
    pub fn give(&self, message: Message) {
        let bytes = message.into_buffer();
        if bytes.capacity() == 0 || bytes.capacity() > KEPT_MAX {
            return;
        }
        let mut free = self.free();
        if free.len() < self.most {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_and_go_in_place() {
        let buffers = Buffers::new(2);
        let mut message = Message::copy_of(b"body", &buffers);
        message.push(b"head");
        message.append(b"!");
        assert_eq!(message.bytes(), b"headbody!");
        assert_eq!(message.pull::<4>(), Some(*b"head"));
        assert_eq!(message.cut::<1>(), Some(*b"!"));
        assert_eq!((message.pull::<5>(), message.cut::<5>()), (None, None));
        assert_eq!(message.bytes(), b"body");
        message.push(&[7; HEAD_ROOM]);
        message.push(b"more than there is room for");
        assert_eq!(message.len(), 4 + HEAD_ROOM + 27);
        assert!(message.bytes().starts_with(b"more than") && message.bytes().ends_with(b"body"));
    }

    #[test]
    fn buffers_are_used_again_and_bounded() {
        let buffers = Buffers::new(1);
        let messages = [(); 3].map(|()| Message::copy_of(&[1; 100], &buffers));
        messages.into_iter().for_each(|message| buffers.give(message));
        assert_eq!(buffers.free().len(), 1);
        let message = Message::copy_of(b"x", &buffers);
        assert_eq!((message.bytes(), buffers.free().len()), (&b"x"[..], 0));
    }
}
