//! The common code of the commands `selvedge` and `selvedge-lab` at the terminal: why a command failed
//! and its exit status, tables, signals, files that a user names, logs, and traces as they are printed.

mod failure;
pub mod input;
mod logging;
pub mod signals;
mod table;
pub mod trace;

pub use failure::Failure;
pub use logging::logging;
pub use table::Table;
