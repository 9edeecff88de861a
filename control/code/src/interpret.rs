//! The evaluator: it walks the typed form. It defines the language, against which the back ends are tested,
//! and runs where they can't. Nothing is allocated for programs of up to 32 variables.

use crate::arithmetic;
use crate::form::{Expr, Kind, Loop, Place, Program, Stmt};
use crate::memory::{self, BUDGET, FAULT, Fault, LEFT, Memory, RESULT, load, store};
use crate::types::{Scalar, Storage};

/// The functions of a host that a handler can call.
pub trait Host {
    /// `function` is the number in [`Program::functions`]; values are in the typed form, and those beyond the
    /// function's parameters are 0.
    fn call(&mut self, function: usize, values: [u64; 4]) -> u64;
}

/// A host whose functions all return 0.
#[derive(Clone, Copy, Debug)]
pub struct NoHost;

impl Host for NoHost {
    fn call(&mut self, _: usize, _: [u64; 4]) -> u64 {
        0
    }
}

/// Calls a handler once.
///
/// # Errors
/// The fault that ended it. Earlier writes stay.
///
/// # Panics
/// If the memory was made for another program.
pub fn call(program: &Program, memory: &mut Memory, host: &mut dyn Host) -> Result<i64, Fault> {
    assert_eq!(memory.bytes().len(), program.memory_size(), "the memory is another program's");
    let budget = memory::word(memory.bytes(), BUDGET);
    let (mut few, mut many);
    let locals: &mut [u64] = if program.locals.len() <= 32 {
        few = [0; 32];
        &mut few[..]
    } else {
        many = vec![0; program.locals.len()];
        &mut many
    };
    let bytes = memory.bytes_mut();
    let mut walker = Interpreter { bytes, locals, host, fuel: budget, budget };
    let ended = walker.block(&program.body);
    let fuel = walker.fuel;
    let bytes = memory.bytes_mut();
    let mut set = |at: u32, value| {
        store(bytes, at as usize, Storage::UnsignedLong, value).expect("a header");
    };
    if program.has_loops {
        set(LEFT, fuel);
    }
    match ended {
        Err(Exit::Fault(fault)) => {
            let code = match fault {
                Fault::OutOfFuel { .. } => memory::OUT_OF_FUEL,
                Fault::OutOfBounds { .. } => memory::OUT_OF_BOUNDS,
            };
            set(FAULT, u64::from(fault.at()) << 32 | u64::from(code));
            Err(fault)
        }
        Err(Exit::Return(value)) => {
            set(FAULT, 0);
            set(RESULT, value);
            Ok(value as i64)
        }
        Ok(_) => {
            set(FAULT, 0);
            set(RESULT, 0);
            Ok(0)
        }
    }
}

/// Why execution does not continue with the next statement.
enum Exit {
    Return(u64),
    Fault(Fault),
}

/// How a block ended.
#[derive(PartialEq)]
enum End {
    Below,
    Break,
    Continue,
}

struct Interpreter<'m> {
    bytes: &'m mut [u8],
    locals: &'m mut [u64],
    host: &'m mut dyn Host,
    fuel: u64,
    budget: u64,
}

