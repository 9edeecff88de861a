//! Runs what `selvedge-code` makes: three ways to call a handler, with one face.
//!
//! | | what runs | cost of a call |
//! |---|---|---|
//! | [`Walked`] | the evaluator, anywhere | some ns for each operation |
//! | [`Native`] | machine code in this process, in memory that is written first and executed then, never both | about 3 ns and the work |
//! | [`Kernel`] | byte code, loaded by `bpf(2)` and run by `BPF_PROG_RUN` | a system call, and the work |
//!
//! A handler's memory belongs to one instance and is not shared: whoever has two events at a time
//! needs two instances. All three leave the same bytes in it.

mod executable;
mod host;
mod kernel;
pub mod measure;
mod native;
mod system;

use selvedge_code::{Fault, Host, Memory, Program, walk};

pub use executable::ExecutableError;
pub use host::MachineHost;
pub use kernel::{Hook, Kernel, LoadError, Measured};
pub use native::{Native, PrepareError};
pub use system::{Refused, available};

/// A handler that is ready to be called.
pub trait Handler {
    /// What it was made from.
    fn program(&self) -> &Program;

    /// Its memory: the header and all records, of [`Program::memory_size`] bytes.
    fn memory(&self) -> &[u8];

    /// Its memory, to put an event into, or to set the budget.
    fn memory_mut(&mut self) -> &mut [u8];

    /// Calls it once. `host` is asked for functions where the handler runs in the process.
    ///
    /// # Errors
    /// The fault that ended it; what it wrote till then stays written.
    fn call(&mut self, host: &mut dyn Host) -> Result<i64, Fault>;
}

/// A handler that the evaluator runs.
#[derive(Debug)]
pub struct Walked {
    program: Program,
    memory: Memory,
}

impl Walked {
    /// Ready at once.
    pub fn new(program: Program) -> Self {
        let memory = Memory::new(&program);
        Self { program, memory }
    }
}

impl Handler for Walked {
    fn program(&self) -> &Program {
        &self.program
    }

    fn memory(&self) -> &[u8] {
        self.memory.bytes()
    }

    fn memory_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    fn call(&mut self, host: &mut dyn Host) -> Result<i64, Fault> {
        walk::call(&self.program, &mut self.memory, host)
    }
}
