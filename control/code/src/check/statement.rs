//! Statements and variables. A struct is assigned to another of its type a word at a time. The back ends
//! handle numbers only, so all three agree.
//!
//! The checker has three files, as the language has: expressions, statements, and what both need.

use std::sync::Arc;

use super::expression::Located;
use super::{Binding, Checker};
use crate::form::{Expr as Form, Index, Kind, Loop, Place, Stmt};
use crate::limits::{OPERATIONS_MAX, SCRATCH_MAX};
use crate::source::{Diagnostic, Span};
use crate::syntax::{self, Comparison, Expr, ExprKind, Name, Operator, Statement, Variable};
use crate::types::{Scalar, Storage, Struct, Type};

/// Up to this number of words are written one after the other; more in a loop, which takes fuel.
const UNROLLED: u32 = 8;

impl<'a> Checker<'a> {
    /// The statements of a block, with the names that it declares. Mistakes are recorded, and a statement
    /// with a mistake is left out.
    pub(super) fn block(&mut self, statements: &[Statement<'a>]) -> Vec<Stmt> {
        self.blocks.push(self.names.len());
        let mut done = Vec::with_capacity(statements.len());
        for statement in statements {
            self.push_statement(statement, &mut done);
            if self.is_full() {
                break;
            }
        }
        let start = self.blocks.pop().unwrap_or(0);
        self.names.truncate(start);
        done
    }

    fn push_statement(&mut self, statement: &Statement<'a>, to: &mut Vec<Stmt>) {
        if let Err(mistake) = self.statement(statement, to) {
            self.record(mistake);
        }
    }

    fn statement(
        &mut self,
        statement: &Statement<'a>,
        to: &mut Vec<Stmt>,
    ) -> Result<(), Diagnostic> {
        match statement {
            Statement::Variable(variable) => self.variable(variable, to),
            Statement::Constant(name, value) => {
                let known = self.constant(value);
                let (bits, scalar) = *known.as_ref().unwrap_or(&(0, Scalar::Int));
                self.bind(*name, Binding::Constant(bits, scalar))?;
                known.map(|_| ())
            }
            Statement::Eval(value) => {
                if let ExprKind::Assign(None, place, from) = &value.kind
                    && let Some(layout) = self.struct_at(place)
                {
                    self.copy(place, &layout, from, to)?;
                    return self.small(value.at);
                }
                let value = self.effect(value)?;
                self.small(statement_at(statement))?;
                to.push(Stmt::Eval(value));
                Ok(())
            }
            Statement::Block(statements) => {
                to.extend(self.block(statements));
                Ok(())
            }
            Statement::If(condition, then, other) => {
                let condition = self.check_condition(condition);
                let then = self.block(std::slice::from_ref(then));
                let other = other
                    .as_ref()
                    .map_or_else(Vec::new, |other| self.block(std::slice::from_ref(&**other)));
                to.push(Stmt::If(condition, then, other));
                Ok(())
            }
            Statement::Loop(parts) => self.loop_(parts, to),
            Statement::Return(value) => {
                let value = value.as_ref().map(|value| self.result(value)).transpose()?;
                to.push(Stmt::Return(value));
                Ok(())
            }
            Statement::Break(at) => self.inside_loop("break", *at).map(|()| to.push(Stmt::Break)),
            Statement::Continue(at) => {
                self.inside_loop("continue", *at).map(|()| to.push(Stmt::Continue))
            }
        }
    }

    /// A condition; if it has a mistake, the mistake is recorded, and its statements are checked as well.
    fn check_condition(&mut self, condition: &Expr<'a>) -> Form {
        self.condition(condition).unwrap_or_else(|mistake| {
            self.record(mistake);
            Form::constant(0, Scalar::Int)
        })
    }

    fn result(&mut self, value: &Expr<'a>) -> Result<Form, Diagnostic> {
        let checked = self.value(value)?;
        if checked.ty == Scalar::Double {
            let remedy = "convert it: write (long) before it, or give it as a member of output";
            return Err(Diagnostic::new(value.at, "a handler returns a long", remedy));
        }
        Ok(self.convert(checked, Scalar::Long))
    }

    fn loop_(&mut self, parts: &syntax::Loop<'a>, to: &mut Vec<Stmt>) -> Result<(), Diagnostic> {
        self.blocks.push(self.names.len());
        for statement in &parts.first {
            self.push_statement(statement, to);
        }
        self.has_loops = true;
        self.loops += 1;
        let outer = std::mem::take(&mut self.weight);
        let condition = parts.condition.as_ref().map(|condition| self.check_condition(condition));
        let body = self.block(std::slice::from_ref(&*parts.body));
        let step = parts.step.as_ref().map(|step| self.effect(step)).transpose();
        let cost = std::mem::replace(&mut self.weight, outer).saturating_add(1);
        self.loops -= 1;
        let start = self.blocks.pop().unwrap_or(0);
        self.names.truncate(start);
        let (test_first, at) = (parts.test_first, parts.at.start);
        to.push(Stmt::Loop(Loop { test_first, condition, step: step?, body, cost, at }));
        Ok(())
    }

    fn inside_loop(&self, word: &str, at: Span) -> Result<(), Diagnostic> {
        if self.loops == 0 {
            let what = format!("this {word} is in no loop");
            return Err(Diagnostic::new(at, what, "use return to end the handler"));
        }
        Ok(())
    }

    /// An excess of operations is reported once, where it begins.
    fn small(&self, at: Span) -> Result<(), Diagnostic> {
        if self.operations > OPERATIONS_MAX {
            let what = format!("here the handler has more than {OPERATIONS_MAX} operations");
            return Err(Diagnostic::new(at, what, "use loops, or several handlers"));
        }
        Ok(())
    }

    fn variable(&mut self, variable: &Variable<'a>, to: &mut Vec<Stmt>) -> Result<(), Diagnostic> {
        let name = variable.declarator.name;
        self.at = name.at;
        let ty = self.ty(&variable.declarator)?;
        if variable.is_static {
            return self.static_variable(name, ty, variable.value.as_ref());
        }
        let Type::Scalar(storage) = ty else {
            return match (&variable.value, &ty) {
                (None, _) => self.aggregate(name, ty, to).map(|_| ()),
                (Some(value), Type::Struct(layout)) => {
                    // As with numbers: the value is checked before the name is bound.
                    let source = self.source(layout, value);
                    let offset = self.aggregate(name, ty.clone(), to)?;
                    let target = Located::variable(offset, ty.clone(), &name);
                    self.words(target, source?, layout, name.at, to)?;
                    self.small(name.at)
                }
                (Some(_), _) => Err(no_number(&name)),
            };
        };
        // The value is checked before the name is bound, but the name is bound even if that fails.
        let value = match &variable.value {
            Some(value) => self.value(value),
            None => Ok(self.literal(0, storage.scalar())),
        };
        let local = self.new_local(storage, name.at)?;
        self.bind(name, Binding::Local(local, storage))?;
        let value = value?;
        let value = self.stored(value, storage);
        let set = self.set(local, value);
        self.small(name.at)?;
        to.push(Stmt::Eval(set));
        Ok(())
    }

    /// An array or a struct of the handler's own.
    fn aggregate(
        &mut self,
        name: Name<'a>,
        ty: Type,
        to: &mut Vec<Stmt>,
    ) -> Result<u32, Diagnostic> {
        let size = ty.size().next_multiple_of(8);
        self.scratch = self.scratch.saturating_add(size);
        if self.scratch > SCRATCH_MAX {
            let what = format!("with this the handler's arrays take {} bytes", self.scratch);
            let remedy =
                format!("declare it static, or make it shorter; {SCRATCH_MAX} is the most");
            return Err(Diagnostic::new(name.at, what, remedy));
        }
        let offset = self.allocate(size, name.at)?;
        self.bind(name, Binding::Memory(offset, ty))?;
        self.weight = self.weight.saturating_add(size / 8);
        self.operations = self.operations.saturating_add(size / 8);
        to.push(Stmt::Clear { offset, size });
        self.small(name.at)?;
        Ok(offset)
    }

    fn static_variable(
        &mut self,
        name: Name<'a>,
        ty: Type,
        value: Option<&Expr<'a>>,
    ) -> Result<(), Diagnostic> {
        let offset = self.allocate(ty.size(), name.at)?;
        self.bind(name, Binding::Memory(offset, ty.clone()))?;
        let Some(value) = value else { return Ok(()) };
        let Type::Scalar(storage) = ty else { return Err(no_number(&name)) };
        let (bits, scalar) = self.constant(value)?;
        let stored = self.stored(Form::constant(bits, scalar), storage);
        if let Some(bits) = stored.as_constant() {
            self.initial.push((offset, storage, bits));
        }
        Ok(())
    }

    /// The struct that an expression names, if it names one. Nothing is checked or counted.
    pub(super) fn struct_at(&self, expr: &Expr<'a>) -> Option<Arc<Struct>> {
        match self.type_at(expr)? {
            Type::Struct(layout) => Some(layout),
            _ => None,
        }
    }

    fn type_at(&self, expr: &Expr<'a>) -> Option<Type> {
        match &expr.kind {
            ExprKind::Name(name) => match self.lookup(name) {
                Some(Binding::Memory(_, ty)) => Some(ty.clone()),
                Some(_) => None,
                None => {
                    let mut records = self.records.iter();
                    let placed = records.find(|placed| placed.record.name == *name)?;
                    Some(Type::Struct(placed.record.layout.clone()))
                }
            },
            ExprKind::Member(of, member) => match self.type_at(of)? {
                Type::Struct(layout) => layout.member(member.text).map(|found| found.ty.clone()),
                _ => None,
            },
            ExprKind::Index(of, _) => match self.type_at(of)? {
                Type::Array(element, _) => Some((*element).clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// `to = value;` for a place that is a struct.
    pub(super) fn copy(
        &mut self,
        to: &Expr<'a>,
        layout: &Arc<Struct>,
        value: &Expr<'a>,
        done: &mut Vec<Stmt>,
    ) -> Result<(), Diagnostic> {
        self.at = to.at;
        let target = self.located(to)?;
        if let Some(why) = target.fixed {
            let what = format!("{} can't be written", target.path);
            return Err(Diagnostic::new(to.at, what, why));
        }
        let source = self.source(layout, value)?;
        self.words(target, source, layout, to.at, done)
    }

    /// The struct from which a struct of a type is copied.
    pub(super) fn source(
        &mut self,
        layout: &Arc<Struct>,
        value: &Expr<'a>,
    ) -> Result<Located, Diagnostic> {
        let remedy = "assign a struct of the same type, or its members one by one";
        let Some(given) = self.struct_at(value) else {
            // A mistake inside of it is more specific.
            if matches!(value.kind, ExprKind::Name(_) | ExprKind::Member(..) | ExprKind::Index(..))
            {
                self.located(value)?;
            }
            let what = format!("this is no {}", Type::Struct(layout.clone()));
            return Err(Diagnostic::new(value.at, what, remedy));
        };
        // A record has a type without a name: it matches a struct with the same members.
        let record = |layout: &Arc<Struct>| {
            self.records.iter().any(|placed| Arc::ptr_eq(&placed.record.layout, layout))
        };
        let fits = given == *layout
            || (record(&given) || record(layout)) && given.members == layout.members;
        if !fits {
            let [given, wanted] = [&given, layout].map(|layout| Type::Struct(layout.clone()));
            let what = format!("this is a {given}, and no {wanted}");
            return Err(Diagnostic::new(value.at, what, remedy));
        }
        self.located(value)
    }

    /// Copies word by word, padding included. Two structs of one type are the same or do not overlap.
    pub(super) fn words(
        &mut self,
        mut target: Located,
        mut source: Located,
        layout: &Struct,
        at: Span,
        done: &mut Vec<Stmt>,
    ) -> Result<(), Diagnostic> {
        let storage = match layout.align {
            8 => Storage::UnsignedLong,
            4 => Storage::Unsigned,
            2 => Storage::UnsignedShort,
            _ => Storage::Char,
        };
        let (size, count) = (storage.size(), layout.size / storage.size());
        // Indices are evaluated once: the first word stores them, and the others read the stored values.
        let target_again = self.pin_indices(&mut target, at)?;
        let source_again = self.pin_indices(&mut source, at)?;
        self.word(target.place(storage), source.place(storage), done);
        if count <= UNROLLED {
            for word in 1..count {
                let [target, source] = [&target_again, &source_again].map(|of| Place {
                    offset: of.offset + word * size,
                    storage,
                    indices: of.indices.clone(),
                });
                self.word(target, source, done);
            }
            return Ok(());
        }
        let turn = self.new_local(Storage::Int, at)?;
        let one = Form::constant(1, Scalar::Int);
        let first = self.set(turn, one.clone());
        done.push(Stmt::Eval(first));
        let outer = std::mem::take(&mut self.weight);
        let [target, source] = [target_again, source_again].map(|of| {
            let mut indices = of.indices;
            let value = self.local(turn);
            indices.push(Index { value, length: count, stride: size, at: at.start });
            Place { offset: of.offset, storage, indices }
        });
        let mut body = Vec::with_capacity(1);
        self.word(target, source, &mut body);
        let (now, limit) = (self.local(turn), Form::constant(count.into(), Scalar::Int));
        let condition = Some(self.compare(Comparison::Less, now, limit));
        let now = self.local(turn);
        let next = self.operate(Operator::Add, now, one);
        let step = Some(self.set(turn, next));
        let cost = std::mem::replace(&mut self.weight, outer).saturating_add(1);
        self.has_loops = true;
        let at = at.start;
        done.push(Stmt::Loop(Loop { test_first: true, condition, step, body, cost, at }));
        Ok(())
    }

    fn word(&mut self, target: Place, source: Place, done: &mut Vec<Stmt>) {
        let value = self.load(source);
        let ty = value.ty;
        let written = self.node(Kind::Store(target, Box::new(value)), ty);
        done.push(Stmt::Eval(written));
    }

    /// Makes a place store its indices in variables, and returns the same place by these.
    fn pin_indices(&mut self, of: &mut Located, at: Span) -> Result<Place, Diagnostic> {
        let mut again = Vec::with_capacity(of.indices.len());
        for index in &mut of.indices {
            let kept = self.temporary(index.value.ty, at)?;
            let value = std::mem::replace(&mut index.value, Form::constant(0, Scalar::Int));
            index.value = self.set(kept, value);
            again.push(Index { value: self.local(kept), ..*index });
        }
        Ok(Place { offset: of.offset, storage: Storage::Char, indices: again })
    }
}

fn no_number(name: &Name<'_>) -> Diagnostic {
    let remedy = "assign its numbers one by one; all begin as 0";
    Diagnostic::new(name.at, format!("\"{}\" is no number", name.text), remedy)
}

fn statement_at(statement: &Statement<'_>) -> Span {
    match statement {
        Statement::Eval(value) => value.at,
        _ => Span::default(),
    }
}
