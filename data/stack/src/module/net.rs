//! The network end: it marks each datagram with its connection, its length and a checksum.
//!
//! | offset | what, big-endian |
//! |---|---|
//! | 0 | the connection, `u32` |
//! | 4 | bytes after the header, `u16` |
//! | 6 | CRC-32 of bytes 0 .. 6 and of what follows, `u32` |

use super::interface::{Call, Module, Outputs, Reason};
use crate::concurrency::Concurrency;
use crate::message::Message;

/// The largest datagram: the limit of UDP over IPv4.
pub const DATAGRAM_MAX: usize = 65_507;
/// The part of it that is left to the modules above, without the secure layer below.
pub(crate) const PAYLOAD_MAX: usize = DATAGRAM_MAX - HEADER - selvedge_data_net_secure::OVERHEAD;
pub(crate) const HEADER: usize = 10;
/// The largest number of parts of a wrapped message.
const PARTS_MAX: usize = 8;

/// Turns messages into datagrams, and datagrams into messages.
#[derive(Debug, Default)]
pub struct Net;

fn sum(front: &[u8], payload: &[&[u8]]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(front);
    payload.iter().for_each(|part| sum.update(part));
    sum.finalize()
}

/// The header for these bytes, of which there are at most [`PAYLOAD_MAX`].
fn header(connection: u32, payload: &[&[u8]]) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let len: usize = payload.iter().map(|part| part.len()).sum();
    header[..4].copy_from_slice(&connection.to_be_bytes());
    header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
    let sum = sum(&header[..6], payload);
    header[6..].copy_from_slice(&sum.to_be_bytes());
    header
}

impl Net {
    /// The connection that a datagram states; `None` if it is too short.
    #[must_use]
    pub fn connection(datagram: &[u8]) -> Option<u32> {
        datagram.first_chunk().copied().map(u32::from_be_bytes)
    }
}

impl<C: Concurrency> Module<C> for Net {
    fn down(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        if message.len() > PAYLOAD_MAX {
            return call.drop(message, Reason::TooLarge);
        }
        let header = header(call.connection.id, &[message.bytes()]);
        message.push(&header);
        out.down(message);
    }

    fn up(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let Some(header) = message.pull::<HEADER>() else {
            return call.drop(message, Reason::Malformed);
        };
        let [a, b, c, d, high, low, sums @ ..] = header;
        if u32::from_be_bytes([a, b, c, d]) != call.connection.id {
            return call.drop(message, Reason::Stranger);
        }
        let agrees = usize::from(u16::from_be_bytes([high, low])) == message.len();
        if !agrees || u32::from_be_bytes(sums) != sum(&header[..6], &message.parts()) {
            return call.drop(message, Reason::Corrupt);
        }
        out.up(message);
    }

    fn wrap(&self, header: &mut Message, parts: &[&[u8]], call: &Call<'_, C>) -> bool {
        let mut payload = [&[][..]; PARTS_MAX + 1];
        let Some((first, rest)) = payload[..=parts.len().min(PARTS_MAX)].split_first_mut() else {
            return false;
        };
        if rest.len() < parts.len() {
            return false;
        }
        *first = header.bytes();
        rest.copy_from_slice(parts);
        let payload = &payload[..=parts.len()];
        if payload.iter().map(|part| part.len()).sum::<usize>() > PAYLOAD_MAX {
            return false;
        }
        let front = self::header(call.connection.id, payload);
        header.push(&front);
        true
    }
}
