//! Expressions.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, Value, types};

use super::emit::{Emitter, checked, clif};
use super::{HOST_CALL, HOST_CONTEXT};
use crate::form::{Expr, Kind};
use crate::syntax::{Comparison, Operator};
use crate::types::{Scalar, Storage};

impl Emitter<'_> {
    pub(super) fn value(&mut self, expr: &Expr) -> Value {
        let ty = clif(expr.ty);
        match &expr.kind {
            Kind::Constant(bits) => match expr.ty {
                Scalar::Double => self.builder.ins().f64const(f64::from_bits(*bits)),
                Scalar::Int | Scalar::Unsigned => {
                    self.builder.ins().iconst(ty, i64::from(*bits as u32))
                }
                _ => self.builder.ins().iconst(ty, *bits as i64),
            },
            Kind::Local(local) => {
                let variable = self.locals[usize::from(*local)];
                self.builder.use_var(variable)
            }
            Kind::Set(local, value) => {
                let value = self.value(value);
                let variable = self.locals[usize::from(*local)];
                self.builder.def_var(variable, value);
                value
            }
            Kind::Load(place) => {
                let at = self.address(place);
                self.load(at, place.storage)
            }
            Kind::Store(place, value) => {
                let at = self.address(place);
                let value = self.value(value);
                self.store(at, place.storage, value);
                value
            }
            Kind::Modify { place, temporary, value, old } => {
                let at = self.address(place);
                let before = self.load(at, place.storage);
                let variable = self.locals[usize::from(*temporary)];
                self.builder.def_var(variable, before);
                let value = self.value(value);
                self.store(at, place.storage, value);
                if *old { before } else { value }
            }
            Kind::Negate(value) => {
                let value = self.value(value);
                self.builder.ins().fneg(value)
            }
            Kind::Operate(operator, a, b) => {
                let known = b.as_constant();
                let (a, b) = (self.value(a), self.value(b));
                match expr.ty {
                    Scalar::Double => self.doubles(*operator, a, b),
                    ty => self.integers(*operator, ty, a, b, known),
                }
            }
            Kind::Compare(comparison, a, b) => {
                let holds = self.compare(*comparison, a, b);
                self.builder.ins().uextend(types::I32, holds)
            }
            Kind::Both(..) | Kind::Either(..) => {
                let [yes, no, end] = [(); 3].map(|()| self.builder.create_block());
                self.builder.append_block_param(end, types::I32);
                self.branch(expr, yes, no);
                for (block, value) in [(yes, 1), (no, 0)] {
                    self.builder.switch_to_block(block);
                    let value = self.builder.ins().iconst(types::I32, value);
                    self.builder.ins().jump(end, &[value.into()]);
                }
                self.builder.switch_to_block(end);
                self.builder.block_params(end)[0]
            }
            Kind::Choose(condition, then, other) => {
                let [yes, no, end] = [(); 3].map(|()| self.builder.create_block());
                self.builder.append_block_param(end, ty);
                self.branch(condition, yes, no);
                for (block, value) in [(yes, then), (no, other)] {
                    self.builder.switch_to_block(block);
                    let value = self.value(value);
                    self.builder.ins().jump(end, &[value.into()]);
                }
                self.builder.switch_to_block(end);
                self.builder.block_params(end)[0]
            }
            Kind::Convert(inside) => {
                let value = self.value(inside);
                self.convert(value, inside.ty, expr.ty)
            }
            Kind::Narrow(storage, value) => {
                let value = self.value(value);
                let ins = self.builder.ins();
                match storage {
                    Storage::Char => ins.band_imm(value, 0xff),
                    Storage::UnsignedShort => ins.band_imm(value, 0xffff),
                    Storage::Short => {
                        let cut = ins.ireduce(types::I16, value);
                        self.builder.ins().sextend(types::I32, cut)
                    }
                    _ => value,
                }
            }
            Kind::Call(function, values) => self.call(*function, values, expr.ty),
            Kind::Then(first, second) => {
                self.value(first);
                self.value(second)
            }
        }
    }

    fn doubles(&mut self, operator: Operator, a: Value, b: Value) -> Value {
        let ins = self.builder.ins();
        match operator {
            Operator::Add => ins.fadd(a, b),
            Operator::Subtract => ins.fsub(a, b),
            Operator::Multiply => ins.fmul(a, b),
            Operator::Divide => ins.fdiv(a, b),
            _ => unreachable!("the checker wants integers"),
        }
    }

    fn integers(
        &mut self,
        operator: Operator,
        ty: Scalar,
        a: Value,
        b: Value,
        known: Option<u64>,
    ) -> Value {
        let signed = ty.is_signed();
        let ins = self.builder.ins();
        match operator {
            Operator::Add => ins.iadd(a, b),
            Operator::Subtract => ins.isub(a, b),
            Operator::Multiply => ins.imul(a, b),
            // A count is taken modulo the width, as the language defines.
            Operator::ShiftLeft => ins.ishl(a, b),
            Operator::ShiftRight if signed => ins.sshr(a, b),
            Operator::ShiftRight => ins.ushr(a, b),
            Operator::And => ins.band(a, b),
            Operator::Or => ins.bor(a, b),
            Operator::Xor => ins.bxor(a, b),
            Operator::Divide | Operator::Remainder => {
                let divide = operator == Operator::Divide;
                // As a number of 64 bits: 0 and -1 are the cases in which the machine traps.
                if known.is_some_and(|bits| bits != 0 && bits as i64 != -1) {
                    return self.divided(divide, signed, a, b);
                }
                self.guarded(divide, signed, a, b, clif(ty))
            }
        }
    }

    fn divided(&mut self, divide: bool, signed: bool, a: Value, b: Value) -> Value {
        let ins = self.builder.ins();
        match (divide, signed) {
            (true, true) => ins.sdiv(a, b),
            (true, false) => ins.udiv(a, b),
            (false, true) => ins.srem(a, b),
            (false, false) => ins.urem(a, b),
        }
    }

    /// Division by a number that may be 0 or -1: by 1 instead, and then the result that the language defines.
    fn guarded(
        &mut self,
        divide: bool,
        signed: bool,
        a: Value,
        b: Value,
        ty: cranelift_codegen::ir::Type,
    ) -> Value {
        let zero = self.builder.ins().icmp_imm(IntCC::Equal, b, 0);
        let one = self.builder.ins().iconst(ty, 1);
        let mut by = self.builder.ins().select(zero, one, b);
        let mut turned = None;
        if signed {
            let minus = self.builder.ins().icmp_imm(IntCC::Equal, b, -1);
            by = self.builder.ins().select(minus, one, by);
            turned = Some(minus);
        }
        let done = self.divided(divide, signed, a, by);
        if !divide {
            // x % 1 is 0, as x % -1 is.
            return self.builder.ins().select(zero, a, done);
        }
        let done = turned.map_or(done, |minus| {
            let negative = self.builder.ins().ineg(a);
            self.builder.ins().select(minus, negative, done)
        });
        let none = self.builder.ins().iconst(ty, 0);
        self.builder.ins().select(zero, none, done)
    }

    pub(super) fn compare(&mut self, comparison: Comparison, a: &Expr, b: &Expr) -> Value {
        let ty = a.ty;
        let (a, b) = (self.value(a), self.value(b));
        if ty == Scalar::Double {
            let code = match comparison {
                Comparison::Equal => FloatCC::Equal,
                Comparison::NotEqual => FloatCC::NotEqual,
                Comparison::Less => FloatCC::LessThan,
                Comparison::LessEqual => FloatCC::LessThanOrEqual,
                Comparison::Greater => FloatCC::GreaterThan,
                Comparison::GreaterEqual => FloatCC::GreaterThanOrEqual,
            };
            return self.builder.ins().fcmp(code, a, b);
        }
        let code = match (comparison, ty.is_signed()) {
            (Comparison::Equal, _) => IntCC::Equal,
            (Comparison::NotEqual, _) => IntCC::NotEqual,
            (Comparison::Less, true) => IntCC::SignedLessThan,
            (Comparison::LessEqual, true) => IntCC::SignedLessThanOrEqual,
            (Comparison::Greater, true) => IntCC::SignedGreaterThan,
            (Comparison::GreaterEqual, true) => IntCC::SignedGreaterThanOrEqual,
            (Comparison::Less, false) => IntCC::UnsignedLessThan,
            (Comparison::LessEqual, false) => IntCC::UnsignedLessThanOrEqual,
            (Comparison::Greater, false) => IntCC::UnsignedGreaterThan,
            (Comparison::GreaterEqual, false) => IntCC::UnsignedGreaterThanOrEqual,
        };
        self.builder.ins().icmp(code, a, b)
    }

    fn convert(&mut self, value: Value, from: Scalar, to: Scalar) -> Value {
        let ty = clif(to);
        if from == Scalar::Double {
            let ins = self.builder.ins();
            return match to {
                Scalar::Int | Scalar::Long => ins.fcvt_to_sint_sat(ty, value),
                Scalar::Unsigned | Scalar::UnsignedLong => ins.fcvt_to_uint_sat(ty, value),
                Scalar::Double => value,
            };
        }
        match to {
            Scalar::Double if from.is_signed() => {
                self.builder.ins().fcvt_from_sint(types::F64, value)
            }
            Scalar::Double => self.builder.ins().fcvt_from_uint(types::F64, value),
            Scalar::Long | Scalar::UnsignedLong => self.widen(value, from),
            _ if from.is_wide() => self.builder.ins().ireduce(types::I32, value),
            _ => value,
        }
    }

    fn call(&mut self, function: u16, values: &[Expr], ty: Scalar) -> Value {
        let pointer = self.isa.pointer_type();
        let mut all = Vec::with_capacity(4);
        for expr in values {
            let value = self.value(expr);
            all.push(match expr.ty {
                Scalar::Double => self.builder.ins().bitcast(types::I64, mem_flags(), value),
                ty => self.widen(value, ty),
            });
        }
        while all.len() < 4 {
            all.push(self.builder.ins().iconst(types::I64, 0));
        }
        let target = self.builder.ins().load(pointer, checked(), self.host, HOST_CALL);
        let context = self.builder.ins().load(pointer, checked(), self.host, HOST_CONTEXT);
        let number = self.builder.ins().iconst(types::I64, i64::from(function));
        let mut signature = Signature::new(self.isa.default_call_conv());
        signature.params.push(AbiParam::new(pointer));
        signature.params.extend([AbiParam::new(types::I64); 5]);
        signature.returns.push(AbiParam::new(types::I64));
        let signature = self.builder.import_signature(signature);
        let arguments = [&[context, number][..], &all].concat();
        let call = self.builder.ins().call_indirect(signature, target, &arguments);
        let result = self.builder.inst_results(call)[0];
        match ty {
            Scalar::Double => self.builder.ins().bitcast(types::F64, mem_flags(), result),
            Scalar::Int | Scalar::Unsigned => self.builder.ins().ireduce(types::I32, result),
            _ => result,
        }
    }
}

/// A cast of bits within registers accesses no memory.
fn mem_flags() -> cranelift_codegen::ir::MemFlags {
    cranelift_codegen::ir::MemFlags::new()
}
