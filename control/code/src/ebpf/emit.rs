//! Statements, variables and memory.
//!
//! Intermediate values are in r1 to r5, by depth; r0 is for values that are used at once; the sixth and
//! deeper ones go to the stack.

use super::assemble::{Assembler, Label};
use super::instruction::{
    ADD, ALU64, DOUBLE, EXIT, Instruction, JA, JCOND, JGE, JLT, JMP, LDDW, LDX, MEM, MOV, Register,
    ST, STX, WORD, X,
};
use super::{Bytecode, KernelError};
use crate::form::{Expr, Kind, Loop, Program, Stmt};
use crate::memory::{BUDGET, FAULT, FAULT_AT, LEFT, OUT_OF_BOUNDS, OUT_OF_FUEL, RESULT, ZERO};

/// The register for the memory's address.
pub(super) const BASE: Register = 9;
const FRAME: Register = 10;
const FUEL: Register = 8;
/// The register for values that are used at once.
pub(super) const SCRATCH: Register = 0;
/// The deepest intermediate value that has a register.
pub(super) const DEEPEST: usize = 4;
const STACK_MAX: u32 = 480;
/// Below this, all of memory is within a jump's reach of its start.
const NEAR: u32 = 32_760;
const FAR: u32 = 65_528;

#[derive(Clone, Copy, Debug)]
pub(super) enum Location {
    Register(Register),
    /// A place in memory, from its start.
    Memory(u32),
}

pub(super) struct Emitter<'p> {
    pub(super) assembler: Assembler,
    pub(super) program: &'p Program,
    homes: Vec<Location>,
    /// The constant that is added to addresses, so that all of memory can be reached from one register.
    bias: u32,
    memory_size: u32,
    pub(super) slots: u32,
    slots_max: u32,
    /// Where a fault is raised: its kind and its place in the source.
    faults: Vec<(Label, u32, u32)>,
    /// The targets of break and continue.
    loops: Vec<(Label, Label)>,
    exit: Label,
}

pub(super) fn register(depth: usize) -> Register {
    depth as Register + 1
}

impl<'p> Emitter<'p> {
    pub(super) fn new(program: &'p Program) -> Result<Self, KernelError> {
        let mut uses = vec![0_u64; program.locals.len()];
        walk(&program.body, 1, &mut |expr: &Expr, times| {
            if let Kind::Local(local)
            | Kind::Set(local, _)
            | Kind::Modify { temporary: local, .. } = expr.kind
            {
                let uses = &mut uses[usize::from(local)];
                *uses = uses.saturating_add(times);
            }
        });
        let mut order: Vec<usize> = (0..uses.len()).collect();
        order.sort_by_key(|local| std::cmp::Reverse(uses[*local]));
        let registers: &[Register] = if program.has_loops { &[6, 7] } else { &[6, 7, 8] };
        let mut memory_size = program.memory_size;
        let mut homes = vec![Location::Memory(0); uses.len()];
        for (rank, local) in order.into_iter().enumerate() {
            homes[local] = match registers.get(rank) {
                Some(register) => Location::Register(*register),
                None => {
                    memory_size += 8;
                    Location::Memory(memory_size - 8)
                }
            };
        }
        if memory_size > FAR {
            return Err(KernelError::Memory(memory_size));
        }
        let mut assembler = Assembler::default();
        let exit = assembler.label();
        Ok(Self {
            assembler,
            program,
            homes,
            bias: if memory_size > NEAR { 32_768 } else { 0 },
            memory_size,
            slots: 0,
            slots_max: 0,
            faults: Vec::new(),
            loops: Vec::new(),
            exit,
        })
    }

    pub(super) fn program(mut self, program: &Program) -> Result<Bytecode, KernelError> {
        // BPF_PSEUDO_MAP_VALUE: the address of a map's only value, plus an offset.
        self.push(LDDW, BASE, 2, 0, 0);
        self.push(0, 0, 0, 0, self.bias as i32);
        if program.has_loops {
            self.load_word(FUEL, BUDGET);
            // A loop may be entered before a variable of its own is declared.
            for home in self.homes.clone() {
                if let Location::Register(home) = home {
                    self.immediate(MOV | ALU64, home, 0);
                }
            }
        }
        self.block(&program.body)?;
        self.immediate(MOV | ALU64, SCRATCH, 0);
        let exit = self.exit;
        self.assembler.place(exit);
        self.push(STX | MEM | DOUBLE, BASE, SCRATCH, self.memory_offset(RESULT), 0);
        self.push(ST | MEM | DOUBLE, BASE, 0, self.memory_offset(FAULT), 0);
        self.emit_exit();
        self.raise();
        let stack = self.slots_max * 8;
        if stack > STACK_MAX {
            return Err(KernelError::Stack(stack));
        }
        let instructions = self.assembler.finish()?;
        Ok(Bytecode { instructions, memory_size: self.memory_size })
    }

