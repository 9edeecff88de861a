//! Statements and variables.

use super::place::Located;
use super::{Binding, Checker};
use crate::form::{Expr as Form, Loop, Stmt};
use crate::limits::{OPERATIONS_MAX, SCRATCH_MAX};
use crate::source::{Diagnostic, Span};
use crate::syntax::{self, Expr, ExprKind, Name, Statement, Variable};
use crate::types::{Scalar, Type};

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
