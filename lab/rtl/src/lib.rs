//! The scheduler as hardware: the ShareStreams architecture in Verilog, the twin of
//! `selvedge_sched` for the field widths of the paper's Fig. 4.
//!
//! The Verilog is in `place/rtl/hdl/`; this crate carries it as text. [`Simulator`] has Verilator make a
//! program of it, once for each [`Design`], and replays traces on it: the same events as
//! [`selvedge_data_sched::replay::Replay`], or an error that says what does not fit. [`order`] measures blocks,
//! [`cycles`] counts clocks, [`synth`] asks Yosys and nextpnr for areas and clock rates. Nothing
//! here is needed to build the product: the tools are looked for when they are used.

#![forbid(unsafe_code)]

pub mod cycles;
mod design;
mod fit;
pub mod order;
mod protocol;
mod replay;
mod simulator;
mod sources;
pub mod synth;
mod tool;
pub mod trace;

pub use design::{Design, Routing, Slots};
pub use fit::Unsupported;
pub use replay::{Replay, ReplayError, StreamTotals};
pub use simulator::{Simulator, SimulatorError};
pub use tool::ToolError;
