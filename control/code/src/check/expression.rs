//! Values: operators, assignments, calls. Places: names, members and elements that can be read and perhaps
//! written.
//!
//! The checker has three files, as the language has: expressions, statements, and what both need.

use super::{Binding, Checker};
use crate::environment::Access;
use crate::form::{Expr as Form, Index, Kind, Place, Placed};
use crate::limits::LOCALS_MAX;
use crate::source::{Diagnostic, Span};
use crate::syntax::{Binary, Comparison, Expr, ExprKind, Name, Operator, Unary};
use crate::types::{Scalar, Storage, Type};

/// Functions that are part of the language.
const BUILT_IN: [(&str, usize); 3] = [("abs", 1), ("max", 2), ("min", 2)];

/// A place with an address.
pub(super) struct Located {
    pub(super) base: Base,
    pub(super) offset: u32,
    pub(super) indices: Vec<Index>,
    ty: Type,
    /// Why it must not be written.
    pub(super) fixed: Option<&'static str>,
    /// The path read so far, for messages.
    pub(super) path: String,
    at: Span,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Base {
    Local(u16),
    Memory,
    /// Not a place, but readable like one.
    Constant(u64, Scalar),
}

/// A suggestion in place of an unknown name.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match (selvedge_units::nearest(name, known.iter().copied()), &known[..]) {
        (Some(near), _) => format!("write \"{near}\""),
        (None, []) => "declare it first".to_owned(),
        (None, _) => {
            let more = if known.len() > 12 { ", ..." } else { "" };
            format!("there are {}{more}", known[..known.len().min(12)].join(", "))
        }
    }
}

impl<'a> Checker<'a> {
    /// A value, of any type.
    pub(super) fn value(&mut self, expr: &Expr<'a>) -> Result<Form, Diagnostic> {
        let outer = std::mem::replace(&mut self.at, expr.at);
        let checked = self.value_inside(expr);
        self.at = outer;
        checked
    }

    fn value_inside(&mut self, expr: &Expr<'a>) -> Result<Form, Diagnostic> {
        match &expr.kind {
            ExprKind::Integer(value, scalar) => {
                let bits = crate::arithmetic::convert(Scalar::UnsignedLong, *scalar, *value);
                Ok(self.literal(bits, *scalar))
            }
            ExprKind::Double(value) => Ok(self.literal(value.to_bits(), Scalar::Double)),
            ExprKind::Name(_) | ExprKind::Member(..) | ExprKind::Index(..) => self.read(expr),
            ExprKind::Call(name, arguments) => self.call(name, arguments, expr.at, true),
            ExprKind::Unary(operator, inside) => {
                let value = self.value(inside)?;
                self.unary(*operator, value, inside.at)
            }
            ExprKind::Binary(binary, left, right) => self.binary(*binary, left, right),
            ExprKind::Assign(operator, to, value) => self.assign(*operator, to, value),
            ExprKind::Step { up, old, place } => self.step(*up, *old, place),
            ExprKind::Choose(condition, then, other) => {
                let condition = self.condition(condition)?;
                let (then, other) = (self.value(then)?, self.value(other)?);
                let ty = then.ty.with(other.ty);
                let (then, other) = (self.convert(then, ty), self.convert(other, ty));
                let (condition, then) = (Box::new(condition), Box::new(then));
                Ok(self.node(Kind::Choose(condition, then, Box::new(other)), ty))
            }
            ExprKind::Cast(storage, inside) => {
                let value = self.value(inside)?;
                Ok(self.stored(value, *storage))
            }
            ExprKind::Then(first, second) => {
                let first = self.effect(first)?;
                let second = self.value(second)?;
                Ok(self.then(first, second))
            }
            ExprKind::SizeOf(of) => {
                let size = self.named_type(of)?.size();
                Ok(self.literal(u64::from(size), Scalar::UnsignedLong))
            }
        }
    }

    /// An expression that is evaluated for its effect.
    pub(super) fn effect(&mut self, expr: &Expr<'a>) -> Result<Form, Diagnostic> {
        match &expr.kind {
            // The old value is not used, so the new one, which is cheaper, suffices.
            ExprKind::Step { up, place, .. } => self.step(*up, false, place),
            ExprKind::Call(name, arguments) => self.call(name, arguments, expr.at, false),
            _ => self.value(expr),
        }
    }

