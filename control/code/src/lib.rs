//! E-code: a small C-like language for handlers and filters that travel between hosts as text.
//!
//! A source is parsed and checked against its host's declarations - the formats of a channel's records,
//! constants, a few functions - and becomes a typed form. Its uses are:
//!
//! - an evaluator that walks it ([`interpret`]), which defines the language;
//! - byte code for the kernel ([`ebpf`]), generated here, with no compiler on the machine;
//! - machine code for the process (`native`, a feature), by Cranelift, with guards.
//!
//! All three give the same results, bit for bit, and end an endless loop by the same budget. No program can
//! access memory other than its own, and no source costs more than [`limits`] states. Nothing here runs the
//! output: `selvedge-os-jit` does.
//!
//! The language is that of Q-Fabric's section 3.2.4, after ECho's; docs/ecode.md has the grammar.
#![forbid(unsafe_code)]

mod arithmetic;
mod check;
pub mod ebpf;
mod environment;
mod form;
mod handler;
pub mod interpret;
mod lex;
pub mod limits;
mod memory;
#[cfg(feature = "native")]
pub mod native;
mod parse;
mod print;
mod source;
mod syntax;
mod types;

pub use check::compile;
pub use environment::{Access, Constant, Environment, Function, InKernel, Record};
pub use form::{Placed, Program};
pub use handler::{Handler, Interpreted};
pub use interpret::Host;
pub use memory::{Fault, Memory, Number, numbers, outcome};
pub use source::{CodeError, Diagnosis, Position, Span};
pub use syntax::{Comparison, Operator};
pub use types::{Member, Scalar, Storage, Struct, Type};
