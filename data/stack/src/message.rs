//! A message on its way through a stack, and the buffers that hold messages.

use selvedge_units::{Bytes, Instant};

use crate::concurrency::{Concurrency, SingleThreaded, State};

/// Room before a message's bytes, for the headers of all modules below.
pub const HEAD_ROOM: usize = 96;
/// Room after them, for trailers: a mark, tags of a cipher.
const TAIL_ROOM: usize = 96;

/// A message. Modules prepend headers to its bytes and remove them in place.
#[derive(Debug, Default)]
pub struct Message {
    bytes: Vec<u8>,
    start: usize,
    /// The payload, if it has a buffer of its own; empty except in a message that came
    /// [apart](Message::apart).
    body: Vec<u8>,
    /// The number of the message in the application's sending order; transports use it as theirs.
    pub ticket: u64,
    /// A name of exactly these bytes, for fragments: a retransmission has the same name.
    pub name: u32,
    /// When the message entered the stack.
    pub arrived: Instant,
    /// Whether a module made it and not the application (an acknowledgement, a parity).
    pub control: bool,
}

impl Message {
    /// A message with a copy of these bytes in a buffer that was used before.
    #[must_use]
    pub fn copy_of<C: Concurrency>(bytes: &[u8], buffers: &Buffers<C>) -> Self {
        let mut message = Self::with_room(bytes.len(), buffers);
        message.bytes.extend_from_slice(bytes);
        message
    }

    /// An empty message with room for `len` bytes.
    #[must_use]
    pub fn with_room<C: Concurrency>(len: usize, buffers: &Buffers<C>) -> Self {
        let mut bytes = buffers.take(HEAD_ROOM + len + TAIL_ROOM);
        bytes.clear();
        bytes.resize(HEAD_ROOM, 0);
        Self { bytes, start: HEAD_ROOM, ..Self::default() }
    }

    /// A message of this length, to be written; it initially holds bytes of an earlier message.
    #[must_use]
    pub fn of_len<C: Concurrency>(len: usize, buffers: &Buffers<C>) -> Self {
        let mut bytes = buffers.take(HEAD_ROOM + len + TAIL_ROOM);
        bytes.resize(HEAD_ROOM + len, 0);
        Self { bytes, start: HEAD_ROOM, ..Self::default() }
    }

