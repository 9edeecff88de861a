//! Syntax to the typed form: names to addresses, C's conversions written out, formats obeyed. Nodes of that form
//! are counted, converted, and computed where all values are known.
//!
//! The checker has three files, as the language has: expressions, statements, and what both need, which is here.

mod declare;
mod expression;
mod statement;

use std::borrow::Cow;
use std::sync::Arc;

use self::declare::declare;
use self::expression::nearest;
use crate::arithmetic;
use crate::environment::{Environment, Function};
use crate::form::{Expr as Form, Kind, Place, Placed, Program};
use crate::limits::{DIAGNOSTICS_MAX, MEMORY_MAX, OPERATIONS_MAX};
use crate::memory::HEADER;
use crate::parse;
use crate::source::{CodeError, Diagnostic, Span};
use crate::syntax::{Comparison, Declarator, Expr, Name, Operator, TypeName};
use crate::types::{Scalar, Storage, Type};

/// Compiles a source to its typed form. The source may begin with declarations of its own, in addition to
/// those of the environment.
///
/// Time and memory are linear in the source, which is bounded, except for looking names up.
///
/// # Errors
/// The mistakes in the source: up to twenty, with line, column and remedy.
///
/// # Examples
/// ```
/// use selvedge_control_code::{Environment, Memory, compile, interpret};
///
/// let formats = "input { int cpu, memory; };";
/// let environment = Environment::parse("load", formats)?;
/// let source = "{ if (input.cpu > 80 && input.memory < 1000) return 1; return 0; }";
/// let program = compile("filter", source, &environment)?;
/// let mut memory = Memory::new(&program);
/// memory.record_mut(&program, "input").unwrap()[..4].copy_from_slice(&90_i32.to_le_bytes());
/// assert_eq!(interpret::call(&program, &mut memory, &mut interpret::NoHost), Ok(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compile(name: &str, source: &str, environment: &Environment) -> Result<Program, CodeError> {
    let failed = |diagnostics| CodeError::new(name, source, diagnostics);
    let unit = parse::unit(source).map_err(|mistake| failed(vec![mistake]))?;
    let Some(body) = unit.body else {
        let what = "the source has no handler";
        return Err(failed(vec![Diagnostic::new(unit.end, what, "write a block: { ... }")]));
    };
    let mut environment = Cow::Borrowed(environment);
    if !unit.declarations.is_empty() {
        declare(environment.to_mut(), &unit.declarations).map_err(failed)?;
    }
    let mut checker = Checker::new(&environment).map_err(|mistake| failed(vec![mistake]))?;
    let body = checker.block(&body);
    if checker.operations > OPERATIONS_MAX && checker.diagnostics.is_empty() {
        let what = format!("the handler has more than {OPERATIONS_MAX} operations");
        checker.record(Diagnostic::new(unit.end, what, "use loops, or several handlers"));
    }
    if !checker.diagnostics.is_empty() {
        return Err(failed(checker.diagnostics));
    }
    Ok(Program {
        name: name.to_owned(),
        source: source.to_owned(),
        records: checker.records,
        initial: checker.initial,
        memory_size: checker.memory.next_multiple_of(8),
        locals: checker.locals,
        functions: checker.functions,
        body,
        has_loops: checker.has_loops,
        double_at: checker.double_at,
        operations: checker.operations,
    })
}

/// The meaning of a name.
#[derive(Clone, Debug)]
enum Binding {
    Local(u16, Storage),
    /// A static variable, an array or a struct.
    Memory(u32, Type),
    Constant(u64, Scalar),
}

struct Checker<'a> {
    environment: &'a Environment,
    records: Vec<Placed>,
    initial: Vec<(u32, Storage, u64)>,
    locals: Vec<Storage>,
    functions: Vec<Function>,
    /// Innermost last.
    names: Vec<(&'a str, Binding)>,
    /// Where each open block's names begin.
    blocks: Vec<usize>,
    diagnostics: Vec<Diagnostic>,
    memory: u32,
    scratch: u32,
    /// The cost of one turn of the innermost loop so far.
    weight: u32,
    operations: u32,
    loops: u32,
    has_loops: bool,
    double_at: Option<Span>,
    /// The place that is being checked, for mistakes inside of it.
    at: Span,
}

