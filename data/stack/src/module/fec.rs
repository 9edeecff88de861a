//! Forward error correction: after every k datagrams r parities follow, of which any number
//! restores as many lost datagrams (Reed-Solomon over the datagrams of a group).
//!
//! | offset | what, big-endian |
//! |---|---|
//! | 0 | group, `u32` |
//! | 4 | index in it: data below `k`, parities from `k` on, `u8` |
//! | 5 | `k`: the group's number of data datagrams; 0 in these, which are sent before it is known, `u8` |
//! | 6 | `r`: the number of parities, `u8` |
//! | 7 | the datagram, or the parity |
//!
//! The code covers each datagram's length, `u16`, and its bytes, padded to the longest of the
//! group. A group that does not fill is closed after [`WAIT`]. The number of waiting groups is
//! small; the oldest is dropped.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use selvedge_units::{Duration, Instant};

use super::interface::{Call, Critical, Direction, Module, Outputs, Reason};
use crate::concurrency::{Concurrency, SingleThreaded, State};
use crate::message::Message;

const HEADER: usize = 7;
const GROUPS_MAX: usize = 32;
/// How long a group stays open.
pub(crate) const WAIT: Duration = Duration::from_millis(5);

/// Adds parities, and restores datagrams from them.
#[derive(Debug)]
pub struct Fec<C: Concurrency = SingleThreaded> {
    data: u8,
    parities: u8,
    sending: C::State<Sending>,
    groups: C::State<Vec<Group>>,
}

#[derive(Debug, Default)]
struct Sending {
    group: u32,
    shards: Vec<Vec<u8>>,
    since: Option<Instant>,
    made: u32,
}

/// A group at the receiver: its shards, by index.
#[derive(Debug)]
struct Group {
    number: u32,
    /// `k`, `r` and the length of a shard, as the first parity states them.
    shape: Option<(u8, u8, usize)>,
    shards: Vec<Option<Vec<u8>>>,
    done: bool,
}

impl<C: Concurrency> Fec<C> {
    /// Sends `parities` (1 ..= 64) after every `data` (1 ..= 64) datagrams.
    #[must_use]
    pub fn new(data: u8, parities: u8) -> Self {
        Self {
            data: data.clamp(1, 64),
            parities: parities.clamp(1, 64),
            sending: C::State::new(Sending::default()),
            groups: C::State::new(Vec::new()),
        }
    }

    /// Sends the parities of the open group and opens the next one.
    fn close(&self, sending: &mut Sending, call: &Call<'_, C>, out: &mut Outputs) {
        let shards = std::mem::take(&mut sending.shards);
        let (group, count) = (sending.group, shards.len() as u8);
        (sending.since, sending.group) = (None, group.wrapping_add(1));
        let longest = shards.iter().map(Vec::len).max().unwrap_or(0).next_multiple_of(2);
        let coder = ReedSolomonEncoder::new(shards.len(), self.parities.into(), longest);
        // The counts and the length are within the limits of the code.
        let Ok(mut coder) = coder else { return };
        for mut shard in shards {
            shard.resize(longest, 0);
            if coder.add_original_shard(&shard).is_err() {
                return;
            }
        }
        let Ok(coded) = coder.encode() else { return };
        for (n, bytes) in (count..).zip(coded.recovery_iter()) {
            let mut parity = Message::copy_of(bytes, call.buffers);
            parity.push(&header(group, n, count, self.parities));
            sending.made = sending.made.wrapping_add(1);
            (parity.control, parity.arrived) = (true, call.now);
            out.down(parity);
        }
    }
}

/// Adds a datagram or a parity to its group, and restores the datagrams that this makes possible.
fn join<C: Concurrency>(
    groups: &mut Vec<Group>,
    number: u32,
    [index, k, r]: [u8; 3],
    message: Message,
    call: &Call<'_, C>,
    out: &mut Outputs,
) {
    let at = groups.iter().position(|group| group.number == number).unwrap_or_else(|| {
        if groups.len() == GROUPS_MAX {
            groups.remove(0);
        }
        groups.push(Group { number, shape: None, shards: Vec::new(), done: false });
        groups.len() - 1
    });
    let group = &mut groups[at];
    if group.shards.len() <= usize::from(index) {
        group.shards.resize(usize::from(index) + 1, None);
    }
    if group.shards[usize::from(index)].is_some() {
        return call.drop(message, Reason::Duplicate);
    }
    if k != 0 {
        let shape = (k, r, message.len());
        if *group.shape.get_or_insert(shape) != shape || !message.len().is_multiple_of(2) {
            return call.drop(message, Reason::Malformed);
        }
        group.shards[usize::from(index)] = Some(message.bytes().to_vec());
        call.buffers.recycle(message);
    } else {
        let mut shard = Vec::with_capacity(message.len() + 2);
        shard.extend_from_slice(&(message.len() as u16).to_be_bytes());
        shard.extend_from_slice(message.bytes());
        group.shards[usize::from(index)] = Some(shard);
        out.up(message);
    }
    restore(group, call, out);
}

