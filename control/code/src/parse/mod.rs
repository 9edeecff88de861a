//! Tokens to syntax, by recursive descent: one token of look-ahead, two where a cast may begin.
//! The grammar is in docs/ecode.md. Depth is bounded, so no source overflows the stack.

mod expression;

use crate::lex::{self, Kind, Token, shorten};
use crate::limits::{DECLARATIONS_MAX, NEST_MAX};
use crate::source::{Diagnostic, Span};
use crate::syntax::{Declaration, Declarator, Loop, Name, Statement, TypeName, Variable};
use crate::types::Storage;

type Parsed<T> = Result<T, Diagnostic>;

/// A whole source: declarations of its own, then the handler's block, if it has one.
pub(crate) struct Unit<'a> {
    pub(crate) declarations: Vec<Declaration<'a>>,
    pub(crate) body: Option<Vec<Statement<'a>>>,
    /// Where the block begins.
    pub(crate) body_at: Span,
    /// Where the source ends.
    pub(crate) end: Span,
}

/// Words that can't be names.
const WORDS: &[&str] = &[
    "auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else",
    "enum", "extern", "float", "for", "goto", "if", "int", "long", "register", "return", "short",
    "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void",
    "volatile", "while",
];

pub(crate) fn unit(source: &str) -> Parsed<Unit<'_>> {
    let tokens = lex::tokens(source)?;
    let mut parser = Parser { source, tokens: &tokens, at: 0, depth: 0 };
    let mut declarations = Vec::new();
    while let Some(declaration) = parser.declaration()? {
        declarations.push(declaration);
        if declarations.len() > DECLARATIONS_MAX {
            let what = format!("there are more than {DECLARATIONS_MAX} declarations");
            return Err(parser.error_at(what, "take out those that are not needed"));
        }
    }
    let body_at = parser.token().at;
    let body = if parser.peek_is("{") { Some(parser.block()?) } else { None };
    if parser.token().kind != Kind::End {
        let (what, remedy) = match body {
            Some(_) => ("after the handler's block", "end the source with the block's \"}\""),
            None => ("here", "declare something, or begin the handler's block with \"{\""),
        };
        return Err(parser.unexpected(what, remedy));
    }
    Ok(Unit { declarations, body, body_at, end: parser.token().at })
}

pub(super) struct Parser<'a, 't> {
    source: &'a str,
    tokens: &'t [Token],
    at: usize,
    depth: u32,
}