    /// An expression that is tested for not being zero.
    pub(super) fn condition(&mut self, expr: &Expr<'a>) -> Result<Form, Diagnostic> {
        let value = self.value(expr)?;
        let outer = std::mem::replace(&mut self.at, expr.at);
        let truth = self.truth(value);
        self.at = outer;
        Ok(truth)
    }

    fn unary(&mut self, operator: Unary, value: Form, at: Span) -> Result<Form, Diagnostic> {
        Ok(match operator {
            Unary::Plus => value,
            Unary::Minus => self.negate(value),
            Unary::Not => self.not(value),
            Unary::Complement => {
                let value = integer(value, "~", at)?;
                let ones = crate::arithmetic::convert(Scalar::Long, value.ty, u64::MAX);
                let ones = Form::constant(ones, value.ty);
                self.operate(Operator::Xor, value, ones)
            }
        })
    }

    fn binary(
        &mut self,
        binary: Binary,
        left: &Expr<'a>,
        right: &Expr<'a>,
    ) -> Result<Form, Diagnostic> {
        if matches!(binary, Binary::Both | Binary::Either) {
            let a = Box::new(self.condition(left)?);
            let b = Box::new(self.condition(right)?);
            let kind = if binary == Binary::Both { Kind::Both(a, b) } else { Kind::Either(a, b) };
            return Ok(self.node(kind, Scalar::Int));
        }
        let (a, b) = (self.value(left)?, self.value(right)?);
        match binary {
            Binary::Operator(operator) => self.arithmetic(operator, (a, left.at), (b, right.at)),
            Binary::Comparison(comparison) => {
                let ty = a.ty.with(b.ty);
                let (a, b) = (self.convert(a, ty), self.convert(b, ty));
                Ok(self.compare(comparison, a, b))
            }
            Binary::Both | Binary::Either => unreachable!("done above"),
        }
    }

    /// An operator after C's conversions: a shift has the type of its left side.
    fn arithmetic(
        &mut self,
        operator: Operator,
        (a, a_at): (Form, Span),
        (b, b_at): (Form, Span),
    ) -> Result<Form, Diagnostic> {
        let (mut a, mut b) = (a, b);
        let exact = matches!(
            operator,
            Operator::Add | Operator::Subtract | Operator::Multiply | Operator::Divide
        );
        if !exact {
            a = integer(a, operator.name(), a_at)?;
            b = integer(b, operator.name(), b_at)?;
        }
        let shift = matches!(operator, Operator::ShiftLeft | Operator::ShiftRight);
        let ty = if shift { a.ty } else { a.ty.with(b.ty) };
        let (a, b) = (self.convert(a, ty), self.convert(b, ty));
        Ok(self.operate(operator, a, b))
    }

    fn assign(
        &mut self,
        operator: Option<Operator>,
        to: &Expr<'a>,
        value: &Expr<'a>,
    ) -> Result<Form, Diagnostic> {
        let (of, storage) = self.writable(to)?;
        let Some(operator) = operator else {
            let value = self.value(value)?;
            let value = self.stored(value, storage);
            return Ok(match of.base {
                Base::Local(local) => self.set(local, value),
                _ => {
                    let ty = value.ty;
                    self.node(Kind::Store(of.place(storage), Box::new(value)), ty)
                }
            });
        };
        let old = match of.base {
            Base::Local(local) => local,
            _ => self.temporary(storage.scalar(), to.at)?,
        };
        // The old value is read before the new one is found.
        let before = self.local(old);
        let by = self.value(value)?;
        let value = self.arithmetic(operator, (before, to.at), (by, value.at))?;
        let value = self.stored(value, storage);
        Ok(match of.base {
            Base::Local(local) => self.set(local, value),
            _ => self.modify(of, storage, old, value, false),
        })
    }