    /// Stores the rest of the fuel, and ends.
    fn emit_exit(&mut self) {
        if self.program.has_loops {
            self.push(STX | MEM | DOUBLE, BASE, FUEL, self.memory_offset(LEFT), 0);
        }
        self.push(JMP | EXIT, 0, 0, 0, 0);
    }

    /// The ends to which faults jump.
    fn raise(&mut self) {
        for kind in [OUT_OF_FUEL, OUT_OF_BOUNDS] {
            let of_kind: Vec<_> =
                self.faults.iter().copied().filter(|(_, one, _)| *one == kind).collect();
            if of_kind.is_empty() {
                continue;
            }
            let end = self.assembler.label();
            for (label, _, at) in of_kind {
                self.assembler.place(label);
                self.push(ST | MEM | WORD, BASE, 0, self.memory_offset(FAULT_AT), at as i32);
                self.go(end);
            }
            self.assembler.place(end);
            self.push(ST | MEM | WORD, BASE, 0, self.memory_offset(FAULT), kind as i32);
            self.immediate(MOV | ALU64, SCRATCH, 0);
            self.emit_exit();
        }
    }

    pub(super) fn push(
        &mut self,
        code: u8,
        to: Register,
        from: Register,
        offset: i16,
        number: i32,
    ) {
        let instruction =
            Instruction { code, destination: to, source: from, offset, immediate: number };
        self.assembler.push(instruction);
    }

    pub(super) fn immediate(&mut self, code: u8, to: Register, number: i32) {
        self.push(code, to, 0, 0, number);
    }

    pub(super) fn registers(&mut self, code: u8, to: Register, from: Register) {
        self.push(code | X, to, from, 0, 0);
    }

    pub(super) fn copy(&mut self, to: Register, from: Register) {
        if to != from {
            self.registers(MOV | ALU64, to, from);
        }
    }

    pub(super) fn jump(
        &mut self,
        code: u8,
        to: Register,
        from: Register,
        number: i32,
        label: Label,
    ) {
        let instruction =
            Instruction { code, destination: to, source: from, offset: 0, immediate: number };
        self.assembler.jump(instruction, label);
    }

    pub(super) fn go(&mut self, label: Label) {
        self.jump(JMP | JA, 0, 0, 0, label);
    }

    /// A place in memory, relative to the base register.
    pub(super) fn memory_offset(&self, at: u32) -> i16 {
        (i64::from(at) - i64::from(self.bias)) as i16
    }

    fn load_word(&mut self, to: Register, at: u32) {
        self.push(LDX | MEM | DOUBLE, to, BASE, self.memory_offset(at), 0);
    }

    /// Saves a register on the stack; returns the offset of its slot.
    pub(super) fn spill(&mut self, from: Register) -> i16 {
        self.slots += 1;
        self.slots_max = self.slots_max.max(self.slots);
        // Beyond the stack the program is refused at the end; until then any slot is fine.
        let slot = -8 * self.slots.min(STACK_MAX / 8) as i16;
        self.push(STX | MEM | DOUBLE, FRAME, from, slot, 0);
        slot
    }

    pub(super) fn unspill(&mut self, to: Register, slot: i16) {
        self.push(LDX | MEM | DOUBLE, to, FRAME, slot, 0);
        self.slots -= 1;
    }

    pub(super) fn home(&self, local: u16) -> Location {
        self.homes[usize::from(local)]
    }

    pub(super) fn get(&mut self, to: Register, local: u16) {
        match self.home(local) {
            Location::Register(home) => self.copy(to, home),
            Location::Memory(at) => self.load_word(to, at),
        }
    }

    pub(super) fn set(&mut self, local: u16, from: Register) {
        match self.home(local) {
            Location::Memory(at) => {
                self.push(STX | MEM | DOUBLE, BASE, from, self.memory_offset(at), 0)
            }
            Location::Register(home) => self.copy(home, from),
        }
    }

    /// Makes the verifier forget its knowledge of the variables in registers that a loop changes, by adding a
    /// zero that it does not know. Otherwise it would follow a variable with a known value or known bounds,
    /// turn by turn.
    fn widen_bounds(&mut self, parts: &Loop) {
        let mut changed = Vec::new();
        let homes = &self.homes;
        walk_loop(parts, 1, &mut |expr: &Expr, _| {
            if let Kind::Set(local, _) | Kind::Modify { temporary: local, .. } = expr.kind
                && let Location::Register(home) = homes[usize::from(local)]
                && !changed.contains(&home)
            {
                changed.push(home);
            }
        });
        if !changed.is_empty() {
            self.load_word(SCRATCH, ZERO);
        }
        for home in changed {
            self.registers(ADD | ALU64, home, SCRATCH);
        }
    }

