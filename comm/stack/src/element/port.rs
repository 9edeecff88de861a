//! The ends of a plant that application and network put messages into.

use std::sync::Arc;

use super::plant::{Outside, Plant};
use super::work::Work;
use crate::pipe::{NotPut, User, Writing};
use selvedge_data_stack::module::Direction;

/// The outside's end of a plant, for one thread.
#[derive(Debug)]
pub struct Port<W: Work> {
    plant: Arc<Plant<W>>,
    outside: Outside,
    hand: Writing<W::Message>,
}

impl<W: Work> Port<W> {
    /// A port. Each of the two outsides has one.
    #[must_use]
    pub fn new(plant: Arc<Plant<W>>, outside: Outside) -> Self {
        Self { plant, outside, hand: Writing::default() }
    }

    /// Puts a message in.
    ///
    /// # Errors
    /// Gives it back, with the reason.
    pub fn put(&mut self, message: W::Message) -> Result<(), (W::Message, NotPut)> {
        let (place, direction) = self.entry();
        let pipe = &self.plant.pipes[self.plant.pipe(place, direction)];
        pipe.put(User::new(self.outside as u8), &mut self.hand, message).map(|_| ())
    }

    /// Messages that were put in, and of which the first module's work is not done.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let (place, direction) = self.entry();
        self.plant.pipes[self.plant.pipe(place, direction)].len()
    }

    /// The module whose pipe it puts into.
    fn entry(&self) -> (usize, Direction) {
        match self.outside {
            Outside::Application => (0, Direction::Down),
            Outside::Network => (self.plant.places() - 1, Direction::Up),
        }
    }

    /// The plant.
    #[must_use]
    pub const fn plant(&self) -> &Arc<Plant<W>> {
        &self.plant
    }
}

impl<W: Work> Drop for Port<W> {
    fn drop(&mut self) {
        let (place, direction) = self.entry();
        let pipe = &self.plant.pipes[self.plant.pipe(place, direction)];
        pipe.stop_writing(User::new(self.outside as u8), &mut self.hand);
    }
}
