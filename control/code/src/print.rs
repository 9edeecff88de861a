//! The typed form as text, for people: every conversion and bound is shown.

use std::fmt;

use crate::form::{Expr, Kind, Place, Program, Stmt};
use crate::types::{Scalar, Storage};

/// A program's typed form, one statement a line.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for placed in &self.records {
            let (record, start) = (&placed.record, placed.offset);
            let end = start + record.layout.size;
            writeln!(f, "memory {start:>5}..{end:<5} {}", record.name)?;
        }
        writeln!(f, "memory {:>5} bytes in all", self.memory_size)?;
        for (number, storage) in self.locals.iter().enumerate() {
            writeln!(f, "local  %{number:<4} {}", storage.name())?;
        }
        for (at, storage, bits) in &self.initial {
            writeln!(f, "static [{at}] = {}", Bits(*bits, storage.scalar()))?;
        }
        block(f, &self.body, 0)
    }
}

fn block(f: &mut fmt::Formatter<'_>, statements: &[Stmt], depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    for statement in statements {
        match statement {
            Stmt::Eval(value) => writeln!(f, "{pad}{value}")?,
            Stmt::If(condition, then, other) => {
                writeln!(f, "{pad}if {condition}")?;
                block(f, then, depth + 1)?;
                if !other.is_empty() {
                    writeln!(f, "{pad}else")?;
                    block(f, other, depth + 1)?;
                }
            }
            Stmt::Loop(parts) => {
                writeln!(f, "{pad}loop, {} of fuel a turn", parts.cost)?;
                let test = |f: &mut fmt::Formatter<'_>| match &parts.condition {
                    Some(condition) => writeln!(f, "{pad}  while {condition}"),
                    None => Ok(()),
                };
                if parts.test_first {
                    test(f)?;
                }
                block(f, &parts.body, depth + 1)?;
                if !parts.test_first {
                    test(f)?;
                }
                if let Some(step) = &parts.step {
                    writeln!(f, "{pad}  step {step}")?;
                }
            }
            Stmt::Return(Some(value)) => writeln!(f, "{pad}return {value}")?,
            Stmt::Return(None) => writeln!(f, "{pad}return 0:long")?,
            Stmt::Break => writeln!(f, "{pad}break")?,
            Stmt::Continue => writeln!(f, "{pad}continue")?,
            Stmt::Clear { offset, size } => {
                writeln!(f, "{pad}clear [{offset}..{}]", offset + size)?;
            }
        }
    }
    Ok(())
}

struct Bits(u64, Scalar);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Scalar::Double => write!(f, "{:?}:double", f64::from_bits(self.0)),
            ty if ty.is_signed() => write!(f, "{}:{ty}", self.0 as i64),
            ty => write!(f, "{}:{ty}", self.0),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}", self.storage.name(), self.offset)?;
        for index in &self.indices {
            write!(f, " + ({} below {}) * {}", index.value, index.length, index.stride)?;
        }
        f.write_str("]")
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Constant(bits) => write!(f, "{}", Bits(*bits, self.ty)),
            Kind::Local(local) => write!(f, "%{local}"),
            Kind::Set(local, value) => write!(f, "(%{local} = {value})"),
            Kind::Load(place) => write!(f, "{place}"),
            Kind::Store(place, value) => write!(f, "({place} = {value})"),
            Kind::Modify { place, temporary, value, old } => {
                let which = if *old { "old" } else { "new" };
                write!(f, "({which} of {place} = let %{temporary} in {value})")
            }
            Kind::Negate(value) => write!(f, "-{value}"),
            Kind::Operate(operator, a, b) => {
                write!(f, "({a} {operator}.{} {b})", short(self.ty))
            }
            Kind::Compare(comparison, a, b) => {
                write!(f, "({a} {comparison}.{} {b})", short(a.ty))
            }
            Kind::Both(a, b) => write!(f, "({a} && {b})"),
            Kind::Either(a, b) => write!(f, "({a} || {b})"),
            Kind::Choose(condition, then, other) => write!(f, "({condition} ? {then} : {other})"),
            Kind::Convert(value) => write!(f, "({}){value}", self.ty),
            Kind::Narrow(storage, value) => write!(f, "({}){value}", Storage::name(*storage)),
            Kind::Call(function, values) => {
                write!(f, "call {function}(")?;
                for (index, value) in values.iter().enumerate() {
                    write!(f, "{}{value}", if index > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
            Kind::Then(first, second) => write!(f, "({first}, {second})"),
        }
    }
}

fn short(ty: Scalar) -> &'static str {
    match ty {
        Scalar::Int => "i32",
        Scalar::Unsigned => "u32",
        Scalar::Long => "i64",
        Scalar::UnsignedLong => "u64",
        Scalar::Double => "f64",
    }
}
