//! The common interface of all ways to run a handler; and the one that needs no machine support, the
//! evaluator.

use crate::form::Program;
use crate::interpret::{self, Host};
use crate::memory::{Fault, Memory};

/// A handler that is ready to be called.
pub trait Handler {
    /// The program from which it was made.
    fn program(&self) -> &Program;

    /// Its memory: the header and all records, of [`Program::memory_size`] bytes.
    fn memory(&self) -> &[u8];

    /// Its memory, for writing an event or setting the budget.
    fn memory_mut(&mut self) -> &mut [u8];

    /// Calls it once. `host` supplies functions where the handler runs in the process.
    ///
    /// # Errors
    /// The fault that ended it; earlier writes stay.
    fn call(&mut self, host: &mut dyn Host) -> Result<i64, Fault>;
}

/// A handler that the evaluator runs.
#[derive(Debug)]
pub struct Interpreted {
    program: Program,
    memory: Memory,
}

impl Interpreted {
    /// A handler that is ready at once.
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
