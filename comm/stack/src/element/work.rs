//! The work of elements: running the modules of a connection, whichever they are.

use selvedge_data_stack::model::Overheads;
use selvedge_data_stack::module::Direction;
use selvedge_units::{Duration, Instant};

/// The work of a connection's modules.
pub trait ModuleChain: Send + Sync + core::fmt::Debug {
    /// The type of message that the modules handle.
    type Message: Send + core::fmt::Debug;

    /// The number of modules.
    fn module_count(&self) -> usize;

    /// Lets the module at `place` handle a message, and appends the resulting messages to `out`.
    /// Returns the cost in virtual time; real work takes only real time.
    fn run(
        &self,
        place: usize,
        direction: Direction,
        message: Self::Message,
        now: Instant,
        out: &mut Vec<(Direction, Self::Message)>,
    ) -> Duration;

    /// Runs the timeouts of the module that are due.
    fn handle_timeout(
        &self,
        place: usize,
        now: Instant,
        out: &mut Vec<(Direction, Self::Message)>,
    ) {
        let _ = (place, now, out);
    }

    /// Takes a message that is past the first or the last module. Messages of one direction arrive in order.
    fn emit(&self, direction: Direction, message: Self::Message, now: Instant);

    /// Sends messages that left and were held back for batching; with `idle` no more are in sight,
    /// and all must go. Returns whether any message still waits.
    fn flush(&self, now: Instant, idle: bool) -> bool {
        let _ = (now, idle);
        false
    }

    /// The cost of pipes and hand-overs in virtual time.
    fn overheads(&self) -> Overheads {
        Overheads::default()
    }
}
