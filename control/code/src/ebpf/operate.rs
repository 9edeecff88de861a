//! Expressions: a value of the typed form is a whole register, extended according to its type. So comparisons
//! and widening cost nothing, and 32-bit results of `int` are extended again.

use super::KernelError;
use super::assemble::Label;
use super::emit::{BASE, DEEPEST, Emitter, Location, SCRATCH, register};
use super::instruction::{
    ADD, ALU32, ALU64, AND, ARSH, BYTE, CALL, DIV, DOUBLE, HALF, JEQ, JGE, JGT, JLE, JLT, JMP, JNE,
    JSGE, JSGT, JSLE, JSLT, LDDW, LDX, LSH, MEM, MEMSX, MOD, MOV, MUL, OR, RSH, Register, ST, STX,
    SUB, WORD, X, XOR,
};
use crate::environment::InKernel;
use crate::form::{Expr, Kind, Place};
use crate::syntax::{Comparison, Operator};
use crate::types::{Scalar, Storage};

/// A constant as an instruction's number, which is extended by its sign.
fn small(bits: u64) -> Option<i32> {
    i32::try_from(bits as i64).ok()
}

/// Whether evaluating it changes nothing.
fn is_pure(expr: &Expr) -> bool {
    match expr.kind {
        Kind::Set(..) | Kind::Store(..) | Kind::Modify { .. } | Kind::Call(..) => false,
        _ => {
            let mut pure = true;
            expr.each(&mut |inner| pure &= is_pure(inner));
            pure
        }
    }
}