impl<'a> Checker<'a> {
    fn new(environment: &'a Environment) -> Result<Self, Diagnostic> {
        let (mut memory, mut records) = (HEADER, Vec::new());
        for record in &environment.records {
            let offset = memory.next_multiple_of(8);
            memory = offset.saturating_add(record.layout.size);
            if memory > MEMORY_MAX {
                let what = format!("with {} the records take {memory} bytes", record.name);
                let remedy = format!("make arrays shorter; there is room for {MEMORY_MAX}");
                return Err(Diagnostic::new(Span::default(), what, remedy));
            }
            records.push(Placed { record: record.clone(), offset });
        }
        Ok(Self {
            environment,
            records,
            initial: Vec::new(),
            locals: Vec::new(),
            functions: Vec::new(),
            names: Vec::new(),
            blocks: Vec::new(),
            diagnostics: Vec::new(),
            memory,
            scratch: 0,
            weight: 0,
            operations: 0,
            loops: 0,
            has_loops: false,
            double_at: None,
            at: Span::default(),
        })
    }

    /// Reserves room in memory.
    fn allocate(&mut self, size: u32, at: Span) -> Result<u32, Diagnostic> {
        let offset = self.memory.next_multiple_of(8);
        let end = offset.saturating_add(size.next_multiple_of(8));
        if end > MEMORY_MAX {
            let what = format!("with this the handler's memory takes {end} bytes");
            let remedy = format!("make arrays shorter; there is room for {MEMORY_MAX}");
            return Err(Diagnostic::new(at, what, remedy));
        }
        self.memory = end;
        Ok(offset)
    }

    fn lookup(&self, name: &str) -> Option<&Binding> {
        self.names.iter().rev().find(|(known, _)| *known == name).map(|(_, binding)| binding)
    }

    /// Makes a name known in the innermost block.
    fn bind(&mut self, name: Name<'a>, binding: Binding) -> Result<(), Diagnostic> {
        let start = self.blocks.last().copied().unwrap_or(0);
        let declared = self.names[start..].iter().any(|(known, _)| *known == name.text);
        let record = self.records.iter().any(|placed| placed.record.name == name.text);
        self.names.push((name.text, binding));
        if declared || record {
            let what = format!("\"{}\" is declared already", name.text);
            return Err(Diagnostic::new(name.at, what, "take another name"));
        }
        Ok(())
    }

    /// Records a mistake; checking continues behind it.
    fn record(&mut self, mistake: Diagnostic) {
        if self.diagnostics.len() < DIAGNOSTICS_MAX {
            self.diagnostics.push(mistake);
        }
    }

    /// Whether no more mistakes are recorded.
    fn is_full(&self) -> bool {
        self.diagnostics.len() >= DIAGNOSTICS_MAX || self.operations > OPERATIONS_MAX
    }

    fn node(&mut self, kind: Kind, ty: Scalar) -> Form {
        self.weight = self.weight.saturating_add(1);
        self.operations = self.operations.saturating_add(1);
        if ty == Scalar::Double && self.double_at.is_none() && !matches!(kind, Kind::Constant(_)) {
            self.double_at = Some(self.at);
        }
        Form { kind, ty }
    }

    fn literal(&mut self, bits: u64, ty: Scalar) -> Form {
        self.node(Kind::Constant(bits), ty)
    }

    fn convert(&mut self, from: Form, to: Scalar) -> Form {
        if from.ty == to {
            return from;
        }
        if let Some(bits) = from.as_constant() {
            return Form::constant(arithmetic::convert(from.ty, to, bits), to);
        }
        self.node(Kind::Convert(Box::new(from)), to)
    }

    /// A value as a variable of a type stores it.
    fn stored(&mut self, value: Form, storage: Storage) -> Form {
        let value = self.convert(value, storage.scalar());
        if storage.size() >= 4 {
            return value;
        }
        if let Some(bits) = value.as_constant() {
            return Form::constant(arithmetic::narrow(storage, bits), value.ty);
        }
        let ty = value.ty;
        self.node(Kind::Narrow(storage, Box::new(value)), ty)
    }

