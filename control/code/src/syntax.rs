//! The parser's output for a source: declarations, statements and expressions with their places, not yet
//! checked.

use crate::source::Span;
use crate::types::{Scalar, Storage};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Name<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: Span,
}

/// `int`, `struct frame`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TypeName<'a> {
    Storage(Storage),
    Struct(Name<'a>),
}

/// `int a[4][2]`, the lengths from left to right.
#[derive(Debug)]
pub(crate) struct Declarator<'a> {
    pub(crate) of: TypeName<'a>,
    pub(crate) name: Name<'a>,
    pub(crate) lengths: Vec<Expr<'a>>,
}

#[derive(Debug)]
pub(crate) enum Declaration<'a> {
    /// `const NAME = VALUE;`
    Constant(Name<'a>, Expr<'a>),
    /// `struct NAME { ... };`
    Struct(Name<'a>, Vec<Declarator<'a>>),
    /// `input { ... };`, and likewise `output`, `shared` and `attributes`.
    Record(Name<'a>, Vec<Declarator<'a>>),
}

#[derive(Debug)]
pub(crate) struct Variable<'a> {
    pub(crate) is_static: bool,
    pub(crate) declarator: Declarator<'a>,
    pub(crate) value: Option<Expr<'a>>,
}

#[derive(Debug)]
pub(crate) struct Loop<'a> {
    pub(crate) first: Vec<Statement<'a>>,
    /// Whether the condition is tested before the first turn.
    pub(crate) test_first: bool,
    pub(crate) condition: Option<Expr<'a>>,
    pub(crate) step: Option<Expr<'a>>,
    pub(crate) body: Box<Statement<'a>>,
    /// The word that begins it.
    pub(crate) at: Span,
}

#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Variable(Variable<'a>),
    Constant(Name<'a>, Expr<'a>),
    Eval(Expr<'a>),
    Block(Vec<Self>),
    If(Expr<'a>, Box<Self>, Option<Box<Self>>),
    Loop(Loop<'a>),
    Return(Option<Expr<'a>>),
    Break(Span),
    Continue(Span),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Plus,
    Minus,
    Not,
    Complement,
}

selvedge_units::named! {
    /// An operator between two numbers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Operator {
        /// `+`
        Add = "+",
        /// `-`
        Subtract = "-",
        /// `*`
        Multiply = "*",
        /// `/`
        Divide = "/",
        /// `%`
        Remainder = "%",
        /// `<<`
        ShiftLeft = "<<",
        /// `>>`
        ShiftRight = ">>",
        /// `&`
        And = "&",
        /// `|`
        Or = "|",
        /// `^`
        Xor = "^",
    }
}

selvedge_units::named! {
    /// A comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Comparison {
        /// `==`
        Equal = "==",
        /// `!=`
        NotEqual = "!=",
        /// `<`
        Less = "<",
        /// `<=`
        LessEqual = "<=",
        /// `>`
        Greater = ">",
        /// `>=`
        GreaterEqual = ">=",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Operator(Operator),
    Comparison(Comparison),
    Both,
    Either,
}

#[derive(Debug)]
pub(crate) struct Expr<'a> {
    pub(crate) kind: ExprKind<'a>,
    pub(crate) at: Span,
    /// The depth of nesting below it.
    pub(crate) depth: u32,
}

#[derive(Debug)]
pub(crate) enum ExprKind<'a> {
    Integer(u64, Scalar),
    Double(f64),
    Name(&'a str),
    Member(Box<Expr<'a>>, Name<'a>),
    Index(Box<Expr<'a>>, Box<Expr<'a>>),
    Call(Name<'a>, Vec<Expr<'a>>),
    Unary(Unary, Box<Expr<'a>>),
    Binary(Binary, Box<Expr<'a>>, Box<Expr<'a>>),
    /// `a = b`, `a += b`.
    Assign(Option<Operator>, Box<Expr<'a>>, Box<Expr<'a>>),
    /// `++a`, `a--`: whether up, and whether its value is the previous one.
    Step {
        up: bool,
        old: bool,
        place: Box<Expr<'a>>,
    },
    Choose(Box<Expr<'a>>, Box<Expr<'a>>, Box<Expr<'a>>),
    Cast(Storage, Box<Expr<'a>>),
    Then(Box<Expr<'a>>, Box<Expr<'a>>),
    /// `sizeof(TYPE)`
    SizeOf(TypeName<'a>),
}