    fn step(&mut self, up: bool, keep: bool, to: &Expr<'a>) -> Result<Form, Diagnostic> {
        let (of, storage) = self.writable(to)?;
        let operator = if up { Operator::Add } else { Operator::Subtract };
        let ty = storage.scalar();
        let one = Form::constant(if ty == Scalar::Double { 1.0_f64.to_bits() } else { 1 }, ty);
        let local = match of.base {
            Base::Local(local) => Some(local),
            _ => None,
        };
        let (Some(local), true) = (local, keep) else {
            let old = local.map_or_else(|| self.temporary(ty, to.at), Ok)?;
            let before = self.local(old);
            let value = self.operate(operator, before, one);
            let value = self.stored(value, storage);
            return Ok(match local {
                Some(local) => self.set(local, value),
                None => self.modify(of, storage, old, value, keep),
            });
        };
        let old = self.temporary(ty, to.at)?;
        let before = self.local(local);
        let kept = self.set(old, before);
        let again = self.local(old);
        let value = self.operate(operator, again, one);
        let value = self.stored(value, storage);
        let written = self.set(local, value);
        let result = self.local(old);
        let rest = self.then(written, result);
        Ok(self.then(kept, rest))
    }

    fn modify(
        &mut self,
        of: Located,
        storage: Storage,
        temporary: u16,
        value: Form,
        old: bool,
    ) -> Form {
        let (ty, value) = (value.ty, Box::new(value));
        self.node(Kind::Modify { place: of.place(storage), temporary, value, old }, ty)
    }

    /// A variable that the source does not name.
    pub(super) fn temporary(&mut self, ty: Scalar, at: Span) -> Result<u16, Diagnostic> {
        let storage = match ty {
            Scalar::Int => Storage::Int,
            Scalar::Unsigned => Storage::Unsigned,
            Scalar::Long => Storage::Long,
            Scalar::UnsignedLong => Storage::UnsignedLong,
            Scalar::Double => Storage::Double,
        };
        self.new_local(storage, at)
    }

    pub(super) fn new_local(&mut self, storage: Storage, at: Span) -> Result<u16, Diagnostic> {
        if self.locals.len() >= LOCALS_MAX {
            let what = format!("with this there are more than {LOCALS_MAX} variables");
            return Err(Diagnostic::new(at, what, "use an array, or several handlers"));
        }
        self.locals.push(storage);
        Ok((self.locals.len() - 1) as u16)
    }

