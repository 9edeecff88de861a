//! Byte code for the kernel, generated directly from the typed form, without another compiler.
//!
//! The verifier's view: all memory is one map value, whose address is in r9. Every index is compared with its
//! bound where it is used. A variable lives in r6 to r8 or in the map. Before a loop the code makes the
//! verifier forget its knowledge of the variables that the loop changes, so that it proves all turns at once
//! and not one by one. `may_goto` at the loop's head makes the loop a bounded one for the verifier, while the
//! handler's own fuel, in a register, ends it much earlier. The stack holds intermediate values only.
//!
//! Needs Linux 6.9 (`may_goto`, and version 4 of the instruction set).

mod assemble;
mod emit;
mod instruction;
mod operate;

pub use instruction::Instruction;

use crate::form::Program;
use crate::source::Position;

/// Byte code with the memory that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytecode {
    instructions: Vec<Instruction>,
    memory_size: u32,
}

/// Why a handler can't run in the kernel, though it can in a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// The kernel has no floating point.
    #[error(
        "this is a double, and the kernel has none; use a long in a smaller unit, or run the handler \
         in a process"
    )]
    Double(Position),
    /// A function of the host exists only in a process.
    #[error("{0}() can't be called in the kernel; run the handler in a process")]
    Host(String),
    /// The kernel's stack has 512 bytes.
    #[error(
        "an expression needs {0} bytes of stack, and the kernel has 480; use a variable in between"
    )]
    Stack(u32),
    /// Jumps reach 32,767 instructions.
    #[error("a jump goes over {0} instructions, and at most 32767 can be; use several handlers")]
    TooLarge(usize),
    /// A map's addresses reach 65,536 bytes from one register.
    #[error(
        "memory and variables take {0} bytes, and the kernel reaches 65528; use shorter arrays"
    )]
    Memory(u32),
}

/// Generates byte code. Linear in the program, except for its largest expressions.
///
/// # Errors
/// A feature that the kernel lacks, with its place in the source and a remedy.
pub fn emit(program: &Program) -> Result<Bytecode, KernelError> {
    if let Some(at) = program.double_at {
        return Err(KernelError::Double(program.position(at.start)));
    }
    emit::Emitter::new(program)?.program(program)
}

impl Bytecode {
    /// The instructions, the first two with the map's address left open.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// The required size of the map's value: the program's memory, and room for variables behind it.
    pub fn memory_size(&self) -> u32 {
        self.memory_size
    }

    /// The kernel's encoding, for an array map of one value that is open at this descriptor.
    pub fn encode(&self, map: i32) -> Vec<u64> {
        let mut words: Vec<u64> = self.instructions.iter().map(|one| one.encode()).collect();
        let low = Instruction { immediate: map, ..self.instructions[0] };
        words[0] = low.encode();
        words
    }
}
