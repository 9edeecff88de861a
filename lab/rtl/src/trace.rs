//! Traces on the hardware: the smallest design that takes one.

use selvedge_data_sched::replay::Trace;

use crate::design::{Design, Routing, Slots};
use crate::fit::Unsupported;
use crate::replay::{Replay, ReplayError};
use crate::simulator::Simulator;

/// Replays a trace on the smallest winner-only design that holds its streams.
///
/// # Errors
/// If the hardware does not take it, or could not be simulated.
pub fn replay(trace: &Trace) -> Result<Replay, ReplayError> {
    let found = trace.streams.len();
    let slots = Slots::for_streams(found).ok_or(Unsupported::Streams { found })?;
    // What can be refused without a simulator is.
    crate::fit::slots(trace)?;
    Simulator::of(Design::plain(slots, Routing::WinnerOnly))?.replay(trace)
}