    /// A message from the network, in the buffer that it was read into ([`Buffers::datagram`]):
    /// without a copy, and without room for headers.
    #[must_use]
    pub fn received(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// A large message from the network whose headers were read into one buffer and the rest into another,
    /// so that the rest can be passed on without a copy. Only for stacks whose modules do nothing but remove
    /// these headers ([`Composition::headers`](crate::compose::Composition::headers)).
    #[must_use]
    pub fn apart<C: Concurrency>(headers: &[u8], body: Vec<u8>, buffers: &Buffers<C>) -> Self {
        Self { body, ..Self::copy_of(headers, buffers) }
    }

    /// The headers and the body; one of them may be empty.
    #[must_use]
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.bytes[self.start..], &self.body]
    }

    /// Moves the bytes into a vector, whose buffer this message takes over.
    pub fn take_into(&mut self, into: &mut Vec<u8>) {
        if self.is_body() {
            std::mem::swap(&mut self.body, into);
            self.body.clear();
        } else {
            into.clear();
            into.extend_from_slice(self.bytes());
        }
    }

    /// The same message in one piece, as a transmitter needs it.
    #[must_use]
    pub fn whole(mut self) -> Self {
        if self.is_body() {
            (self.bytes, self.start) = (std::mem::take(&mut self.body), 0);
        }
        self
    }

    /// Whether all bytes are in the body.
    fn is_body(&self) -> bool {
        !self.body.is_empty() && self.start == self.bytes.len()
    }

    /// The application's message with its ticket, entering the stack now.
    #[must_use]
    pub fn numbered(self, ticket: u64, now: Instant) -> Self {
        Self { ticket, name: ticket as u32 & (u32::MAX >> 1), arrived: now, ..self }
    }

    /// A copy with the same bytes, ticket, name and time in another buffer.
    #[must_use]
    pub fn duplicate<C: Concurrency>(&self, buffers: &Buffers<C>) -> Self {
        Self::copy_of(self.bytes(), buffers).with_metadata_of(self)
    }

    /// This message with the ticket, name, time and kind of another one.
    #[must_use]
    pub fn with_metadata_of(self, other: &Self) -> Self {
        let Self { ticket, name, arrived, control, .. } = *other;
        Self { ticket, name, arrived, control, ..self }
    }

    /// The bytes. Of a message that came apart these are the headers, and once they are removed the body.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        if self.is_body() { &self.body } else { &self.bytes[self.start..] }
    }

    /// The bytes, mutably.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        if self.is_body() { &mut self.body } else { &mut self.bytes[self.start..] }
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.start + self.body.len()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of bytes, with the unit.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.len() as u64)
    }

    /// Prepends a header: in place while there is room, otherwise by moving the bytes.
    pub fn push(&mut self, header: &[u8]) {
        if self.start < header.len() {
            let more = HEAD_ROOM.max(header.len());
            self.bytes.splice(0..0, std::iter::repeat_n(0, more));
            self.start += more;
        }
        self.start -= header.len();
        self.bytes[self.start..][..header.len()].copy_from_slice(header);
    }

    /// Removes a header of `N` bytes from the front; `None` if the message is shorter.
    pub fn pull<const N: usize>(&mut self) -> Option<[u8; N]> {
        let header = self.bytes().first_chunk::<N>().copied()?;
        self.start += N;
        Some(header)
    }

    /// Appends a trailer.
    pub fn append(&mut self, trailer: &[u8]) {
        self.bytes.extend_from_slice(trailer);
    }

    /// Removes a trailer of `N` bytes from the end; `None` if the message is shorter.
    pub fn take_trailer<const N: usize>(&mut self) -> Option<[u8; N]> {
        let trailer = self.bytes().last_chunk::<N>().copied()?;
        let of = if self.is_body() { &mut self.body } else { &mut self.bytes };
        of.truncate(of.len() - N);
        Some(trailer)
    }

    /// Sets the length; new bytes are zero.
    pub fn set_len(&mut self, len: usize) {
        self.bytes.resize(self.start + len, 0);
    }
}

/// Free buffers, by size, so that a small message neither takes a large buffer nor makes a small
/// one grow. The number of each size is bounded.
#[derive(Debug)]
pub struct Buffers<C: Concurrency = SingleThreaded> {
    free: C::State<Free>,
    most: usize,
}

/// Buffers by size.
type Free = [Vec<Vec<u8>>; SIZES.len()];

/// The sizes: a datagram, a few, the largest datagram, and twice that. Larger buffers are returned
/// to the allocator.
const SIZES: [usize; 4] = [2 << 10, 16 << 10, 64 << 10, 128 << 10];

