//! An engine without a thread: its owner goes through the loop turn by turn, in his own time. With a
//! clock that is turned by hand the same code runs in simulated time as runs in real time, and every
//! run of it is the same.

use std::sync::mpsc::{self, Sender};

use selvedge_control_config::LinkConfig;
use selvedge_data_link::Link;
use selvedge_units::Instant;

use super::frame_consumer::Poller;
use super::worker::Worker;
use super::{Command, EngineError, FateTap, NewStream, worker};
use crate::extension::{Extension, Stage};
use selvedge_os::clock::Clock;
use selvedge_os::wake::Woken;

/// An engine that its owner steps. The loop: [`turn`](Self::turn), and if that says until when there
/// is nothing to do, [`wait_until`](Self::wait_until) then or an earlier instant.
pub struct SteppedEngine<P: Poller> {
    worker: Worker<P>,
    /// Held, since an engine whose orders can come no more has lost its owner.
    _control: Sender<Command<P::FrameConsumer>>,
}

impl<P: Poller> SteppedEngine<P> {
    /// An engine for a link, whose port reads the same clock.
    ///
    /// # Errors
    /// [`EngineError`] if no socket can be had.
    pub fn new(
        clock: Clock,
        link: &LinkConfig,
        port: P,
        tap: Option<Box<dyn FateTap>>,
    ) -> Result<Self, EngineError> {
        let (control, commands) = mpsc::channel();
        Ok(Self { worker: worker(clock, link, port, commands, tap)?, _control: control })
    }

    /// Adds a stream, and gives its number.
    pub fn attach(&mut self, stream: NewStream<P::FrameConsumer>) -> usize {
        self.worker.attach(stream)
    }

    /// Loads a step, in place of one of the same name; false if there are 32 already.
    pub fn load(&mut self, name: &str, point: Stage, step: Box<dyn Extension>) -> bool {
        self.worker.extensions.load(name.to_owned(), point, step)
    }

    /// Takes what arrived, sends what may be sent now, tells what became of frames. Until when there
    /// is nothing more to do unless somebody calls; `None`: there is more at once.
    pub fn turn(&mut self) -> Option<Instant> {
        self.worker.turn()
    }

    /// Waits as the engine's thread would, on the same port.
    pub fn wait_until(&mut self, at: Instant) -> Woken {
        self.worker.port.wait_until(at)
    }

    /// The link as it is.
    #[must_use]
    pub const fn link(&self) -> &Link {
        &self.worker.link
    }
}
