//! The typed form: the checker's output, and the only input of the evaluator and the back ends. Every
//! conversion is explicit, every name is a number or an address, every index has its bound, and every loop
//! its cost.
//!
//! A value is 64 bits: an `int` is extended by its sign, an `unsigned` by zeros, a double is its bits.
//! Operands are evaluated from left to right; an assignment finds its place first, then its value.

use crate::environment::{Function, Record};
use crate::source::{Position, Span};
use crate::syntax::{Comparison, Operator};
use crate::types::{Scalar, Storage};

/// A handler that has been checked.
#[derive(Clone, Debug)]
pub struct Program {
    /// The source's name and text, for faults.
    pub(crate) name: String,
    pub(crate) source: String,
    /// The offset of each record in memory.
    pub(crate) records: Vec<Placed>,
    /// Static variables whose first value is not zero.
    pub(crate) initial: Vec<(u32, Storage, u64)>,
    /// The number of bytes of a handler's memory, the header included.
    pub(crate) memory_size: u32,
    /// Scalar variables, temporary ones included.
    pub(crate) locals: Vec<Storage>,
    /// The functions that it calls, by number.
    pub(crate) functions: Vec<Function>,
    pub(crate) body: Vec<Stmt>,
    /// Whether there is any loop; without one no fuel is needed.
    pub(crate) has_loops: bool,
    /// The first computation with a double.
    pub(crate) double_at: Option<Span>,
    /// The number of its operations.
    pub(crate) operations: u32,
}

/// A record and its address.
#[derive(Clone, Debug)]
pub struct Placed {
    /// The record.
    pub record: Record,
    /// Its offset in the handler's memory.
    pub offset: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum Stmt {
    Eval(Expr),
    If(Expr, Vec<Self>, Vec<Self>),
    Loop(Loop),
    Return(Option<Expr>),
    Break,
    Continue,
    /// Clears `len` bytes of memory; both numbers are multiples of 8.
    Clear {
        offset: u32,
        size: u32,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) test_first: bool,
    pub(crate) condition: Option<Expr>,
    pub(crate) step: Option<Expr>,
    pub(crate) body: Vec<Stmt>,
    /// The cost of each turn, without inner loops.
    pub(crate) cost: u32,
    /// Its place in the source, for the fault.
    pub(crate) at: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) kind: Kind,
    pub(crate) ty: Scalar,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Constant(u64),
    Local(u16),
    Set(u16, Box<Expr>),
    Load(Place),
    Store(Place, Box<Expr>),
    /// Reads a place into a local, evaluates, writes; its value is the old or the new one.
    Modify {
        place: Place,
        temporary: u16,
        value: Box<Expr>,
        old: bool,
    },
    /// A double with its sign inverted.
    Negate(Box<Expr>),
    Operate(Operator, Box<Expr>, Box<Expr>),
    /// A comparison of two values of the same type; 0 or 1.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    Both(Box<Expr>, Box<Expr>),
    Either(Box<Expr>, Box<Expr>),
    Choose(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A conversion from the inner expression's type to this one's.
    Convert(Box<Expr>),
    /// Truncated to a small stored type.
    Narrow(Storage, Box<Expr>),
    Call(u16, Vec<Expr>),
    Then(Box<Expr>, Box<Expr>),
}

/// An address: a constant, and an index for each dimension.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) offset: u32,
    pub(crate) storage: Storage,
    pub(crate) indices: Vec<Index>,
}

#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) value: Expr,
    /// Values at or above this raise a fault.
    pub(crate) length: u32,
    pub(crate) stride: u32,
    pub(crate) at: u32,
}

impl Expr {
    pub(crate) fn constant(bits: u64, ty: Scalar) -> Self {
        Self { kind: Kind::Constant(bits), ty }
    }

    pub(crate) fn as_constant(&self) -> Option<u64> {
        match self.kind {
            Kind::Constant(bits) => Some(bits),
            _ => None,
        }
    }
}

impl Program {
    /// The name of its source.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The records that it reads and writes, with their addresses.
    pub fn records(&self) -> &[Placed] {
        &self.records
    }

    /// The record of a name.
    pub fn record(&self, name: &str) -> Option<&Placed> {
        self.records.iter().find(|placed| placed.record.name == name)
    }

    /// The number of bytes of memory of one instance.
    pub fn memory_size(&self) -> usize {
        self.memory_size as usize
    }

    /// The host functions that it calls; a call's number is the index in this list.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Whether it has loops. Without loops it uses no fuel.
    pub fn has_loops(&self) -> bool {
        self.has_loops
    }

    /// The number of its operations.
    pub fn operations(&self) -> u32 {
        self.operations
    }

    /// Line and column of a byte of the source.
    pub fn position(&self, byte: u32) -> Position {
        Position::of(&self.source, byte)
    }
}

impl Expr {
    /// Calls `each` with every direct subexpression.
    pub(crate) fn each<'e>(&'e self, each: &mut impl FnMut(&'e Self)) {
        let place = |place: &'e Place, each: &mut dyn FnMut(&'e Self)| {
            place.indices.iter().for_each(|index| each(&index.value));
        };
        match &self.kind {
            Kind::Constant(_) | Kind::Local(_) => {}
            Kind::Set(_, a) | Kind::Negate(a) | Kind::Convert(a) | Kind::Narrow(_, a) => each(a),
            Kind::Load(of) => place(of, each),
            Kind::Store(of, value) | Kind::Modify { place: of, value, .. } => {
                place(of, each);
                each(value);
            }
            Kind::Operate(_, a, b)
            | Kind::Compare(_, a, b)
            | Kind::Both(a, b)
            | Kind::Either(a, b)
            | Kind::Then(a, b) => {
                each(a);
                each(b);
            }
            Kind::Choose(a, b, c) => {
                each(a);
                each(b);
                each(c);
            }
            Kind::Call(_, values) => values.iter().for_each(each),
        }
    }
}
