//! Syntax to the typed form: names to addresses, C's conversions written out, formats obeyed.

mod build;
mod copy;
mod declare;
mod expression;
mod place;
mod statement;

use std::borrow::Cow;

use self::declare::declare;
use crate::environment::{Environment, Function};
use crate::form::{Placed, Program};
use crate::limits::{DIAGNOSTICS_MAX, MEMORY_MAX, OPERATIONS_MAX};
use crate::memory::HEADER;
use crate::parse;
use crate::source::{CodeError, Diagnostic, Span};
use crate::syntax::Name;
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
}