impl<'a> Parser<'a, '_> {
    fn token(&self) -> Token {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn token_after(&self) -> Token {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    fn text(&self, token: Token) -> &'a str {
        &self.source[token.at.start as usize..token.at.end as usize]
    }

    fn next(&mut self) -> Token {
        let token = self.token();
        self.at += 1;
        token
    }

    fn peek_is(&self, sign: &str) -> bool {
        matches!(self.token().kind, Kind::Sign(s) if s == sign)
    }

    fn peek_word_is(&self, word: &str) -> bool {
        self.token().kind == Kind::Name && self.text(self.token()) == word
    }

    fn accept(&mut self, sign: &str) -> bool {
        let sees = self.peek_is(sign);
        self.at += usize::from(sees);
        sees
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let sees = self.peek_word_is(word);
        self.at += usize::from(sees);
        sees
    }

    fn error_at(&self, what: impl Into<String>, remedy: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.token().at, what, remedy)
    }

    /// A mistake: the present token does not belong `at` such a place.
    fn unexpected(&self, place: &str, remedy: impl Into<String>) -> Diagnostic {
        let token = self.token();
        let what = match token.kind {
            Kind::End => format!("the source ends {place}"),
            _ => format!("\"{}\" does not belong {place}", shorten(self.text(token))),
        };
        self.error_at(what, remedy)
    }

    fn expect(&mut self, sign: &str, place: &str) -> Parsed<Span> {
        if !self.peek_is(sign) {
            // A missing sign is reported behind the previous token, often on the line before.
            let before = self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)].at;
            let mistake = self.unexpected(place, format!("write \"{sign}\" before it"));
            let at = Span { start: before.end.saturating_sub(1), end: before.end };
            let missing = sign == ";" && self.at > 0;
            return Err(if missing {
                Diagnostic::new(at, "\";\" is missing here", "write \";\" behind it")
            } else {
                mistake
            });
        }
        Ok(self.next().at)
    }

    fn name(&mut self, of: &str) -> Parsed<Name<'a>> {
        let token = self.token();
        let text = self.text(token);
        if token.kind != Kind::Name {
            return Err(self.unexpected(&format!("where the name of {of} is"), "write a name"));
        }
        if WORDS.contains(&text) {
            let what = format!("\"{text}\" is a word of the language");
            return Err(self.error_at(what, format!("give {of} another name")));
        }
        self.at += 1;
        Ok(Name { text, at: token.at })
    }

    /// Nests one level deeper while `inside` runs.
    fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= NEST_MAX {
            let what = format!("this nests more than {NEST_MAX} deep");
            return Err(self.error_at(what, "use a variable in between"));
        }
        self.depth += 1;
        let done = inside(self);
        self.depth -= 1;
        done
    }

    /// A type's name, if the present token begins one.
    fn type_name(&mut self) -> Parsed<Option<TypeName<'a>>> {
        let start = self.token();
        if start.kind != Kind::Name {
            return Ok(None);
        }
        match self.text(start) {
            "struct" => {
                self.at += 1;
                return self.name("the struct").map(|name| Some(TypeName::Struct(name)));
            }
            "float" => {
                return Err(self.error_at("E-code has no float", "write \"double\""));
            }
            word @ ("void" | "union" | "enum" | "typedef" | "goto" | "switch" | "volatile") => {
                let remedy = match word {
                    "goto" | "switch" => "use if, for and while",
                    "enum" => "declare constants: const NAME = VALUE;",
                    "void" => "a handler is one block in braces, and returns a long",
                    _ => "use a struct of numbers and arrays",
                };
                return Err(self.error_at(format!("E-code has no {word}"), remedy));
            }
            _ => {}
        }
        let (mut words, mut last) = (Vec::new(), start.at);
        while self.token().kind == Kind::Name {
            let word = self.text(self.token());
            if !["char", "short", "int", "long", "signed", "unsigned", "double"].contains(&word) {
                break;
            }
            words.push(word);
            last = self.next().at;
        }
        if words.is_empty() {
            return Ok(None);
        }
        // The order of words does not matter, nor does a second "long".
        let has = |word: &str| words.contains(&word);
        let count = |word: &str| words.iter().filter(|w| **w == word).count();
        let unsigned = has("unsigned");
        let storage = match () {
            () if count("long") > 2 || count("signed") + count("unsigned") > 1 => None,
            () if ["char", "short", "int", "double"].iter().any(|w| count(w) > 1) => None,
            () if has("double") => (words.len() == 1).then_some(Storage::Double),
            () if has("char") => {
                let plain = words.len() == 1 || (words.len() == 2 && unsigned);
                plain.then_some(Storage::Char)
            }
            () if has("short") && has("long") => None,
            () if has("short") && unsigned => Some(Storage::UnsignedShort),
            () if has("short") => Some(Storage::Short),
            () if has("long") && unsigned => Some(Storage::UnsignedLong),
            () if has("long") => Some(Storage::Long),
            () if unsigned => Some(Storage::Unsigned),
            () => Some(Storage::Int),
        };
        let storage = storage.ok_or_else(|| {
            let all = Storage::NAMES.join(", ");
            let what = format!("\"{}\" is no type", words.join(" "));
            Diagnostic::new(start.at.to(last), what, format!("there are {all}"))
        })?;
        Ok(Some(TypeName::Storage(storage)))
    }

    /// The name and lengths that follow a type.
    fn declarator(&mut self, of: TypeName<'a>) -> Parsed<Declarator<'a>> {
        if self.peek_is("*") {
            let remedy = "use an array, or a member of input, output or shared";
            return Err(self.error_at("E-code has no pointers", remedy));
        }
        let name = self.name("the variable")?;
        let mut lengths = Vec::new();
        while self.accept("[") {
            lengths.push(self.expression()?);
            self.expect("]", "in an array's length")?;
            if lengths.len() > 4 {
                return Err(self.error_at("an array has at most 4 dimensions", "use a struct"));
            }
        }
        Ok(Declarator { of, name, lengths })
    }

    /// `{ int a, b[4]; struct c d; }`
    fn members(&mut self) -> Parsed<Vec<Declarator<'a>>> {
        self.expect("{", "where members are declared")?;
        let mut members = Vec::new();
        while !self.accept("}") {
            let Some(of) = self.type_name()? else {
                let remedy = "write a member as TYPE NAME; and end with \"}\"";
                return Err(self.unexpected("among members", remedy));
            };
            loop {
                members.push(self.declarator(of)?);
                if members.len() > DECLARATIONS_MAX {
                    let what = format!("there are more than {DECLARATIONS_MAX} members");
                    return Err(self.error_at(what, "use an array"));
                }
                if !self.accept(",") {
                    break;
                }
            }
            self.expect(";", "behind a member")?;
        }
        self.accept(";");
        Ok(members)
    }

    fn declaration(&mut self) -> Parsed<Option<Declaration<'a>>> {
        let token = self.token();
        if token.kind != Kind::Name {
            return Ok(None);
        }
        let opens = matches!(self.token_after().kind, Kind::Sign("{"));
        match self.text(token) {
            "const" => {
                let (name, value) = self.constant()?;
                Ok(Some(Declaration::Constant(name, value)))
            }
            "struct" => {
                self.at += 1;
                let name = self.name("the struct")?;
                Ok(Some(Declaration::Struct(name, self.members()?)))
            }
            text @ ("input" | "output" | "shared" | "attributes") if opens => {
                self.at += 1;
                Ok(Some(Declaration::Record(Name { text, at: token.at }, self.members()?)))
            }
            _ if self.type_name()?.is_some() && self.token().kind == Kind::Name => {
                let function = matches!(self.token_after().kind, Kind::Sign("("));
                let (what, remedy) = if function {
                    ("E-code has no functions of its own", "write out what it does in the block")
                } else {
                    ("a variable is declared inside of the block", "move it behind the \"{\"")
                };
                Err(self.error_at(what, remedy))
            }
            _ => Ok(None),
        }
    }

    fn constant(&mut self) -> Parsed<(Name<'a>, crate::syntax::Expr<'a>)> {
        self.at += 1;
        let name = self.name("the constant")?;
        self.expect("=", "where a constant has its value")?;
        let value = self.expression()?;
        self.expect(";", "behind a constant")?;
        Ok((name, value))
    }

    fn block(&mut self) -> Parsed<Vec<Statement<'a>>> {
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
