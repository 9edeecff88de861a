//! Places: names, members and elements that can be read and perhaps written.

use super::{Binding, Checker};
use crate::environment::Access;
use crate::form::{Expr as Form, Index, Place, Placed};
use crate::source::{Diagnostic, Span};
use crate::syntax::{Expr, ExprKind, Name};
use crate::types::{Scalar, Storage, Type};

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
