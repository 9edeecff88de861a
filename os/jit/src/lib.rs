//! Runs the output of `selvedge-control-code`: three ways to call a handler, with one interface.
//!
//! | | what runs | cost of a call |
//! |---|---|---|
//! | [`Interpreted`] | the evaluator, anywhere | some ns for each operation |
//! | [`Native`] | machine code in this process, in memory that is first written and then executed, never both | about 3 ns and the work |
//! | [`Kernel`] | byte code, loaded by `bpf(2)` and run by `BPF_PROG_RUN` | a system call, and the work |
//!
//! A handler's memory belongs to one instance and is not shared: a caller with two events at a time needs two
//! instances. All three leave the same bytes in it.

mod executable;
mod host;
mod kernel;
mod mapped;
mod native;
mod system;

pub use executable::ExecutableError;
pub use host::MachineHost;
pub use kernel::{Hook, Kernel, LoadError, Measured, available, install};
pub use native::{Native, PrepareError};
pub use selvedge_control_code::{Handler, Interpreted};
pub use system::BpfError;
