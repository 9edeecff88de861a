//! Fragmentation: large messages are sent as several small ones, and reassembled at the other end.
//!
//! | offset | what, big-endian |
//! |---|---|
//! | 0 | the message's name, `u32`: the same in a retransmission |
//! | 4 | the fragment's offset in the message, `u32`, a multiple of the unit |
//! | 8 | bytes of the whole message, `u32` |
//! | 12 | the unit: bytes of each fragment but the last, `u16` |
//!
//! A retransmission completes the fragments that arrived before, so under loss each round needs only the
//! missing ones. Memory is bounded: the message that has waited longest without a new fragment is dropped.

use super::interface::{Call, Critical, Direction, Module, Outputs, Reason};
use crate::concurrency::{Concurrency, SingleThreaded, State};
use crate::contract::MESSAGE_MAX;
use crate::message::Message;

const HEADER: usize = 14;
/// The smallest useful datagram, header included.
pub const FRAGMENT_MIN: usize = 128;
/// The largest message with the headers of the modules above.
const LARGEST: usize = MESSAGE_MAX.0 as usize + 65_536;
const PARTIAL_MAX: usize = 64;
const BYTES_MAX: usize = 8 << 20;
const UNIT_MIN: usize = 64;

/// Fragments and reassembles.
#[derive(Debug)]
pub struct Frag<C: Concurrency = SingleThreaded> {
    unit: usize,
    partial: C::State<Partials>,
}

#[derive(Debug, Default)]
struct Partials {
    /// In order of the last new fragment, the oldest first.
    messages: Vec<Partial>,
    bytes: usize,
}

#[derive(Debug)]
struct Partial {
    name: u32,
    unit: usize,
    message: Message,
    here: Vec<u64>,
    missing: usize,
}

impl<C: Concurrency> Frag<C> {
    /// Makes fragments of at most `size` bytes, header included; at least [`FRAGMENT_MIN`].
    #[must_use]
    pub fn new(datagram: usize) -> Self {
        let unit = datagram.max(FRAGMENT_MIN) - HEADER;
        Self { unit: unit.min(usize::from(u16::MAX)), partial: C::State::new(Partials::default()) }
    }
}

impl Partials {
    fn add<C: Concurrency>(
        &mut self,
        name: u32,
        unit: usize,
        total: usize,
        offset: usize,
        part: Message,
        call: &Call<'_, C>,
    ) -> Option<Message> {
        let found = self.messages.iter().rposition(|partial| {
            (partial.name, partial.unit, partial.message.len()) == (name, unit, total)
        });
        let mut partial = match found {
            Some(at) => self.messages.remove(at),
            None => self.begin(name, unit, total, call),
        };
        let (n, arrived) = (offset / unit, part.arrived);
        if partial.here[n / 64] & (1 << (n % 64)) != 0 {
            call.drop(part, Reason::Duplicate);
        } else {
            partial.here[n / 64] |= 1 << (n % 64);
            partial.missing -= 1;
            partial.message.bytes_mut()[offset..][..part.len()].copy_from_slice(part.bytes());
            call.buffers.recycle(part);
        }
        if partial.missing > 0 {
            self.messages.push(partial);
            return None;
        }
        self.bytes -= total;
        // It arrived with the fragment that completes it.
        (partial.message.name, partial.message.arrived) = (name, arrived);
        Some(partial.message)
    }

    fn begin<C: Concurrency>(
        &mut self,
        name: u32,
        unit: usize,
        total: usize,
        call: &Call<'_, C>,
    ) -> Partial {
        while !self.messages.is_empty()
            && (self.messages.len() >= PARTIAL_MAX || self.bytes + total > BYTES_MAX)
        {
            let oldest = self.messages.remove(0);
            self.bytes -= oldest.message.len();
            call.drop(oldest.message, Reason::NoRoom);
        }
        // All of it is written before the message is passed on.
        let message = Message::of_len(total, call.buffers);
        self.bytes += total;
        let parts = total.div_ceil(unit);
        Partial { name, unit, message, here: vec![0; parts.div_ceil(64)], missing: parts }
    }
}

fn header(name: u32, offset: usize, total: usize, unit: usize) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..4].copy_from_slice(&name.to_be_bytes());
    header[4..8].copy_from_slice(&(offset as u32).to_be_bytes());
    header[8..12].copy_from_slice(&(total as u32).to_be_bytes());
    header[12..].copy_from_slice(&(unit as u16).to_be_bytes());
    header
}

impl<C: Concurrency> Module<C> for Frag<C> {
    fn critical(&self, direction: Direction) -> Critical {
        if direction == Direction::Up { Critical::Whole } else { Critical::Nothing }
    }

    fn down(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let total = message.len();
        if total > LARGEST {
            return call.drop(message, Reason::TooLarge);
        }
        let name = message.name;
        if total <= self.unit {
            message.push(&header(name, 0, total, self.unit));
            return out.down(message);
        }
        for (n, bytes) in message.bytes().chunks(self.unit).enumerate() {
            let mut part = Message::copy_of(bytes, call.buffers);
            part.push(&header(name, n * self.unit, total, self.unit));
            out.down(part.with_metadata_of(&message));
        }
        call.buffers.recycle(message);
    }

    fn up(&self, mut part: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let Some(header) = part.pull::<HEADER>() else {
            return call.drop(part, Reason::Malformed);
        };
        let word = |at: usize| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (name, offset, total) = (word(0), word(4) as usize, word(8) as usize);
        let unit = usize::from(u16::from_be_bytes([header[12], header[13]]));
        let expected = total.saturating_sub(offset).min(unit);
        let sensible =
            unit >= UNIT_MIN && offset.is_multiple_of(unit) && (offset < total || total == 0);
        if !sensible || part.len() != expected {
            return call.drop(part, Reason::Malformed);
        }
        if total > LARGEST {
            return call.drop(part, Reason::TooLarge);
        }
        if total <= unit {
            part.name = name;
            return out.up(part);
        }
        let add = |partials: &mut Partials| partials.add(name, unit, total, offset, part, call);
        if let Some(whole) = self.partial.with(add) {
            out.up(whole);
        }
    }
}
