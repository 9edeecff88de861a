//! Clocks a decision, counted on the simulated hardware.

use serde::Serialize;

use crate::design::Design;
use crate::protocol::count_request;
use crate::replay::number;
use crate::simulator::{Simulator, SimulatorError};

/// How many clocks a design takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cycles {
    /// Of what.
    pub design: Design,
    /// From the first clock of a decision to the one in which the winner (or the block) is found.
    pub to_winner: u64,
    /// From a decision to the next, priority update included, all streams backlogged.
    pub a_decision: u64,
}

/// Counts over a thousand decisions.
///
/// # Errors
/// [`SimulatorError`]; also if the decisions do not all take the same number of clocks.
pub fn count(simulator: &Simulator) -> Result<Cycles, SimulatorError> {
    const DECISIONS: u64 = 1000;
    let answer = simulator.ask(&count_request(DECISIONS as u32 + 1))?;
    let short = || simulator.garbled("its answer ends early");
    let to_winner = number(&answer, 0, 8).ok_or_else(short)?;
    let all = number(&answer, 8, 8).ok_or_else(short)?;
    if !all.is_multiple_of(DECISIONS) {
        return Err(simulator.garbled("its decisions take different numbers of clocks"));
    }
    Ok(Cycles { design: simulator.design(), to_winner, a_decision: all / DECISIONS })
}
