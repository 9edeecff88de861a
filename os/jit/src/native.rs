//! Handlers as machine code in this process.

use std::ffi::c_void;

use selvedge_control_code::native::{Compiler, NativeError};
use selvedge_control_code::{Fault, Host, Memory, Program};

use crate::Handler;
use crate::executable::{Executable, ExecutableError};

/// Why a handler can't run as machine code.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The code could not be generated.
    #[error(transparent)]
    Generate(#[from] NativeError),
    /// The code could not be placed in memory.
    #[error(transparent)]
    Memory(#[from] ExecutableError),
}

/// The table that generated code reads by its second argument; see `HOST_CALL` and `HOST_CONTEXT`.
#[repr(C)]
struct HostTable {
    call: extern "C" fn(*mut c_void, u64, u64, u64, u64, u64) -> u64,
    context: *mut c_void,
}

type Entry = unsafe extern "C" fn(*mut u8, *const HostTable);

/// A handler as machine code.
#[derive(Debug)]
pub struct Native {
    program: Program,
    memory: Memory,
    code: Executable,
    code_size: usize,
}

impl Native {
    /// Compiles a handler. Reusing a compiler is faster than making a new one.
    ///
    /// # Errors
    /// If there is no code generator for this machine, or no executable memory.
    pub fn new(program: Program, compiler: &mut Compiler) -> Result<Self, PrepareError> {
        let code = compiler.compile(&program)?;
        let executable = Executable::new(code.bytes())?;
        let memory = Memory::new(&program);
        Ok(Self { program, memory, code: executable, code_size: code.bytes().len() })
    }

    /// The number of bytes of machine code.
    pub fn code_size(&self) -> usize {
        self.code_size
    }

    /// Calls the handler once, and leaves the result in memory. The host must not panic: that would end the
    /// process.
    #[inline]
    pub fn run(&mut self, host: &mut dyn Host) {
        let mut host = host;
        let context: *mut &mut dyn Host = &raw mut host;
        let table = HostTable { call: host_call, context: context.cast() };
        // SAFETY: the code was made by `Compiler` for exactly this program, as a function of this type in the
        // platform's convention. It accesses at most `memory_size` bytes of its first argument - every index
        // in it is guarded - which `memory` has, and which nothing else refers to while `self` is borrowed
        // for writing. It calls only `forward`, while `host` is alive. Its loops end by fuel.
        unsafe {
            let entry = std::mem::transmute::<*const u8, Entry>(self.code.start());
            entry(self.memory.bytes_mut().as_mut_ptr(), &raw const table);
        }
    }
}

/// The function that generated code calls.
extern "C" fn host_call(
    context: *mut c_void,
    function: u64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
) -> u64 {
    // SAFETY: `run` passed the address of a `&mut dyn Host` that it borrows until the code has returned, and
    // uses nowhere else meanwhile.
    let host = unsafe { &mut *context.cast::<&mut dyn Host>() };
    host.call(function as usize, [a, b, c, d])
}

impl Handler for Native {
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
        self.run(host);
        self.memory.outcome()
    }
}
