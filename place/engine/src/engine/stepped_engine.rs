//! An engine without a thread: its owner runs the loop turn by turn. With a clock that is advanced by hand,
//! the code that runs in real time runs in simulated time, and every run gives the same result.

use std::sync::mpsc::{self, Sender};

use selvedge_control_config::LinkConfig;
use selvedge_data_link::Link;
use selvedge_units::{Bytes, Instant};

use super::frame_consumer::Poller;
use super::worker::Worker;
use super::{Command, EngineError, FateTap, NewStream, worker};
use crate::extension::{Extension, Stage};
use crate::slot::Slot;
use selvedge_os::clock::Clock;
use selvedge_os::wake::Woken;

/// An engine that its owner steps. The loop: [`turn`](Self::turn), and if that returns until when there is
/// nothing to do, [`wait_until`](Self::wait_until) then or an earlier instant.
pub struct SteppedEngine<P: Poller> {
    worker: Worker<P>,
    /// Kept open, since an engine whose command channel is closed has lost its owner.
    _control: Sender<Command<P::FrameConsumer>>,
}

impl<P: Poller> SteppedEngine<P> {
    /// An engine for a link, whose poller reads the same clock.
    ///
    /// # Errors
    /// [`EngineError`] if no socket can be opened.
    pub fn new(
        clock: Clock,
        link: &LinkConfig,
        port: P,
        tap: Option<Box<dyn FateTap>>,
    ) -> Result<Self, EngineError> {
        let (control, commands) = mpsc::channel();
        Ok(Self { worker: worker(clock, link, port, commands, tap)?, _control: control })
    }

    /// Adds a stream, and returns its number.
    pub fn attach(&mut self, stream: NewStream<P::FrameConsumer>) -> usize {
        self.worker.attach(stream)
    }

    /// Removes a stream and its waiting frames; its number is free.
    pub fn remove(&mut self, stream: usize) {
        self.worker.remove(self.worker.clock.now(), stream);
    }

    /// Makes a stream the slot of these streamlets, as [`Engine::aggregate`](super::Engine::aggregate) does.
    pub fn aggregate(&mut self, stream: usize, slot: Slot) -> bool {
        let stream = self.worker.streams.get_mut(stream).and_then(Option::as_mut);
        stream.map(|stream| stream.aggregate(Box::new(slot))).is_some()
    }

    /// The slot that a stream is.
    #[must_use]
    pub fn slot(&self, stream: usize) -> Option<&Slot> {
        self.worker.streams.get(stream)?.as_ref()?.slot()
    }

    /// Loads an extension, in place of one of the same name; false if there are 32 already.
    pub fn load(&mut self, name: &str, point: Stage, step: Box<dyn Extension>) -> bool {
        self.worker.extensions.load(name.to_owned(), point, step)
    }

    /// Takes arrived frames, sends packets that may be sent now, and reports the fates of frames. Returns
    /// until when there is nothing more to do without a wake-up; `None`: there is more at once.
    pub fn turn(&mut self) -> Option<Instant> {
        self.worker.turn()
    }

    /// Waits as the engine's thread would, on the same poller.
    pub fn wait_until(&mut self, at: Instant) -> Woken {
        self.worker.port.wait_until(at)
    }

    /// Bytes of payloads that several receivers share and that were copied for carriers.
    #[must_use]
    pub fn copied(&self) -> Bytes {
        self.worker.streams.iter().flatten().map(|stream| stream.copied).sum()
    }

    /// The link in its present state.
    #[must_use]
    pub const fn link(&self) -> &Link {
        &self.worker.link
    }
}
