//! Statements, memory, faults.

use cranelift_codegen::ir::{
    AbiParam, Block, Function, InstBuilder, MemFlags, Signature, Type, Value, condcodes::IntCC,
    types,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};

use crate::form::{Expr, Loop, Place, Program, Stmt};
use crate::memory::{BUDGET, FAULT, LEFT, OUT_OF_BOUNDS, OUT_OF_FUEL, RESULT};
use crate::types::{Scalar, Storage};

pub(super) struct Emitter<'f> {
    pub(super) builder: FunctionBuilder<'f>,
    pub(super) memory: Value,
    pub(super) host: Value,
    pub(super) locals: Vec<Variable>,
    pub(super) isa: &'f dyn TargetIsa,
    fuel: Option<Variable>,
    /// Receives the result.
    exit: Block,
    /// Receives the fault.
    fault: Block,
    /// Blocks that raise a fault, kept away from the main path.
    faults: Vec<(Block, u64)>,
    loops: Vec<(Block, Block)>,
}

pub(super) fn clif(ty: Scalar) -> Type {
    match ty {
        Scalar::Int | Scalar::Unsigned => types::I32,
        Scalar::Long | Scalar::UnsignedLong => types::I64,
        Scalar::Double => types::F64,
    }
}

/// The generated code checks addresses, so no access can fault.
pub(super) fn checked() -> MemFlags {
    MemFlags::new().with_notrap()
}

pub(super) fn function(
    program: &Program,
    isa: &dyn TargetIsa,
    into: &mut Function,
    context: &mut FunctionBuilderContext,
) {
    let pointer = isa.pointer_type();
    let mut signature = Signature::new(isa.default_call_conv());
    signature.params.extend([AbiParam::new(pointer); 2]);
    into.signature = signature;
    let mut builder = FunctionBuilder::new(into, context);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    let (memory, host) = (builder.block_params(entry)[0], builder.block_params(entry)[1]);
    let locals =
        program.locals.iter().map(|storage| builder.declare_var(clif(storage.scalar()))).collect();
    let fuel = program.has_loops.then(|| builder.declare_var(types::I64));
    let (exit, fault) = (builder.create_block(), builder.create_block());
    builder.append_block_param(exit, types::I64);
    builder.append_block_param(fault, types::I64);
    builder.set_cold_block(fault);
    let (faults, loops) = (Vec::new(), Vec::new());
    let mut emitter =
        Emitter { builder, memory, host, locals, isa, fuel, exit, fault, faults, loops };
    if let Some(fuel) = fuel {
        let budget = emitter.builder.ins().load(types::I64, checked(), memory, BUDGET as i32);
        emitter.builder.def_var(fuel, budget);
    }
    if !emitter.block(&program.body) {
        let zero = emitter.builder.ins().iconst(types::I64, 0);
        emitter.builder.ins().jump(exit, &[zero.into()]);
    }
    emitter.finish();
}

