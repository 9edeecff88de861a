//! The ends of a pipeline into which the application and the network enqueue messages.

use std::sync::Arc;

use super::pipeline::{External, Pipeline};
use super::work::ModuleChain;
use crate::pipe::{EnqueueError, PipeUser, WriterEnd};
use selvedge_data_stack::module::Direction;

/// An outside end of a pipeline, for one thread.
#[derive(Debug)]
pub struct EntryPort<W: ModuleChain> {
    pipeline: Arc<Pipeline<W>>,
    external: External,
    end: WriterEnd<W::Message>,
}

impl<W: ModuleChain> EntryPort<W> {
    /// A port. Each of the two outside users has one.
    #[must_use]
    pub fn new(pipeline: Arc<Pipeline<W>>, external: External) -> Self {
        Self { pipeline, external, end: WriterEnd::default() }
    }

    /// Enqueues a message.
    ///
    /// # Errors
    /// Returns the message with the reason.
    pub fn enqueue(&mut self, message: W::Message) -> Result<(), (W::Message, EnqueueError)> {
        let (place, direction) = self.entry();
        let pipe = &self.pipeline.pipes[self.pipeline.pipe(place, direction)];
        pipe.enqueue(PipeUser::new(self.external as u8), &mut self.end, message).map(|_| ())
    }

    /// Enqueued messages that the first module has not finished with.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let (place, direction) = self.entry();
        self.pipeline.pipes[self.pipeline.pipe(place, direction)].len()
    }

    /// The module whose pipe this port writes to.
    fn entry(&self) -> (usize, Direction) {
        match self.external {
            External::Application => (0, Direction::Down),
            External::Network => (self.pipeline.module_count() - 1, Direction::Up),
        }
    }
}

impl<W: ModuleChain> Drop for EntryPort<W> {
    fn drop(&mut self) {
        let (place, direction) = self.entry();
        let pipe = &self.pipeline.pipes[self.pipeline.pipe(place, direction)];
        pipe.unregister_writer(PipeUser::new(self.external as u8), &mut self.end);
    }
}