impl Emitter<'_> {
    /// Evaluates an expression for its effect.
    pub(super) fn effect(&mut self, expr: &Expr) -> Result<(), KernelError> {
        match &expr.kind {
            Kind::Store(place, value) => self.store(place, value, 0, false),
            Kind::Set(local, value) => {
                if let (Location::Register(home), Kind::Operate(operator, a, b)) =
                    (self.home(*local), &value.kind)
                {
                    let same = matches!(a.kind, Kind::Local(one) if one == *local);
                    if same && is_pure(b) {
                        // In its own register, since nothing changes before the old value is read.
                        return self.apply(*operator, value.ty, home, b, 0);
                    }
                }
                self.value(value, 0)?;
                self.set(*local, register(0));
                Ok(())
            }
            Kind::Then(first, second) => {
                self.effect(first)?;
                self.effect(second)
            }
            _ => self.value(expr, 0),
        }
    }

    /// Evaluates into the register of a depth; those of lower depths stay unchanged.
    pub(super) fn value(&mut self, expr: &Expr, depth: usize) -> Result<(), KernelError> {
        let to = register(depth);
        match &expr.kind {
            Kind::Constant(bits) => self.constant(to, *bits),
            Kind::Local(local) => self.get(to, *local),
            Kind::Set(local, value) => {
                self.value(value, depth)?;
                self.set(*local, to);
            }
            Kind::Load(place) => {
                let (base, offset) = self.address(place, depth)?;
                self.load(to, base, offset, place.storage);
            }
            Kind::Store(place, value) => self.store(place, value, depth, true)?,
            Kind::Modify { place, temporary, value, old } => {
                let (base, offset) = self.address(place, depth)?;
                self.load(SCRATCH, base, offset, place.storage);
                self.set(*temporary, SCRATCH);
                let from = if base == BASE {
                    self.value(value, depth)?;
                    to
                } else {
                    self.beside(value, depth)?
                };
                self.store_truncated(base, offset, place.storage, from);
                if *old {
                    self.get(to, *temporary);
                } else {
                    self.copy(to, from);
                }
            }
            Kind::Operate(operator, a, b) => {
                self.value(a, depth)?;
                self.apply(*operator, expr.ty, to, b, depth)?;
            }
            Kind::Compare(..) | Kind::Both(..) | Kind::Either(..) => {
                let (no, end) = (self.assembler.label(), self.assembler.label());
                self.branch(expr, depth, no, false)?;
                self.immediate(MOV | ALU64, to, 1);
                self.go(end);
                self.assembler.place(no);
                self.immediate(MOV | ALU64, to, 0);
                self.assembler.place(end);
            }
            Kind::Choose(condition, then, other) => {
                let (no, end) = (self.assembler.label(), self.assembler.label());
                self.branch(condition, depth, no, false)?;
                self.value(then, depth)?;
                self.go(end);
                self.assembler.place(no);
                self.value(other, depth)?;
                self.assembler.place(end);
            }
            Kind::Convert(value) => {
                self.value(value, depth)?;
                self.extend(to, expr.ty);
            }
            Kind::Narrow(storage, value) => {
                self.value(value, depth)?;
                match storage {
                    Storage::Char => self.immediate(AND | ALU64, to, 0xff),
                    Storage::UnsignedShort => self.immediate(AND | ALU64, to, 0xffff),
                    Storage::Short => self.push(MOV | ALU64 | X, to, to, 16, 0),
                    _ => {}
                }
            }
            Kind::Call(function, values) => {
                self.call(usize::from(*function), values, expr.ty, depth)?
            }
            Kind::Then(first, second) => {
                // The first value is not used.
                self.value(first, depth)?;
                self.value(second, depth)?;
            }
            Kind::Negate(_) => unreachable!("doubles are refused before"),
        }
        Ok(())
    }

    /// Truncates a register to its type.
    fn extend(&mut self, to: Register, ty: Scalar) {
        match ty {
            Scalar::Int => self.push(MOV | ALU64 | X, to, to, 32, 0),
            Scalar::Unsigned => self.registers(MOV | ALU32, to, to),
            _ => {}
        }
    }

    fn constant(&mut self, to: Register, bits: u64) {
        match small(bits) {
            Some(number) => self.immediate(MOV | ALU64, to, number),
            None => {
                self.push(LDDW, to, 0, 0, bits as u32 as i32);
                self.push(0, 0, 0, 0, (bits >> 32) as u32 as i32);
            }
        }
    }

    /// Evaluates while the register of `depth` is kept; the result's register is used at once.
    fn beside(&mut self, expr: &Expr, depth: usize) -> Result<Register, KernelError> {
        if let Kind::Local(local) = expr.kind
            && let Location::Register(home) = self.home(local)
        {
            return Ok(home);
        }
        if depth < DEEPEST {
            self.value(expr, depth + 1)?;
            return Ok(register(depth + 1));
        }
        let slot = self.spill(register(depth));
        self.value(expr, depth)?;
        self.copy(SCRATCH, register(depth));
        self.unspill(register(depth), slot);
        Ok(SCRATCH)
    }

    /// A base register and an offset.
    fn address(&mut self, place: &Place, depth: usize) -> Result<(Register, i16), KernelError> {
        let offset = self.memory_offset(place.offset);
        let to = register(depth);
        for (number, index) in place.indices.iter().enumerate() {
            let at = if number == 0 {
                self.value(&index.value, depth)?;
                to
            } else {
                let at = self.beside(&index.value, depth)?;
                // A variable's own register must not be multiplied.
                self.copy(SCRATCH, at);
                SCRATCH
            };
            self.guard(at, index.length, index.at);
            if index.stride.is_power_of_two() {
                self.immediate(LSH | ALU64, at, index.stride.trailing_zeros() as i32);
            } else {
                self.immediate(MUL | ALU64, at, index.stride as i32);
            }
            if number > 0 {
                self.registers(ADD | ALU64, to, at);
            }
        }
        if place.indices.is_empty() {
            return Ok((BASE, offset));
        }
        self.registers(ADD | ALU64, to, BASE);
        Ok((to, offset))
    }

    fn load(&mut self, to: Register, base: Register, offset: i16, storage: Storage) {
        let code = match storage {
            Storage::Char => LDX | MEM | BYTE,
            Storage::Short => LDX | MEMSX | HALF,
            Storage::UnsignedShort => LDX | MEM | HALF,
            Storage::Int => LDX | MEMSX | WORD,
            Storage::Unsigned => LDX | MEM | WORD,
            Storage::Long | Storage::UnsignedLong | Storage::Double => LDX | MEM | DOUBLE,
        };
        self.push(code, to, base, offset, 0);
    }

    fn store_truncated(&mut self, base: Register, offset: i16, storage: Storage, from: Register) {
        self.push(STX | MEM | size(storage), base, from, offset, 0);
    }

    fn store(
        &mut self,
        place: &Place,
        value: &Expr,
        depth: usize,
        used: bool,
    ) -> Result<(), KernelError> {
        let (base, offset) = self.address(place, depth)?;
        let to = register(depth);
        if let (false, Some(number)) = (used, value.as_constant().and_then(small)) {
            self.push(ST | MEM | size(place.storage), base, 0, offset, number);
            return Ok(());
        }
        let from = if base == BASE {
            self.value(value, depth)?;
            to
        } else {
            self.beside(value, depth)?
        };
        self.store_truncated(base, offset, place.storage, from);
        self.copy(to, from);
        Ok(())
    }

    /// `to = to OPERATOR b`.
    fn apply(
        &mut self,
        operator: Operator,
        ty: Scalar,
        to: Register,
        b: &Expr,
        depth: usize,
    ) -> Result<(), KernelError> {
        let (code, variant) = match operator {
            Operator::Add => (ADD, 0),
            Operator::Subtract => (SUB, 0),
            Operator::Multiply => (MUL, 0),
            Operator::Divide => (DIV, i16::from(ty.is_signed())),
            Operator::Remainder => (MOD, i16::from(ty.is_signed())),
            Operator::ShiftLeft => (LSH, 0),
            Operator::ShiftRight if ty.is_signed() => (ARSH, 0),
            Operator::ShiftRight => (RSH, 0),
            Operator::And => (AND, 0),
            Operator::Or => (OR, 0),
            Operator::Xor => (XOR, 0),
        };
        // Both are extended already, so these three need no 32-bit form.
        let bitwise = matches!(operator, Operator::And | Operator::Or | Operator::Xor);
        let class = if ty.is_wide() || bitwise { ALU64 } else { ALU32 };
        let shift = matches!(operator, Operator::ShiftLeft | Operator::ShiftRight);
        let number = b.as_constant().and_then(small).and_then(|number| match operator {
            // The verifier refuses these constants, and -1 is a special case.
            Operator::Divide | Operator::Remainder if (-1..=0).contains(&number) => None,
            _ if shift => Some(number & if ty.is_wide() { 63 } else { 31 }),
            _ => Some(number),
        });
        match number {
            Some(number) => self.push(code | class, to, 0, variant, number),
            None => {
                // In a variable's own register the depth's register is free.
                let from = if to == register(depth) {
                    self.beside(b, depth)?
                } else {
                    self.value(b, depth)?;
                    register(depth)
                };
                self.push(code | class | X, to, from, variant, 0);
            }
        }
        if ty == Scalar::Int && !bitwise {
            self.extend(to, ty);
        }
        Ok(())
    }

    /// Jumps to `target` if the value is not zero, or if it is.
    pub(super) fn branch(
        &mut self,
        expr: &Expr,
        depth: usize,
        target: Label,
        when: bool,
    ) -> Result<(), KernelError> {
        match &expr.kind {
            Kind::Constant(bits) => {
                if (*bits != 0) == when {
                    self.go(target);
                }
            }
            Kind::Compare(comparison, a, b) => {
                let code = code_of(if when { *comparison } else { opposite(*comparison) }, a.ty);
                let number = b.as_constant().and_then(small);
                let left = if let (Kind::Local(local), Some(_)) = (&a.kind, number)
                    && let Location::Register(home) = self.home(*local)
                {
                    home
                } else {
                    self.value(a, depth)?;
                    register(depth)
                };
                match number {
                    Some(number) => self.jump(code | JMP, left, 0, number, target),
                    None => {
                        let right = self.beside(b, depth)?;
                        self.jump(code | JMP | X, left, right, 0, target);
                    }
                }
            }
            Kind::Both(a, b) | Kind::Either(a, b) => {
                let both = matches!(expr.kind, Kind::Both(..));
                if both == when {
                    let skip = self.assembler.label();
                    self.branch(a, depth, skip, !when)?;
                    self.branch(b, depth, target, when)?;
                    self.assembler.place(skip);
                } else {
                    self.branch(a, depth, target, when)?;
                    self.branch(b, depth, target, when)?;
                }
            }
            _ => {
                self.value(expr, depth)?;
                let code = if when { JNE } else { JEQ };
                self.jump(code | JMP, register(depth), 0, 0, target);
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        function: usize,
        values: &[Expr],
        ty: Scalar,
        depth: usize,
    ) -> Result<(), KernelError> {
        let function = &self.program.functions[function];
        let InKernel::Helper(number) = function.in_kernel else {
            return Err(KernelError::Host(function.name.clone()));
        };
        // A call leaves r1 to r5 undefined.
        let slots: Vec<i16> = (0..depth).map(|one| self.spill(register(one))).collect();
        for (one, value) in values.iter().enumerate() {
            self.value(value, one)?;
        }
        self.push(JMP | CALL, 0, 0, 0, number);
        self.copy(register(depth), SCRATCH);
        self.extend(register(depth), ty);
        for (one, slot) in slots.into_iter().enumerate().rev() {
            self.unspill(register(one), slot);
        }
        Ok(())
    }
}

fn size(storage: Storage) -> u8 {
    match storage.size() {
        1 => BYTE,
        2 => HALF,
        4 => WORD,
        _ => DOUBLE,
    }
}

fn opposite(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Equal => Comparison::NotEqual,
        Comparison::NotEqual => Comparison::Equal,
        Comparison::Less => Comparison::GreaterEqual,
        Comparison::LessEqual => Comparison::Greater,
        Comparison::Greater => Comparison::LessEqual,
        Comparison::GreaterEqual => Comparison::Less,
    }
}

fn code_of(comparison: Comparison, ty: Scalar) -> u8 {
    match (comparison, ty.is_signed()) {
        (Comparison::Equal, _) => JEQ,
        (Comparison::NotEqual, _) => JNE,
        (Comparison::Less, true) => JSLT,
        (Comparison::LessEqual, true) => JSLE,
        (Comparison::Greater, true) => JSGT,
        (Comparison::GreaterEqual, true) => JSGE,
        (Comparison::Less, false) => JLT,
        (Comparison::LessEqual, false) => JLE,
        (Comparison::Greater, false) => JGT,
        (Comparison::GreaterEqual, false) => JGE,
    }
}
