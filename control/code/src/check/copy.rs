//! Whole structs: one is assigned to another of its type, a word at a time. The back ends handle numbers
//! only, so all three agree.

use std::sync::Arc;

use super::place::Located;
use super::{Binding, Checker};
use crate::form::{Expr as Form, Index, Kind, Loop, Place, Stmt};
use crate::source::{Diagnostic, Span};
use crate::syntax::{Comparison, Expr, ExprKind, Operator};
use crate::types::{Scalar, Storage, Struct, Type};

/// Up to this number of words are written one after the other; more in a loop, which takes fuel.
const UNROLLED: u32 = 8;

impl<'a> Checker<'a> {
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
