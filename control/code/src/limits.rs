//! Bounds on a program, so that no source, wherever it came from, costs more than a stated amount of memory,
//! stack or time.

/// The longest source, in bytes.
pub const SOURCE_MAX: usize = 64 * 1024;
/// How deep blocks, expressions and types may nest.
pub const NEST_MAX: u32 = 100;
/// The longest name, in bytes.
pub const NAME_MAX: usize = 64;
/// The most operations of a program.
pub const OPERATIONS_MAX: u32 = 16 * 1024;
/// The most scalar variables that a handler may declare.
pub const LOCALS_MAX: usize = 512;
/// The most bytes that all records, static variables and arrays take.
pub const MEMORY_MAX: u32 = 64 * 1024;
/// The most bytes of a handler's own arrays and structs, which are cleared where they are declared.
pub const SCRATCH_MAX: u32 = 4096;
/// The most structs, constants or members of a struct.
pub const DECLARATIONS_MAX: usize = 1024;
/// The most parameters of a host function.
pub const PARAMETERS_MAX: usize = 4;
/// The most mistakes that are reported at once.
pub const DIAGNOSTICS_MAX: usize = 20;
/// The budget of a call where none is stated, in operations inside of loops.
pub const FUEL_DEFAULT: u64 = 100_000;
/// The largest budget. Below the kernel's own limit of 8 Mi turns, so that this one is reached first.
pub const FUEL_MAX: u64 = 8_000_000;