impl Interpreter<'_> {
    fn block(&mut self, statements: &[Stmt]) -> Result<End, Exit> {
        for statement in statements {
            match statement {
                Stmt::Eval(value) => {
                    self.value(value)?;
                }
                Stmt::If(condition, then, other) => {
                    let chosen = if self.value(condition)? != 0 { then } else { other };
                    let end = self.block(chosen)?;
                    if end != End::Below {
                        return Ok(end);
                    }
                }
                Stmt::Loop(parts) => self.run_loop_body(parts)?,
                Stmt::Return(value) => {
                    let value = value.as_ref().map_or(Ok(0), |value| self.value(value))?;
                    return Err(Exit::Return(value));
                }
                Stmt::Break => return Ok(End::Break),
                Stmt::Continue => return Ok(End::Continue),
                Stmt::Clear { offset, size } => {
                    let start = *offset as usize;
                    self.bytes[start..start + *size as usize].fill(0);
                }
            }
        }
        Ok(End::Below)
    }

    fn run_loop_body(&mut self, parts: &Loop) -> Result<(), Exit> {
        loop {
            let cost = u64::from(parts.cost);
            if self.fuel < cost {
                let fault = Fault::OutOfFuel { at: parts.at, budget: self.budget };
                return Err(Exit::Fault(fault));
            }
            self.fuel -= cost;
            if parts.test_first && !self.holds(parts.condition.as_ref())? {
                return Ok(());
            }
            if self.block(&parts.body)? == End::Break {
                return Ok(());
            }
            if !parts.test_first && !self.holds(parts.condition.as_ref())? {
                return Ok(());
            }
            if let Some(step) = &parts.step {
                self.value(step)?;
            }
        }
    }

    fn holds(&mut self, condition: Option<&Expr>) -> Result<bool, Exit> {
        condition.map_or(Ok(true), |condition| Ok(self.value(condition)? != 0))
    }

    fn address(&mut self, place: &Place) -> Result<usize, Exit> {
        let mut at = place.offset as usize;
        for index in &place.indices {
            let value = self.value(&index.value)?;
            if value >= u64::from(index.length) {
                return Err(Exit::Fault(Fault::OutOfBounds { at: index.at }));
            }
            at += value as usize * index.stride as usize;
        }
        Ok(at)
    }

    fn load(&self, at: usize, storage: Storage) -> u64 {
        load(self.bytes, at, storage).expect("the checker made the room")
    }

    fn store(&mut self, at: usize, storage: Storage, value: u64) {
        store(self.bytes, at, storage, value).expect("the checker made the room");
    }

    fn value(&mut self, expr: &Expr) -> Result<u64, Exit> {
        Ok(match &expr.kind {
            Kind::Constant(bits) => *bits,
            Kind::Local(local) => self.locals[usize::from(*local)],
            Kind::Set(local, value) => {
                let value = self.value(value)?;
                self.locals[usize::from(*local)] = value;
                value
            }
            Kind::Load(place) => {
                let at = self.address(place)?;
                self.load(at, place.storage)
            }
            Kind::Store(place, value) => {
                let at = self.address(place)?;
                let value = self.value(value)?;
                self.store(at, place.storage, value);
                value
            }
            Kind::Modify { place, temporary, value, old } => {
                let at = self.address(place)?;
                let before = self.load(at, place.storage);
                self.locals[usize::from(*temporary)] = before;
                let value = self.value(value)?;
                self.store(at, place.storage, value);
                if *old { before } else { value }
            }
            Kind::Negate(value) => arithmetic::negate(self.value(value)?),
            Kind::Operate(operator, a, b) => {
                let ty = a.ty;
                let a = self.value(a)?;
                let b = self.value(b)?;
                arithmetic::operate(*operator, ty, a, b)
            }
            Kind::Compare(comparison, a, b) => {
                let ty = a.ty;
                let a = self.value(a)?;
                let b = self.value(b)?;
                u64::from(arithmetic::compare(*comparison, ty, a, b))
            }
            Kind::Both(a, b) => u64::from(self.value(a)? != 0 && self.value(b)? != 0),
            Kind::Either(a, b) => u64::from(self.value(a)? != 0 || self.value(b)? != 0),
            Kind::Choose(condition, then, other) => {
                let chosen = if self.value(condition)? != 0 { then } else { other };
                self.value(chosen)?
            }
            Kind::Convert(value) => {
                let from = value.ty;
                arithmetic::convert(from, expr.ty, self.value(value)?)
            }
            Kind::Narrow(storage, value) => arithmetic::narrow(*storage, self.value(value)?),
            Kind::Call(function, values) => {
                let mut all = [0; 4];
                for (slot, value) in all.iter_mut().zip(values) {
                    *slot = self.value(value)?;
                }
                let result = self.host.call(usize::from(*function), all);
                // The host's result is interpreted according to its type; a double is its bits.
                match expr.ty {
                    Scalar::Double => result,
                    ty => arithmetic::convert(Scalar::UnsignedLong, ty, result),
                }
            }
            Kind::Then(first, second) => {
                self.value(first)?;
                self.value(second)?
            }
        })
    }
}
