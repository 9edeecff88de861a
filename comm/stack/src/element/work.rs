//! What elements do: the work of a connection's modules, whichever they are.

use selvedge_data_stack::model::Overheads;
use selvedge_data_stack::module::Direction;
use selvedge_units::{Duration, Instant};

/// What the modules of a connection do.
pub trait ModuleChain: Send + Sync + core::fmt::Debug {
    /// What they do it to.
    type Message: Send + core::fmt::Debug;

    /// How many modules there are.
    fn module_count(&self) -> usize;

    /// Lets the module at `place` handle a message; what comes of it goes to `out`. Returns what
    /// that costs in virtual time; real work costs nothing but real time.
    fn run(
        &self,
        place: usize,
        direction: Direction,
        message: Self::Message,
        now: Instant,
        out: &mut Vec<(Direction, Self::Message)>,
    ) -> Duration;

    /// Does what is due at the module by now.
    fn handle_timeout(
        &self,
        place: usize,
        now: Instant,
        out: &mut Vec<(Direction, Self::Message)>,
    ) {
        let _ = (place, now, out);
    }

    /// Takes a message past the first or the last module. Those of one direction come in order.
    fn emit(&self, direction: Direction, message: Self::Message, now: Instant);

    /// What left may wait for more to go with it; now it should go on, and must if nothing more is
    /// in sight (`idle`). Returns whether anything still waits.
    fn flush(&self, now: Instant, idle: bool) -> bool {
        let _ = (now, idle);
        false
    }

    /// What pipes and hand-overs cost in virtual time.
    fn overheads(&self) -> Overheads {
        Overheads::default()
    }
}