impl Emitter<'_> {
    fn finish(mut self) {
        for (block, fault) in std::mem::take(&mut self.faults) {
            self.builder.switch_to_block(block);
            let fault = self.builder.ins().iconst(types::I64, fault as i64);
            self.builder.ins().jump(self.fault, &[fault.into()]);
        }
        self.builder.switch_to_block(self.fault);
        let fault = self.builder.block_params(self.fault)[0];
        self.emit_exit(fault);
        self.builder.switch_to_block(self.exit);
        let result = self.builder.block_params(self.exit)[0];
        self.builder.ins().store(checked(), result, self.memory, RESULT as i32);
        let none = self.builder.ins().iconst(types::I64, 0);
        self.emit_exit(none);
        self.builder.seal_all_blocks();
        self.builder.finalize();
    }

    fn emit_exit(&mut self, fault: Value) {
        self.builder.ins().store(checked(), fault, self.memory, FAULT as i32);
        if let Some(fuel) = self.fuel {
            let left = self.builder.use_var(fuel);
            self.builder.ins().store(checked(), left, self.memory, LEFT as i32);
        }
        self.builder.ins().return_(&[]);
    }

    fn fault_block(&mut self, kind: u32, at: u32) -> Block {
        let block = self.builder.create_block();
        self.builder.set_cold_block(block);
        self.faults.push((block, u64::from(at) << 32 | u64::from(kind)));
        block
    }

    /// True if the following statements can't be reached.
    fn block(&mut self, statements: &[Stmt]) -> bool {
        statements.iter().any(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt) -> bool {
        match statement {
            Stmt::Eval(value) => {
                self.value(value);
            }
            Stmt::If(condition, then, other) => {
                let [yes, no, end] = [(); 3].map(|()| self.builder.create_block());
                self.branch(condition, yes, no);
                for (block, statements) in [(yes, then), (no, other)] {
                    self.builder.switch_to_block(block);
                    if !self.block(statements) {
                        self.builder.ins().jump(end, &[]);
                    }
                }
                self.builder.switch_to_block(end);
            }
            Stmt::Loop(parts) => self.emit_loop_body(parts),
            Stmt::Return(value) => {
                let value = match value {
                    Some(value) => self.value(value),
                    None => self.builder.ins().iconst(types::I64, 0),
                };
                self.builder.ins().jump(self.exit, &[value.into()]);
                return true;
            }
            Stmt::Break => {
                let end = self.loops.last().expect("checked").0;
                self.builder.ins().jump(end, &[]);
                return true;
            }
            Stmt::Continue => {
                let next = self.loops.last().expect("checked").1;
                self.builder.ins().jump(next, &[]);
                return true;
            }
            Stmt::Clear { offset, size } => {
                let zero = self.builder.ins().iconst(types::I64, 0);
                for at in (*offset..offset + size).step_by(8) {
                    self.builder.ins().store(checked(), zero, self.memory, at as i32);
                }
            }
        }
        false
    }

    fn emit_loop_body(&mut self, parts: &Loop) {
        let [head, go, body, next, end] = [(); 5].map(|()| self.builder.create_block());
        let fuel = self.fuel.expect("a program with loops has fuel");
        let starved = self.fault_block(OUT_OF_FUEL, parts.at);
        self.builder.ins().jump(head, &[]);
        self.builder.switch_to_block(head);
        let left = self.builder.use_var(fuel);
        let cost = i64::from(parts.cost);
        let enough = self.builder.ins().icmp_imm(IntCC::UnsignedGreaterThanOrEqual, left, cost);
        self.builder.ins().brif(enough, go, &[], starved, &[]);
        self.builder.switch_to_block(go);
        let less = self.builder.ins().iadd_imm(left, -cost);
        self.builder.def_var(fuel, less);
        match &parts.condition {
            Some(condition) if parts.test_first => self.branch(condition, body, end),
            _ => {
                self.builder.ins().jump(body, &[]);
            }
        }
        self.builder.switch_to_block(body);
        self.loops.push((end, next));
        if !self.block(&parts.body) {
            self.builder.ins().jump(next, &[]);
        }
        self.loops.pop();
        self.builder.switch_to_block(next);
        if let (false, Some(condition)) = (parts.test_first, &parts.condition) {
            let again = self.builder.create_block();
            self.branch(condition, again, end);
            self.builder.switch_to_block(again);
        }
        if let Some(step) = &parts.step {
            self.value(step);
        }
        self.builder.ins().jump(head, &[]);
        self.builder.switch_to_block(end);
    }

    /// A base and an offset; ends the handler where an index is out of bounds.
    pub(super) fn address(&mut self, place: &Place) -> (Value, i32) {
        let mut base = self.memory;
        for index in &place.indices {
            let value = self.value(&index.value);
            let value = self.widen(value, index.value.ty);
            let outside = self.fault_block(OUT_OF_BOUNDS, index.at);
            let inside = self.builder.create_block();
            let length = i64::from(index.length);
            let below = self.builder.ins().icmp_imm(IntCC::UnsignedLessThan, value, length);
            self.builder.ins().brif(below, inside, &[], outside, &[]);
            self.builder.switch_to_block(inside);
            let bytes = self.builder.ins().imul_imm(value, i64::from(index.stride));
            base = self.builder.ins().iadd(base, bytes);
        }
        (base, place.offset as i32)
    }

    /// An integer as 64 bits, as in the typed form.
    pub(super) fn widen(&mut self, value: Value, ty: Scalar) -> Value {
        match ty {
            Scalar::Int => self.builder.ins().sextend(types::I64, value),
            Scalar::Unsigned => self.builder.ins().uextend(types::I64, value),
            _ => value,
        }
    }

    pub(super) fn load(&mut self, (base, offset): (Value, i32), storage: Storage) -> Value {
        let flags = checked();
        let ins = self.builder.ins();
        match storage {
            Storage::Char => ins.uload8(types::I32, flags, base, offset),
            Storage::Short => ins.sload16(types::I32, flags, base, offset),
            Storage::UnsignedShort => ins.uload16(types::I32, flags, base, offset),
            _ => ins.load(clif(storage.scalar()), flags, base, offset),
        }
    }

    pub(super) fn store(&mut self, (base, offset): (Value, i32), storage: Storage, value: Value) {
        let flags = checked();
        let ins = self.builder.ins();
        match storage {
            Storage::Char => ins.istore8(flags, value, base, offset),
            Storage::Short | Storage::UnsignedShort => ins.istore16(flags, value, base, offset),
            _ => ins.store(flags, value, base, offset),
        };
    }

    /// Jumps to one of two blocks.
    pub(super) fn branch(&mut self, condition: &Expr, yes: Block, no: Block) {
        use crate::form::Kind;
        match &condition.kind {
            Kind::Both(a, b) => {
                let second = self.builder.create_block();
                self.branch(a, second, no);
                self.builder.switch_to_block(second);
                self.branch(b, yes, no);
            }
            Kind::Either(a, b) => {
                let second = self.builder.create_block();
                self.branch(a, yes, second);
                self.builder.switch_to_block(second);
                self.branch(b, yes, no);
            }
            Kind::Compare(comparison, a, b) => {
                let holds = self.compare(*comparison, a, b);
                self.builder.ins().brif(holds, yes, &[], no, &[]);
            }
            _ => {
                let value = self.value(condition);
                self.builder.ins().brif(value, yes, &[], no, &[]);
            }
        }
    }
}