    fn call(
        &mut self,
        name: &Name<'a>,
        arguments: &[Expr<'a>],
        at: Span,
        used: bool,
    ) -> Result<Form, Diagnostic> {
        let found = self.environment.functions.iter().find(|one| one.name == name.text).cloned();
        let Some(function) = found else {
            return self.built_in(name, arguments, at);
        };
        count(name, arguments.len(), function.parameters.len(), at)?;
        if used && function.result.is_none() {
            let what = format!("{}() gives no value", name.text);
            return Err(Diagnostic::new(at, what, "call it as a statement of its own"));
        }
        let mut values = Vec::with_capacity(arguments.len());
        for (argument, parameter) in arguments.iter().zip(&function.parameters) {
            let value = self.value(argument)?;
            values.push(self.convert(value, *parameter));
        }
        let ty = function.result.unwrap_or(Scalar::Int);
        let known = self.functions.iter().position(|one| *one == function);
        let number = known.unwrap_or_else(|| {
            self.functions.push(function);
            self.functions.len() - 1
        });
        Ok(self.node(Kind::Call(number as u16, values), ty))
    }

    fn built_in(
        &mut self,
        name: &Name<'a>,
        arguments: &[Expr<'a>],
        at: Span,
    ) -> Result<Form, Diagnostic> {
        let Some((_, parameters)) = BUILT_IN.iter().find(|(known, _)| *known == name.text) else {
            let host = self.environment.functions.iter().map(|one| &*one.name);
            let known = host.chain(BUILT_IN.iter().map(|(known, _)| *known));
            let what = format!("there is no function \"{}\"", name.text);
            return Err(Diagnostic::new(name.at, what, nearest(name.text, known)));
        };
        count(name, arguments.len(), *parameters, at)?;
        let first = self.value(&arguments[0])?;
        if name.text == "abs" {
            let (ty, zero) = (first.ty, Form::constant(0, first.ty));
            let kept = self.temporary(ty, at)?;
            let first = self.set(kept, first);
            let negative = self.compare(Comparison::Less, first, zero);
            let (same, other) = (self.local(kept), self.local(kept));
            let turned = self.negate(other);
            let parts = (Box::new(negative), Box::new(turned), Box::new(same));
            return Ok(self.node(Kind::Choose(parts.0, parts.1, parts.2), ty));
        }
        let second = self.value(&arguments[1])?;
        let ty = first.ty.with(second.ty);
        let (first, second) = (self.convert(first, ty), self.convert(second, ty));
        let (a, b) = (self.temporary(ty, at)?, self.temporary(ty, at)?);
        let (first, second) = (self.set(a, first), self.set(b, second));
        let comparison = if name.text == "min" { Comparison::Less } else { Comparison::Greater };
        let condition = self.compare(comparison, first, second);
        let (a, b) = (self.local(a), self.local(b));
        Ok(self.node(Kind::Choose(Box::new(condition), Box::new(a), Box::new(b)), ty))
    }

    pub(super) fn located(&mut self, expr: &Expr<'a>) -> Result<Located, Diagnostic> {
        match &expr.kind {
            ExprKind::Name(name) => self.named(name, expr.at),
            ExprKind::Member(of, member) => {
                let of = self.located(of)?;
                Self::member(of, member)
            }
            ExprKind::Index(of, index) => {
                let of = self.located(of)?;
                self.element(of, index, expr.at)
            }
            _ => {
                let remedy = "name a variable, a member or an element";
                Err(Diagnostic::new(expr.at, "this has no place in memory", remedy))
            }
        }
    }

    fn named(&mut self, name: &str, at: Span) -> Result<Located, Diagnostic> {
        let whole = |base, offset, ty, fixed| {
            let path = name.to_owned();
            Ok(Located { base, offset, indices: Vec::new(), ty, fixed, path, at })
        };
        let number = |bits, scalar| {
            let fixed = Some("a constant keeps its value; declare a variable");
            whole(Base::Constant(bits, scalar), 0, Type::Scalar(Storage::Long), fixed)
        };
        match self.lookup(name) {
            Some(Binding::Local(local, storage)) => {
                return whole(Base::Local(*local), 0, Type::Scalar(*storage), None);
            }
            Some(Binding::Memory(offset, ty)) => {
                return whole(Base::Memory, *offset, ty.clone(), None);
            }
            Some(Binding::Constant(bits, scalar)) => return number(*bits, *scalar),
            None => {}
        }
        if let Some(placed) = self.records.iter().find(|placed| placed.record.name == name) {
            let fixed = (placed.record.access == Access::Read)
                .then_some("it can be read only; write to a member of output");
            let ty = Type::Struct(placed.record.layout.clone());
            return whole(Base::Memory, placed.offset, ty, fixed);
        }
        if let Some(constant) = self.environment.constants.get(name) {
            return number(constant.bits, constant.scalar);
        }
        if matches!(name, "input" | "output" | "shared" | "attributes") {
            let what = format!("there is no record \"{name}\"");
            let remedy =
                format!("give the channel's formats, or write {name} {{ ... }}; before the block");
            return Err(Diagnostic::new(at, what, remedy));
        }
        let what = match self.environment.functions.iter().any(|f| f.name == name) {
            true => format!("\"{name}\" is a function"),
            false => format!("\"{name}\" is not declared"),
        };
        let has = |placed: &&Placed| placed.record.layout.member(name).is_some();
        if let Some(placed) = self.records.iter().find(has) {
            let record = &placed.record.name;
            return Err(Diagnostic::new(at, what, format!("write \"{record}.{name}\"")));
        }
        let known = self.names.iter().map(|(name, _)| *name);
        let known = known.chain(self.records.iter().map(|placed| &*placed.record.name));
        let known = known.chain(self.environment.constants.keys().map(String::as_str));
        Err(Diagnostic::new(at, what, nearest(name, known)))
    }

    fn member(of: Located, member: &Name<'_>) -> Result<Located, Diagnostic> {
        let Type::Struct(layout) = &of.ty else {
            let what = format!("{} has the type {} and no members", of.path, of.ty);
            let remedy = match of.ty {
                Type::Array(..) => "choose an element with [ ]",
                _ => "leave the \".\" and the name behind it out",
            };
            return Err(Diagnostic::new(member.at, what, remedy));
        };
        let Some(found) = layout.member(member.text) else {
            let known = layout.members.iter().map(|member| &*member.name);
            let what = format!("{} has no member \"{}\"", of.path, member.text);
            return Err(Diagnostic::new(member.at, what, nearest(member.text, known)));
        };
        let (offset, ty) = (of.offset + found.offset, found.ty.clone());
        let path = format!("{}.{}", of.path, member.text);
        Ok(Located { offset, ty, path, at: of.at.to(member.at), ..of })
    }

    fn element(
        &mut self,
        mut of: Located,
        index: &Expr<'a>,
        at: Span,
    ) -> Result<Located, Diagnostic> {
        let Type::Array(element, length) = of.ty.clone() else {
            let what = format!("{} has the type {} and no elements", of.path, of.ty);
            return Err(Diagnostic::new(at, what, "leave the [ ] out"));
        };
        let value = self.value(index)?;
        if value.ty == Scalar::Double {
            let remedy = "convert it: write (int) before it";
            return Err(Diagnostic::new(index.at, "an index can't be a double", remedy));
        }
        let stride = element.size();
        match value.as_constant() {
            Some(bits) if bits < u64::from(length) => of.offset += bits as u32 * stride,
            Some(bits) => {
                let what = format!("{} has no element {}", of.path, bits as i64);
                let remedy = format!("its elements are 0 to {}", length - 1);
                return Err(Diagnostic::new(index.at, what, remedy));
            }
            None => {
                self.weight = self.weight.saturating_add(1);
                self.operations = self.operations.saturating_add(1);
                of.indices.push(Index { value, length, stride, at: index.at.start });
            }
        }
        Ok(Located { ty: (*element).clone(), path: of.path + "[]", at, ..of })
    }

    /// The number at a place.
    pub(super) fn scalar_at(&self, of: &Located) -> Result<Storage, Diagnostic> {
        match &of.ty {
            Type::Scalar(storage) => Ok(*storage),
            other => {
                let what = format!("{} has the type {other}, which is no number", of.path);
                let remedy = match other {
                    Type::Array(..) => "choose an element with [ ]",
                    _ => {
                        "choose a member with \".\"; a whole struct is assigned in a statement of its own"
                    }
                };
                Err(Diagnostic::new(of.at, what, remedy))
            }
        }
    }

    pub(super) fn read(&mut self, expr: &Expr<'a>) -> Result<Form, Diagnostic> {
        let of = self.located(expr)?;
        match of.base {
            Base::Constant(bits, scalar) => Ok(self.literal(bits, scalar)),
            Base::Local(local) => Ok(self.local(local)),
            Base::Memory => {
                let storage = self.scalar_at(&of)?;
                Ok(self.load(of.place(storage)))
            }
        }
    }

    /// A place that may be written, with its type.
    pub(super) fn writable(&mut self, expr: &Expr<'a>) -> Result<(Located, Storage), Diagnostic> {
        let of = self.located(expr)?;
        let storage = self.scalar_at(&of)?;
        if let Some(why) = of.fixed {
            let what = format!("{} can't be written", of.path);
            return Err(Diagnostic::new(expr.at, what, why));
        }
        Ok((of, storage))
    }
}

fn integer(value: Form, operator: &str, at: Span) -> Result<Form, Diagnostic> {
    if value.ty == Scalar::Double {
        let what = format!("\"{operator}\" is for integers, and this is a double");
        return Err(Diagnostic::new(at, what, "convert it: write (long) before it"));
    }
    Ok(value)
}

fn count(name: &Name<'_>, given: usize, wanted: usize, at: Span) -> Result<(), Diagnostic> {
    if given == wanted {
        return Ok(());
    }
    let what = format!("{}() takes {wanted} values, and here are {given}", name.text);
    Err(Diagnostic::new(at, what, "give as many as it takes"))
}

impl Located {
    /// A variable in memory, whole.
    pub(super) fn variable(offset: u32, ty: Type, name: &Name<'_>) -> Self {
        let (base, indices, fixed) = (Base::Memory, Vec::new(), None);
        Self { base, offset, indices, ty, fixed, path: name.text.to_owned(), at: name.at }
    }

    pub(super) fn place(self, storage: Storage) -> Place {
        Place { offset: self.offset, storage, indices: self.indices }
    }
}
