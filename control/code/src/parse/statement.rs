//! Statements: blocks, branches, loops, and the variables among them.

use super::{Parsed, Parser};
use crate::lex::Kind;
use crate::source::Diagnostic;
use crate::syntax::{Loop, Statement, Variable};

impl<'a> Parser<'a, '_> {
    pub(super) fn block(&mut self) -> Parsed<Vec<Statement<'a>>> {
        let opening = self.expect("{", "where a block begins")?;
        let mut statements = Vec::new();
        while !self.accept("}") {
            if self.token().kind == Kind::End {
                let what = "this \"{\" has no \"}\"";
                return Err(Diagnostic::new(opening, what, "write the \"}\" where its block ends"));
            }
            self.statement(&mut statements)?;
        }
        Ok(statements)
    }

    fn one(&mut self) -> Parsed<Box<Statement<'a>>> {
        let mut statements = Vec::new();
        self.statement(&mut statements)?;
        if let [Statement::Variable(variable), ..] = &statements[..] {
            let at = variable.declarator.name.at;
            let what = "a variable that is declared here could never be used";
            return Err(Diagnostic::new(at, what, "put braces around it"));
        }
        let single = statements.len() == 1;
        let only = statements.pop().filter(|_| single);
        Ok(Box::new(only.unwrap_or(Statement::Block(statements))))
    }

    /// Adds the parts of one statement; `int a, b;` is two, and `;` none.
    fn statement(&mut self, to: &mut Vec<Statement<'a>>) -> Parsed<()> {
        self.deeper(|parser| parser.statement_inside(to))
    }

    fn statement_inside(&mut self, to: &mut Vec<Statement<'a>>) -> Parsed<()> {
        let token = self.token();
        if self.accept(";") {
            return Ok(());
        }
        if self.peek_is("{") {
            to.push(Statement::Block(self.block()?));
            return Ok(());
        }
        let word = if token.kind == Kind::Name { self.text(token) } else { "" };
        match word {
            "if" => {
                self.at += 1;
                let condition = self.condition("behind if")?;
                let then = self.one()?;
                let other = if self.accept_word("else") { Some(self.one()?) } else { None };
                to.push(Statement::If(condition, then, other));
            }
            "while" => {
                self.at += 1;
                let condition = Some(self.condition("behind while")?);
                let body = self.one()?;
                let (first, step, at) = (Vec::new(), None, token.at);
                to.push(Statement::Loop(Loop {
                    first,
                    test_first: true,
                    condition,
                    step,
                    body,
                    at,
                }));
            }
            "do" => {
                self.at += 1;
                let body = self.one()?;
                if !self.accept_word("while") {
                    return Err(self.unexpected("behind do", "write \"while (CONDITION);\""));
                }
                let condition = Some(self.condition("behind while")?);
                self.expect(";", "behind do and while")?;
                let (first, step, at) = (Vec::new(), None, token.at);
                to.push(Statement::Loop(Loop {
                    first,
                    test_first: false,
                    condition,
                    step,
                    body,
                    at,
                }));
            }
            "for" => to.push(Statement::Loop(self.for_loop()?)),
            "return" => {
                self.at += 1;
                let value = if self.peek_is(";") { None } else { Some(self.expression()?) };
                self.expect(";", "behind return")?;
                to.push(Statement::Return(value));
            }
            "break" | "continue" => {
                self.at += 1;
                self.expect(";", "behind it")?;
                to.push(match word {
                    "break" => Statement::Break(token.at),
                    _ => Statement::Continue(token.at),
                });
            }
            "else" => {
                return Err(
                    self.error_at("this else has no if", "put the if's statement in braces")
                );
            }
            "const" => {
                let (name, value) = self.constant()?;
                to.push(Statement::Constant(name, value));
            }
            "static" => {
                self.at += 1;
                self.variables(true, to)?;
            }
            _ => {
                if !self.variables(false, to)? {
                    let value = self.expression()?;
                    self.expect(";", "behind it")?;
                    to.push(Statement::Eval(value));
                }
            }
        }
        Ok(())
    }

    /// `int a = 1, b[4];`: false if the present token is not a type.
    fn variables(&mut self, is_static: bool, to: &mut Vec<Statement<'a>>) -> Parsed<bool> {
        let Some(of) = self.type_name()? else {
            if is_static {
                return Err(self.unexpected("behind static", "write a type, such as int"));
            }
            return Ok(false);
        };
        loop {
            let declarator = self.declarator(of)?;
            let value = if self.accept("=") {
                if self.peek_is("{") {
                    let remedy = "assign the members one by one; all begin as 0";
                    return Err(self.error_at("arrays and structs have no initial values", remedy));
                }
                Some(self.assignment()?)
            } else {
                None
            };
            to.push(Statement::Variable(Variable { is_static, declarator, value }));
            if !self.accept(",") {
                break;
            }
        }
        self.expect(";", "behind a variable")?;
        Ok(true)
    }

    fn for_loop(&mut self) -> Parsed<Loop<'a>> {
        let at = self.next().at;
        self.expect("(", "behind for")?;
        let mut first = Vec::new();
        if !self.accept(";") && !self.variables(false, &mut first)? {
            first.push(Statement::Eval(self.expression()?));
            self.expect(";", "in for")?;
        }
        let condition = if self.peek_is(";") { None } else { Some(self.expression()?) };
        self.expect(";", "in for")?;
        let step = if self.peek_is(")") { None } else { Some(self.expression()?) };
        self.expect(")", "in for")?;
        let body = self.one()?;
        Ok(Loop { first, test_first: true, condition, step, body, at })
    }
}
