//! Nodes of the typed form: counted, converted, and computed where all values are known.

use super::Checker;
use crate::arithmetic;
use crate::form::{Expr, Kind, Place};
use crate::syntax::{Comparison, Operator};
use crate::types::{Scalar, Storage};

impl Checker<'_> {
    pub(super) fn node(&mut self, kind: Kind, ty: Scalar) -> Expr {
        self.weight = self.weight.saturating_add(1);
        self.operations = self.operations.saturating_add(1);
        if ty == Scalar::Double && self.double_at.is_none() && !matches!(kind, Kind::Constant(_)) {
            self.double_at = Some(self.at);
        }
        Expr { kind, ty }
    }

    pub(super) fn literal(&mut self, bits: u64, ty: Scalar) -> Expr {
        self.node(Kind::Constant(bits), ty)
    }

    pub(super) fn convert(&mut self, from: Expr, to: Scalar) -> Expr {
        if from.ty == to {
            return from;
        }
        if let Some(bits) = from.as_constant() {
            return Expr::constant(arithmetic::convert(from.ty, to, bits), to);
        }
        self.node(Kind::Convert(Box::new(from)), to)
    }

    /// A value as a variable of a type stores it.
    pub(super) fn stored(&mut self, value: Expr, storage: Storage) -> Expr {
        let value = self.convert(value, storage.scalar());
        if storage.size() >= 4 {
            return value;
        }
        if let Some(bits) = value.as_constant() {
            return Expr::constant(arithmetic::narrow(storage, bits), value.ty);
        }
        let ty = value.ty;
        self.node(Kind::Narrow(storage, Box::new(value)), ty)
    }

    /// An operation on two values of one type.
    pub(super) fn operate(&mut self, operator: Operator, a: Expr, b: Expr) -> Expr {
        let ty = a.ty;
        if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
            return Expr::constant(arithmetic::operate(operator, ty, x, y), ty);
        }
        self.node(Kind::Operate(operator, Box::new(a), Box::new(b)), ty)
    }

    /// A comparison of two values of one type.
    pub(super) fn compare(&mut self, comparison: Comparison, a: Expr, b: Expr) -> Expr {
        if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
            let holds = arithmetic::compare(comparison, a.ty, x, y);
            return Expr::constant(u64::from(holds), Scalar::Int);
        }
        self.node(Kind::Compare(comparison, Box::new(a), Box::new(b)), Scalar::Int)
    }

    /// Whether a value is not zero, in a form whose bits may be tested.
    pub(super) fn truth(&mut self, value: Expr) -> Expr {
        if value.ty != Scalar::Double {
            return value;
        }
        let zero = Expr::constant(0, Scalar::Double);
        self.compare(Comparison::NotEqual, value, zero)
    }

    /// 1 if a value is zero, else 0.
    pub(super) fn not(&mut self, value: Expr) -> Expr {
        let zero = Expr::constant(0, value.ty);
        self.compare(Comparison::Equal, value, zero)
    }

    pub(super) fn negate(&mut self, value: Expr) -> Expr {
        if value.ty != Scalar::Double {
            let zero = Expr::constant(0, value.ty);
            return self.operate(Operator::Subtract, zero, value);
        }
        match value.as_constant() {
            Some(bits) => Expr::constant(arithmetic::negate(bits), Scalar::Double),
            None => self.node(Kind::Negate(Box::new(value)), Scalar::Double),
        }
    }

    pub(super) fn local(&mut self, local: u16) -> Expr {
        let ty = self.locals[usize::from(local)].scalar();
        self.node(Kind::Local(local), ty)
    }

    /// Sets a local to a value of its type.
    pub(super) fn set(&mut self, local: u16, value: Expr) -> Expr {
        let ty = value.ty;
        self.node(Kind::Set(local, Box::new(value)), ty)
    }

    pub(super) fn load(&mut self, place: Place) -> Expr {
        let ty = place.storage.scalar();
        self.node(Kind::Load(place), ty)
    }

    pub(super) fn then(&mut self, first: Expr, second: Expr) -> Expr {
        let ty = second.ty;
        self.node(Kind::Then(Box::new(first), Box::new(second)), ty)
    }
}