impl<C: Concurrency> Buffers<C> {
    /// Keeps at most this number of the smallest size, and of each next size a quarter as many.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let mut free = Free::default();
        free[0].reserve(most);
        Self { free: C::State::new(free), most }
    }

    /// A buffer with room for the largest datagram.
    #[must_use]
    pub fn datagram(&self) -> Vec<u8> {
        let mut bytes = self.take(64 << 10);
        bytes.clear();
        bytes
    }

    /// A buffer with room for `len` bytes; it holds bytes of an earlier message.
    fn take(&self, len: usize) -> Vec<u8> {
        let Some(sort) = SIZES.iter().position(|&size| size >= len) else {
            return Vec::with_capacity(len);
        };
        let used = self.free.with(|free| free[sort].pop());
        used.unwrap_or_else(|| Vec::with_capacity(SIZES[sort]))
    }

    /// Returns the buffers of a message that is no longer needed.
    pub fn recycle(&self, message: Message) {
        [message.bytes, message.body].into_iter().for_each(|bytes| self.keep_for_reuse(bytes));
    }

    fn keep_for_reuse(&self, bytes: Vec<u8>) {
        let capacity = bytes.capacity();
        let Some(sort) = SIZES.iter().rposition(|&size| size <= capacity) else { return };
        if capacity > SIZES[SIZES.len() - 1] {
            return;
        }
        let most = (self.most >> (2 * sort)).max(1);
        self.free.with(|free| {
            if free[sort].len() < most {
                free[sort].push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_and_go_in_place() {
        let buffers: Buffers = Buffers::new(2);
        let mut message = Message::copy_of(b"body", &buffers);
        message.push(b"head");
        message.append(b"!");
        assert_eq!(message.bytes(), b"headbody!");
        assert_eq!(message.pull::<4>(), Some(*b"head"));
        assert_eq!(message.take_trailer::<1>(), Some(*b"!"));
        assert_eq!((message.pull::<5>(), message.take_trailer::<5>()), (None, None));
        assert_eq!(message.bytes(), b"body");
        message.push(&[7; HEAD_ROOM]);
        message.push(b"more than there is room for");
        assert_eq!(message.len(), 4 + HEAD_ROOM + 27);
        assert!(message.bytes().starts_with(b"more than") && message.bytes().ends_with(b"body"));
    }

    #[test]
    fn a_message_that_came_apart_is_read_as_one() {
        let buffers: Buffers = Buffers::new(4);
        let mut message = Message::apart(b"headhere", vec![7; 60_000], &buffers);
        assert_eq!((message.len(), message.parts()[0]), (60_008, &b"headhere"[..]));
        assert_eq!(message.pull::<4>(), Some(*b"head"));
        assert_eq!(message.bytes(), b"here");
        assert_eq!(message.pull::<4>(), Some(*b"here"));
        assert_eq!(message.take_trailer::<1>(), Some([7]));
        assert_eq!((message.bytes(), message.len()), (&vec![7; 59_999][..], 59_999));
        message.bytes_mut()[0] = 8;
        let (at, mut into) = (message.bytes().as_ptr(), Vec::with_capacity(70_000));
        let room = into.as_ptr();
        message.take_into(&mut into);
        assert_eq!((into.as_ptr(), into.len(), into[0]), (at, 59_999, 8), "not copied");
        // The buffer of the other message serves the next.
        buffers.recycle(message);
        let next = buffers.datagram();
        assert_eq!(next.as_ptr(), room);
        let mut sent = Message::apart(b"", vec![1; 20_000], &buffers).whole();
        sent.push(b"head");
        assert_eq!((sent.len(), &sent.bytes()[..5]), (20_004, &b"head\x01"[..]));
        // With an empty body the message consists of its headers.
        assert_eq!(Message::apart(b"ab", Vec::new(), &buffers).bytes(), b"ab");
    }

    #[test]
    fn buffers_are_used_again_and_bounded() {
        let buffers: Buffers = Buffers::new(1);
        let messages = [(); 3].map(|()| Message::copy_of(&[1; 100], &buffers));
        messages.into_iter().for_each(|message| buffers.recycle(message));
        assert_eq!(buffers.free.borrow()[0].len(), 1);
        let message = Message::copy_of(b"x", &buffers);
        assert_eq!((message.bytes(), buffers.free.borrow()[0].len()), (&b"x"[..], 0));
    }

    #[test]
    fn sizes_keep_to_themselves() {
        let buffers: Buffers = Buffers::new(64);
        for len in [15_000, 64_000, 100_000] {
            let message = Message::of_len(len, &buffers);
            let (at, room) = (message.bytes().as_ptr(), message.bytes.capacity());
            assert!(room >= len + HEAD_ROOM + TAIL_ROOM);
            buffers.recycle(message);
            // A small message leaves the large buffer free, and a large one gets it again.
            let _small = Message::copy_of(&[7; 10], &buffers);
            let again = Message::of_len(len, &buffers);
            assert_eq!((again.bytes().as_ptr(), again.len()), (at, len));
        }
        // A buffer that exceeds all sizes is not kept.
        buffers.recycle(Message::of_len(200_000, &buffers));
        assert!(buffers.free.borrow().iter().all(Vec::is_empty));
    }
}