    /// An operation on two values of one type.
    fn operate(&mut self, operator: Operator, a: Form, b: Form) -> Form {
        let ty = a.ty;
        if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
            return Form::constant(arithmetic::operate(operator, ty, x, y), ty);
        }
        self.node(Kind::Operate(operator, Box::new(a), Box::new(b)), ty)
    }

    /// A comparison of two values of one type.
    fn compare(&mut self, comparison: Comparison, a: Form, b: Form) -> Form {
        if let (Some(x), Some(y)) = (a.as_constant(), b.as_constant()) {
            let holds = arithmetic::compare(comparison, a.ty, x, y);
            return Form::constant(u64::from(holds), Scalar::Int);
        }
        self.node(Kind::Compare(comparison, Box::new(a), Box::new(b)), Scalar::Int)
    }

    /// Whether a value is not zero, in a form whose bits may be tested.
    fn truth(&mut self, value: Form) -> Form {
        if value.ty != Scalar::Double {
            return value;
        }
        let zero = Form::constant(0, Scalar::Double);
        self.compare(Comparison::NotEqual, value, zero)
    }

    /// 1 if a value is zero, else 0.
    fn not(&mut self, value: Form) -> Form {
        let zero = Form::constant(0, value.ty);
        self.compare(Comparison::Equal, value, zero)
    }

    fn negate(&mut self, value: Form) -> Form {
        if value.ty != Scalar::Double {
            let zero = Form::constant(0, value.ty);
            return self.operate(Operator::Subtract, zero, value);
        }
        match value.as_constant() {
            Some(bits) => Form::constant(arithmetic::negate(bits), Scalar::Double),
            None => self.node(Kind::Negate(Box::new(value)), Scalar::Double),
        }
    }

    fn local(&mut self, local: u16) -> Form {
        let ty = self.locals[usize::from(local)].scalar();
        self.node(Kind::Local(local), ty)
    }

    /// Sets a local to a value of its type.
    fn set(&mut self, local: u16, value: Form) -> Form {
        let ty = value.ty;
        self.node(Kind::Set(local, Box::new(value)), ty)
    }

    fn load(&mut self, place: Place) -> Form {
        let ty = place.storage.scalar();
        self.node(Kind::Load(place), ty)
    }

    fn then(&mut self, first: Form, second: Form) -> Form {
        let ty = second.ty;
        self.node(Kind::Then(Box::new(first), Box::new(second)), ty)
    }

    /// The type that a declarator gives to its name.
    fn ty(&mut self, declarator: &Declarator<'a>) -> Result<Type, Diagnostic> {
        let mut ty = self.named_type(&declarator.of)?;
        for length in declarator.lengths.iter().rev() {
            let (bits, scalar) = self.constant(length)?;
            let value = (scalar != Scalar::Double).then_some(bits as i64);
            let Some(count) = value.filter(|v| (1..=i64::from(MEMORY_MAX)).contains(v)) else {
                let what = "this is no length for an array".to_owned();
                let remedy = format!("write a constant integer from 1 to {MEMORY_MAX}");
                return Err(Diagnostic::new(length.at, what, remedy));
            };
            ty = Type::Array(Arc::new(ty), count as u32);
            if ty.size() > MEMORY_MAX {
                let what = format!("this array takes more than {MEMORY_MAX} bytes");
                return Err(Diagnostic::new(declarator.name.at, what, "make it shorter"));
            }
        }
        Ok(ty)
    }

    fn named_type(&self, name: &TypeName<'_>) -> Result<Type, Diagnostic> {
        match name {
            TypeName::Storage(storage) => Ok(Type::Scalar(*storage)),
            TypeName::Struct(name) => {
                let found = self.environment.structs.get(name.text);
                found.map(|layout| Type::Struct(Arc::clone(layout))).ok_or_else(|| {
                    let known = self.environment.structs.keys().map(String::as_str);
                    let what = format!("there is no struct \"{}\"", name.text);
                    Diagnostic::new(name.at, what, nearest(name.text, known))
                })
            }
        }
    }

    /// The value of a constant expression.
    fn constant(&mut self, value: &Expr<'a>) -> Result<(u64, Scalar), Diagnostic> {
        let checked = self.value(value)?;
        checked.as_constant().map(|bits| (bits, checked.ty)).ok_or_else(|| {
            let remedy = "use numbers and constants only";
            Diagnostic::new(value.at, "this is not known before the handler runs", remedy)
        })
    }
}
