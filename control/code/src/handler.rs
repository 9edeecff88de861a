//! What every way to run a handler has in common; and the one that needs no machine, the evaluator.

use crate::form::Program;
use crate::interpret::{self, Host};
use crate::memory::{Fault, Memory};

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
pub struct Interpreted {
    program: Program,
    memory: Memory,
}

impl Interpreted {
    /// Ready at once.
    pub fn new(program: Program) -> Self {
        let memory = Memory::new(&program);
        Self { program, memory }
    }
}

impl Handler for Interpreted {
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
        interpret::call(&self.program, &mut self.memory, host)
    }
}
