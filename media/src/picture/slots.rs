//! The memory of a decoder of VP8, VP9 or AV1: a fixed number of slots, each with the data that some
//! picture left in it. Headers state which slots a picture reads and which it writes. Pure.

use selvedge_data_stream::References;

/// For each slot the number of the unit that wrote it; `None` before one did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots<const COUNT: usize>([Option<u64>; COUNT]);

impl<const COUNT: usize> Default for Slots<COUNT> {
    fn default() -> Self {
        Self([None; COUNT])
    }
}

impl<const COUNT: usize> Slots<COUNT> {
    /// How far the writer of a slot lies before the unit of this number: 0 for the unit itself, beyond
    /// all where nothing has been written.
    pub(super) fn distance(&self, slot: usize, number: u64) -> u32 {
        let writer = self.0.get(slot).copied().flatten();
        let back = writer.and_then(|writer| number.checked_sub(writer));
        back.and_then(|back| u32::try_from(back).ok()).unwrap_or(u32::MAX)
    }

    /// The references of the unit of this number if it reads these slots.
    pub(super) fn references(
        &self,
        slots: impl IntoIterator<Item = usize>,
        number: u64,
    ) -> References {
        References::to(slots.into_iter().map(|slot| self.distance(slot, number)))
    }

    /// The unit of this number writes the slots whose bits are set.
    pub(super) fn write(&mut self, mask: u32, number: u64) {
        for (at, slot) in self.0.iter_mut().enumerate() {
            if mask >> at & 1 == 1 {
                *slot = Some(number);
            }
        }
    }

    /// From now on `to` holds the content that `from` had in `before`.
    pub(super) fn copy(&mut self, before: &Self, from: usize, to: usize) {
        self.0[to] = before.0[from];
    }

    pub(super) fn clear(&mut self, slot: usize) {
        self.0[slot] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_writer_of_a_slot_is_named() {
        let mut slots = Slots::<3>::default();
        assert_eq!(slots.distance(0, 5), u32::MAX);
        slots.write(0b011, 5);
        slots.write(0b010, 6);
        assert_eq!([0, 1, 2, 3].map(|slot| slots.distance(slot, 6)), [1, 0, u32::MAX, u32::MAX]);
        slots.copy(&slots.clone(), 0, 2);
        slots.clear(0);
        assert_eq!([0, 1, 2].map(|slot| slots.distance(slot, 8)), [u32::MAX, 2, 3]);
    }
}
