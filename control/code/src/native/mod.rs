//! Machine code for the process, by Cranelift: the typed form with a guard at each index and a fuel counter
//! at each loop's head. The output is position-independent bytes that refer to nothing; another crate runs
//! them.
//!
//! The code is a function of the platform's C convention, `fn(memory, host)`. It reads and writes only the
//! handler's memory, and calls `host` for functions; see [`HOST_CALL`].

mod emit;
mod operate;

use std::sync::Arc;

use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::isa::{self, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{CodegenError, Context};
use cranelift_frontend::FunctionBuilderContext;

use crate::form::Program;

/// The offset in the second argument of the address of `extern "C" fn(context, function, a, b, c, d) ->
/// value`, all of 64 bits; functions are numbered as in [`Program::functions`].
pub const HOST_CALL: i32 = 0;
/// The offset in the second argument of the value passed as `context`.
pub const HOST_CONTEXT: i32 = 8;

/// Why there is no machine code.
#[derive(Debug, thiserror::Error)]
pub enum NativeError {
    /// Cranelift has no code generator for this machine.
    #[error("there is no code generator for this machine: {0}; use the evaluator")]
    Machine(String),
    /// The generator refused the program: because of its limits, or a bug of this crate.
    #[error("machine code can't be made: {0}; make the handler smaller, or use the evaluator")]
    Generate(String),
}

/// Machine code.
#[derive(Clone, Debug)]
pub struct MachineCode {
    bytes: Vec<u8>,
}

impl MachineCode {
    /// The instructions, to be called at their first byte.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Generates machine code for this machine; keeps its buffers from one program to the next.
pub struct Compiler {
    isa: Arc<dyn TargetIsa>,
    context: Context,
    builder: FunctionBuilderContext,
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compiler({})", self.isa.triple())
    }
}

impl Compiler {
    /// A compiler for the machine of this build.
    ///
    /// # Errors
    /// If Cranelift has no generator for it.
    pub fn new() -> Result<Self, NativeError> {
        let machine = |error: &dyn std::fmt::Display| NativeError::Machine(error.to_string());
        let mut flags = settings::builder();
        for (name, value) in [
            ("opt_level", "speed"),
            ("regalloc_algorithm", "backtracking"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
            // Makes a NaN have the same bits in all back ends.
            ("enable_nan_canonicalization", "true"),
            ("unwind_info", "false"),
            // A large frame must not step over the stack's guard page.
            ("enable_probestack", "true"),
            ("probestack_strategy", "inline"),
        ] {
            flags.set(name, value).map_err(|error| machine(&error))?;
        }
        let isa = isa::lookup(target_lexicon::HOST)
            .map_err(|error| machine(&error))?
            .finish(settings::Flags::new(flags))
            .map_err(|error| machine(&error))?;
        Ok(Self { isa, context: Context::new(), builder: FunctionBuilderContext::new() })
    }

    /// Generates machine code. About 50 us for a small filter, linear except for contrived programs.
    ///
    /// # Errors
    /// If the generator refuses the program.
    pub fn compile(&mut self, program: &Program) -> Result<MachineCode, NativeError> {
        self.context.clear();
        emit::function(program, &*self.isa, &mut self.context.func, &mut self.builder);
        let refused = |error: CodegenError| NativeError::Generate(format!("{error:?}"));
        let compiled = self
            .context
            .compile(&*self.isa, &mut ControlPlane::default())
            .map_err(|error| refused(error.inner))?;
        if let Some(other) = compiled.buffer.relocs().first() {
            return Err(NativeError::Generate(format!("it refers to {:?}", other.kind)));
        }
        Ok(MachineCode { bytes: compiled.code_buffer().to_vec() })
    }
}
