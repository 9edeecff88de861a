//! A stream's packets in order.

use std::collections::BTreeMap;

use selvedge_units::{Bytes, Duration, Instant};

use crate::datagram::nearest;

/// Packets that wait for missing ones, at most: beyond it they are not waited for.
const HELD_MAX: usize = 4_096;
/// So long before its deadline a packet goes on.
pub(crate) const GUARD: Duration = Duration::from_millis(4);
/// A stream that is not heard from its beginning on begins with its first packet.
const BEGINNING: u32 = 1_024;

/// Packets of one stream that wait for missing ones before them. Sequence numbers wrap; here they do not.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    /// The packet that is given next.
    next: Option<u64>,
    held: BTreeMap<u64, (Instant, Vec<u8>)>,
    /// No held packet has to go before.
    due: Option<Instant>,
    bytes: Bytes,
}

/// What becomes of a packet at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    New,
    /// It came before, or was no longer waited for.
    Late,
}

impl Reorder {
    /// The number next to the expected one that is this modulo 2^32.
    pub(crate) fn unwrapped(&mut self, sequence: u32) -> u64 {
        // Numbers begin at 2^32, so that none is below zero.
        let base = 1 << 32;
        let next = *self.next.get_or_insert_with(|| {
            base + if sequence < BEGINNING { 0 } else { u64::from(sequence) }
        });
        nearest(next, sequence)
    }

    /// Takes the packet of this number, as [`Self::unwrapped`] gave it, that has to go by `due`; gives what can go now.
    pub(crate) fn handle_packet(
        &mut self,
        number: u64,
        due: Instant,
        packet: Vec<u8>,
        out: &mut Vec<Vec<u8>>,
    ) -> Taken {
        let next = self.next.unwrap_or(number);
        if number < next || self.held.contains_key(&number) {
            return Taken::Late;
        }
        if number > next {
            self.bytes += Bytes(packet.len() as u64);
            self.held.insert(number, (due, packet));
            self.due = Some(self.due.map_or(due, |least| least.min(due)));
            if self.held.len() > HELD_MAX
                && let Some((first, _)) = self.held.first_key_value()
            {
                self.release(*first, out);
            }
            return Taken::New;
        }
        out.push(packet);
        self.release(number + 1, out);
        Taken::New
    }

    /// Gives what is held below `next`, and what follows without a gap.
    fn release(&mut self, next: u64, out: &mut Vec<Vec<u8>>) {
        let mut next = self.next.unwrap_or(next).max(next);
        while let Some(first) = self.held.first_entry().filter(|first| *first.key() <= next) {
            next = next.max(first.key() + 1);
            let (_, packet) = first.remove();
            self.bytes = self.bytes - Bytes(packet.len() as u64);
            out.push(packet);
        }
        self.next = Some(next);
        if self.held.is_empty() {
            self.due = None;
        }
    }

    /// Gives what has to go by `now`, and all before it.
    pub(crate) fn handle_timeout(&mut self, now: Instant, out: &mut Vec<Vec<u8>>) {
        if self.due.is_none_or(|due| due > now) {
            return;
        }
        let last = self.held.iter().rev().find(|(_, (due, _))| *due <= now).map(|(last, _)| *last);
        if let Some(last) = last {
            self.release(last, out);
        }
        self.due = self.held.values().map(|(due, _)| *due).min();
    }

    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Bytes that wait.
    pub(crate) const fn bytes(&self) -> Bytes {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn take(reorder: &mut Reorder, sequence: u32, due: u64) -> (Taken, Vec<Vec<u8>>) {
        let mut out = Vec::new();
        let packet = sequence.to_be_bytes().to_vec();
        let number = reorder.unwrapped(sequence);
        let taken = reorder.handle_packet(number, Instant(due), packet, &mut out);
        (taken, out)
    }

    fn numbers(out: &[Vec<u8>]) -> Vec<u32> {
        out.iter().map(|packet| u32::from_be_bytes(packet[..].try_into().unwrap())).collect()
    }

    #[test]
    fn a_missing_packet_is_waited_for_until_the_next_is_due() {
        let mut reorder = Reorder::default();
        assert_eq!(numbers(&take(&mut reorder, 0, 9).1), [0]);
        assert_eq!(take(&mut reorder, 2, 20), (Taken::New, vec![]));
        assert_eq!(take(&mut reorder, 2, 20), (Taken::Late, vec![]));
        assert_eq!(take(&mut reorder, 3, 30), (Taken::New, vec![]));
        assert_eq!((reorder.poll_timeout(), reorder.bytes()), (Some(Instant(20)), Bytes(8)));
        assert_eq!(numbers(&take(&mut reorder, 1, 10).1), [1, 2, 3]);
        assert_eq!((reorder.poll_timeout(), reorder.bytes()), (None, Bytes(0)));
        take(&mut reorder, 5, 50);
        take(&mut reorder, 7, 70);
        let mut out = Vec::new();
        reorder.handle_timeout(Instant(49), &mut out);
        assert_eq!(out, Vec::<Vec<u8>>::new());
        reorder.handle_timeout(Instant(50), &mut out);
        assert_eq!((numbers(&out), reorder.poll_timeout()), (vec![5], Some(Instant(70))));
        assert_eq!(take(&mut reorder, 4, 99).0, Taken::Late);
    }

    proptest! {
        /// Whatever comes, each packet is given at most once, in order, and memory has a limit.
        #[test]
        fn order_is_kept(mut at: u32, steps in prop::collection::vec((-40_i32..60, 0_u64..100), 1..400)) {
            let (mut reorder, mut out) = (Reorder::default(), Vec::new());
            for (now, (step, due)) in steps.into_iter().enumerate() {
                at = at.wrapping_add_signed(step);
                let (packet, now) = (at.to_be_bytes().to_vec(), now as u64);
                let number = reorder.unwrapped(at);
                reorder.handle_packet(number, Instant(now + due), packet, &mut out);
                reorder.handle_timeout(Instant(now), &mut out);
                prop_assert!(reorder.poll_timeout().is_none_or(|due| due.0 > now));
            }
            let given = numbers(&out);
            prop_assert!(given.windows(2).all(|two| (two[1].wrapping_sub(two[0]) as i32) > 0));
        }

        #[test]
        fn numbers_may_be_any(sequences: Vec<u32>) {
            let mut reorder = Reorder::default();
            for sequence in sequences {
                take(&mut reorder, sequence, 5);
            }
            reorder.handle_timeout(Instant(5), &mut Vec::new());
            prop_assert_eq!(reorder.bytes(), Bytes(0));
        }
    }
}