    /// The label at which a fault of a kind at a place of the source is raised.
    pub(super) fn fault(&mut self, kind: u32, at: u32) -> Label {
        let label = self.assembler.label();
        self.faults.push((label, kind, at));
        label
    }

    fn block(&mut self, statements: &[Stmt]) -> Result<(), KernelError> {
        statements.iter().try_for_each(|statement| self.statement(statement))
    }

    fn statement(&mut self, statement: &Stmt) -> Result<(), KernelError> {
        match statement {
            Stmt::Eval(value) => self.effect(value)?,
            Stmt::If(condition, then, other) => {
                let (otherwise, end) = (self.assembler.label(), self.assembler.label());
                self.branch(condition, 0, otherwise, false)?;
                self.block(then)?;
                if !other.is_empty() {
                    self.go(end);
                }
                self.assembler.place(otherwise);
                self.block(other)?;
                self.assembler.place(end);
            }
            Stmt::Loop(parts) => self.emit_loop_body(parts)?,
            Stmt::Return(value) => {
                match value {
                    Some(value) => {
                        self.value(value, 0)?;
                        self.copy(SCRATCH, register(0));
                    }
                    None => self.immediate(MOV | ALU64, SCRATCH, 0),
                }
                self.go(self.exit);
            }
            Stmt::Break => self.go(self.loops.last().expect("checked").0),
            Stmt::Continue => self.go(self.loops.last().expect("checked").1),
            Stmt::Clear { offset, size } => {
                for at in (*offset..offset + size).step_by(8) {
                    self.push(ST | MEM | DOUBLE, BASE, 0, self.memory_offset(at), 0);
                }
            }
        }
        Ok(())
    }

    fn emit_loop_body(&mut self, parts: &Loop) -> Result<(), KernelError> {
        let [head, next, end] = [(); 3].map(|()| self.assembler.label());
        let starved = self.fault(OUT_OF_FUEL, parts.at);
        self.widen_bounds(parts);
        self.assembler.place(head);
        self.jump(JMP | JCOND, 0, 0, 0, starved);
        self.jump(JMP | JLT, FUEL, 0, parts.cost as i32, starved);
        self.immediate(ADD | ALU64, FUEL, -(parts.cost as i32));
        let condition = parts.condition.as_ref();
        if let (true, Some(condition)) = (parts.test_first, condition) {
            self.branch(condition, 0, end, false)?;
        }
        self.loops.push((end, next));
        self.block(&parts.body)?;
        self.loops.pop();
        self.assembler.place(next);
        if let (false, Some(condition)) = (parts.test_first, condition) {
            self.branch(condition, 0, end, false)?;
        }
        if let Some(step) = &parts.step {
            self.effect(step)?;
        }
        self.go(head);
        self.assembler.place(end);
        Ok(())
    }

    /// Ends the handler where an index is not below its bound.
    pub(super) fn guard(&mut self, index: Register, length: u32, at: u32) {
        let outside = self.fault(OUT_OF_BOUNDS, at);
        self.jump(JMP | JGE, index, 0, length as i32, outside);
    }
}

/// Calls `each` with every expression of statements, and how often it is evaluated if these are evaluated `times`
/// times; a loop counts as eight turns.
fn walk(statements: &[Stmt], times: u64, each: &mut impl FnMut(&Expr, u64)) {
    for statement in statements {
        match statement {
            Stmt::Eval(value) | Stmt::Return(Some(value)) => walk_expr(value, times, each),
            Stmt::If(condition, then, other) => {
                walk_expr(condition, times, each);
                walk(then, times, each);
                walk(other, times, each);
            }
            Stmt::Loop(parts) => walk_loop(parts, times.saturating_mul(8), each),
            Stmt::Return(None) | Stmt::Break | Stmt::Continue | Stmt::Clear { .. } => {}
        }
    }
}

fn walk_loop(parts: &Loop, times: u64, each: &mut impl FnMut(&Expr, u64)) {
    for value in parts.condition.iter().chain(&parts.step) {
        walk_expr(value, times, each);
    }
    walk(&parts.body, times, each);
}

fn walk_expr(expr: &Expr, times: u64, each: &mut impl FnMut(&Expr, u64)) {
    each(expr, times);
    expr.each(&mut |inner| walk_expr(inner, times, each));
}
