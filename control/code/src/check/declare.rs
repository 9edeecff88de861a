//! Declarations: constants, structs and records into an environment; types and their sizes.

use std::sync::Arc;

use super::Checker;
use crate::environment::{Access, Constant, Environment, Record};
use crate::limits::MEMORY_MAX;
use crate::parse;
use crate::source::{CodeError, Diagnostic};
use crate::syntax::{Declaration, Declarator, Expr, Name};
use crate::types::{Struct, Type};

impl Environment {
    /// Reads declarations; docs/ecode.md lists the allowed ones.
    ///
    /// # Errors
    /// All mistakes, with lines and columns; `name` precedes them.
    pub fn parse(name: &str, text: &str) -> Result<Self, CodeError> {
        let mut environment = Self::default();
        let failed = |diagnostics| CodeError::new(name, text, diagnostics);
        let unit = parse::unit(text).map_err(|mistake| failed(vec![mistake]))?;
        if unit.body.is_some() {
            let remedy = "give the handler in a file of its own";
            let what = "formats hold declarations only, and here is a handler's block";
            return Err(failed(vec![Diagnostic::new(unit.body_at, what, remedy)]));
        }
        declare(&mut environment, &unit.declarations).map_err(failed)?;
        Ok(environment)
    }
}

/// Adds declarations to an environment, in their order.
pub(super) fn declare(
    environment: &mut Environment,
    declarations: &[Declaration<'_>],
) -> Result<(), Vec<Diagnostic>> {
    let mut diagnostics = Vec::new();
    for declaration in declarations {
        if let Err(mistake) = one(environment, declaration) {
            diagnostics.push(mistake);
        }
        if diagnostics.len() >= crate::limits::DIAGNOSTICS_MAX {
            break;
        }
    }
    if diagnostics.is_empty() { Ok(()) } else { Err(diagnostics) }
}

fn one(environment: &mut Environment, declaration: &Declaration<'_>) -> Result<(), Diagnostic> {
    match declaration {
        Declaration::Constant(name, value) => {
            fresh(name, environment.constants.contains_key(name.text))?;
            let constant = constant(environment, value)?;
            environment.constants.insert(name.text.to_owned(), constant);
        }
        Declaration::Struct(name, members) => {
            fresh(name, environment.structs.contains_key(name.text))?;
            let layout = layout(environment, name, members)?;
            environment.structs.insert(name.text.to_owned(), layout);
        }
        Declaration::Record(name, members) => {
            fresh(name, environment.records.iter().any(|record| record.name == name.text))?;
            let read = matches!(name.text, "input" | "attributes");
            let access = if read { Access::Read } else { Access::Write };
            let layout = layout(environment, name, members)?;
            environment.records.push(Record { name: name.text.to_owned(), layout, access });
        }
    }
    Ok(())
}

fn fresh(name: &Name<'_>, known: bool) -> Result<(), Diagnostic> {
    if known {
        let what = format!("\"{}\" is declared already", name.text);
        let remedy = "take it out; a source's own declarations come beside its channel's formats";
        return Err(Diagnostic::new(name.at, what, remedy));
    }
    Ok(())
}

fn constant(environment: &Environment, value: &Expr<'_>) -> Result<Constant, Diagnostic> {
    // Records are not needed here, so none are placed, and nothing can fail.
    let bare = Environment { records: Vec::new(), ..environment.clone() };
    let mut checker = Checker::new(&bare)?;
    let (bits, scalar) = checker.constant(value)?;
    Ok(Constant { bits, scalar })
}

fn layout(
    environment: &Environment,
    name: &Name<'_>,
    members: &[Declarator<'_>],
) -> Result<Arc<Struct>, Diagnostic> {
    if members.is_empty() {
        let what = format!("\"{}\" has no members", name.text);
        return Err(Diagnostic::new(name.at, what, "declare one, such as int value;"));
    }
    let bare = Environment { records: Vec::new(), ..environment.clone() };
    let mut checker = Checker::new(&bare)?;
    let mut laid: Vec<(String, Type)> = Vec::with_capacity(members.len());
    let mut seen = std::collections::HashSet::new();
    for member in members {
        if !seen.insert(member.name.text) {
            let what = format!("\"{}\" is a member already", member.name.text);
            return Err(Diagnostic::new(member.name.at, what, "take another name"));
        }
        laid.push((member.name.text.to_owned(), checker.ty(member)?));
    }
    let layout = Struct::new(name.text, laid);
    if layout.size > MEMORY_MAX {
        let what = format!("\"{}\" takes more than {MEMORY_MAX} bytes", name.text);
        return Err(Diagnostic::new(name.at, what, "make its arrays shorter"));
    }
    Ok(Arc::new(layout))
}