/// Restores the missing datagrams, if there are enough parities.
fn restore<C: Concurrency>(group: &mut Group, call: &Call<'_, C>, out: &mut Outputs) {
    let Some((k, r, len)) = group.shape.filter(|_| !group.done) else { return };
    let k = usize::from(k);
    let here = |n: usize| group.shards.get(n).is_some_and(Option::is_some);
    let missing: Vec<usize> = (0..k).filter(|&n| !here(n)).collect();
    if missing.is_empty() {
        group.done = true;
        return;
    }
    let parities = (k..k + usize::from(r)).filter(|&n| here(n)).count();
    if parities < missing.len() || len == 0 {
        return;
    }
    group.done = true;
    let Ok(mut decoder) = ReedSolomonDecoder::new(k, r.into(), len) else { return };
    for (n, shard) in group.shards.iter_mut().enumerate() {
        let Some(shard) = shard else { continue };
        let added = if n < k {
            if shard.len() > len {
                return call.connection.count(Reason::Malformed);
            }
            shard.resize(len, 0);
            decoder.add_original_shard(n, &shard)
        } else {
            decoder.add_recovery_shard(n - k, &shard)
        };
        if added.is_err() {
            return call.connection.count(Reason::Malformed);
        }
    }
    let Ok(restored) = decoder.decode() else { return };
    for n in missing {
        let bytes = restored.restored_original(n).and_then(|shard| {
            let (front, rest) = shard.split_first_chunk::<2>()?;
            rest.get(..usize::from(u16::from_be_bytes(*front)))
        });
        match bytes {
            Some(bytes) => {
                let mut message = Message::copy_of(bytes, call.buffers);
                message.arrived = call.now;
                out.up(message);
            }
            None => call.connection.count(Reason::Malformed),
        }
    }
}

fn header(group: u32, index: u8, k: u8, r: u8) -> [u8; HEADER] {
    let [a, b, c, d] = group.to_be_bytes();
    [a, b, c, d, index, k, r]
}

impl<C: Concurrency> Module<C> for Fec<C> {
    fn critical(&self, _: Direction) -> Critical {
        Critical::Whole
    }

    fn down(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        if message.len() > usize::from(u16::MAX) - HEADER {
            return call.drop(message, Reason::TooLarge);
        }
        self.sending.with(|sending| {
            let mut shard = Vec::with_capacity(message.len() + 2);
            shard.extend_from_slice(&(message.len() as u16).to_be_bytes());
            shard.extend_from_slice(message.bytes());
            message.push(&header(sending.group, sending.shards.len() as u8, 0, self.parities));
            sending.since.get_or_insert(call.now);
            sending.shards.push(shard);
            out.down(message);
            if sending.shards.len() == usize::from(self.data) {
                self.close(sending, call, out);
            }
        });
    }

    fn up(&self, mut message: Message, call: &Call<'_, C>, out: &mut Outputs) {
        let Some([a, b, c, d, index, k, r]) = message.pull::<HEADER>() else {
            return call.drop(message, Reason::Malformed);
        };
        let number = u32::from_be_bytes([a, b, c, d]);
        let parity = k != 0;
        let sensible =
            r <= 64 && k <= 64 && if parity { index >= k && index - k < r } else { index < 64 };
        if !sensible || message.len() > usize::from(u16::MAX) + 2 {
            return call.drop(message, Reason::Malformed);
        }
        self.groups.with(|groups| join(groups, number, [index, k, r], message, call, out));
    }

    fn handle_timeout(&self, call: &Call<'_, C>, out: &mut Outputs) {
        self.sending.with(|sending| {
            if sending.since.is_some_and(|since| since + WAIT <= call.now) {
                self.close(sending, call, out);
            }
        });
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.sending.with(|sending| sending.since.map(|since| since + WAIT))
    }
}
