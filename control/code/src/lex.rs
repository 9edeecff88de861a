//! Source text to tokens: those of C, without strings and the preprocessor.

use crate::limits::{NAME_MAX, SOURCE_MAX};
use crate::source::{Diagnostic, Span};
use crate::types::Scalar;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Name,
    Integer(u64, Scalar),
    Double(f64),
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) at: Span,
}

/// All signs, longer ones before their prefixes.
const SIGNS: &[&str] = &[
    "<<=", ">>=", "++", "--", "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=",
    "*=", "/=", "%=", "&=", "|=", "^=", "+", "-", "*", "/", "%", "=", "<", ">", "!", "~", "&", "|",
    "^", "?", ":", ";", ",", ".", "(", ")", "[", "]", "{", "}",
];

/// Splits a source. The last token is `End`.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, Diagnostic> {
    if source.len() > SOURCE_MAX {
        let what = format!("the source has {} bytes, more than {SOURCE_MAX}", source.len());
        return Err(Diagnostic::new(Span::default(), what, "split the work into several handlers"));
    }
    let mut lexer = Lexer { source, at: 0 };
    let mut tokens = Vec::with_capacity(source.len() / 4 + 1);
    loop {
        lexer.blanks()?;
        let start = lexer.at;
        let kind = lexer.token()?;
        tokens.push(Token { kind, at: Span { start: start as u32, end: lexer.at as u32 } });
        if kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.source[self.at..]
    }

    fn span(&self, start: usize) -> Span {
        Span { start: start as u32, end: self.at as u32 }
    }

    /// Skips white space and comments.
    fn blanks(&mut self) -> Result<(), Diagnostic> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            self.at += rest.len() - trimmed.len();
            if trimmed.starts_with("//") {
                self.at += trimmed.find('\n').unwrap_or(trimmed.len());
            } else if let Some(inside) = trimmed.strip_prefix("/*") {
                let Some(length) = inside.find("*/") else {
                    let start = self.at as u32;
                    let at = Span { start, end: start + 2 };
                    return Err(Diagnostic::new(at, "this comment has no end", "write \"*/\""));
                };
                self.at += length + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Kind, Diagnostic> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Kind::End);
        };
        let start = self.at;
        if first.is_ascii_alphabetic() || first == '_' {
            let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
            self.at += rest.find(|c| !inside(c)).unwrap_or(rest.len());
            if self.at - start > NAME_MAX {
                let what = format!("this name has more than {NAME_MAX} characters");
                return Err(Diagnostic::new(self.span(start), what, "shorten it"));
            }
            return Ok(Kind::Name);
        }
        let second = rest.as_bytes().get(1).copied().unwrap_or(0);
        if first.is_ascii_digit() || (first == '.' && second.is_ascii_digit()) {
            return self.number();
        }
        if first == '\'' {
            return self.character();
        }
        if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            self.at += sign.len();
            return Ok(Kind::Sign(sign));
        }
        self.at += first.len_utf8();
        let (what, remedy) = match first {
            '"' => ("E-code has no strings".to_owned(), "compare single characters, such as 'a'"),
            '#' => ("E-code has no preprocessor".to_owned(), "declare \"const NAME = VALUE;\""),
            _ => (format!("{first:?} means nothing in E-code"), "take it out"),
        };
        Err(Diagnostic::new(self.span(start), what, remedy))
    }

    /// A number in C's syntax; octal ones are refused, since `010` is seldom meant as 8.
    fn number(&mut self) -> Result<Kind, Diagnostic> {
        let (start, rest) = (self.at, self.rest());
        let hexadecimal = rest.starts_with("0x") || rest.starts_with("0X");
        let mut length = 0;
        for (index, c) in rest.char_indices() {
            let exponent = !hexadecimal
                && (c == '+' || c == '-')
                && rest[..index].ends_with(['e', 'E'])
                && index > 0;
            if !(c.is_ascii_alphanumeric() || c == '.' || c == '_' || exponent) {
                break;
            }
            length = index + 1;
        }
        self.at += length;
        let text = &rest[..length];
        let bad = |what: String, remedy: &str| Diagnostic::new(self.span(start), what, remedy);
        if !hexadecimal && text.contains(['.', 'e', 'E']) {
            let value: f64 = text.parse().map_err(|_| {
                bad(
                    format!("\"{}\" is no number", shorten(text)),
                    "write a number such as 1.5 or 2e3",
                )
            })?;
            if !value.is_finite() {
                return Err(bad(
                    format!("{} is too large for a double", shorten(text)),
                    "write less",
                ));
            }
            return Ok(Kind::Double(value));
        }
        let lower = text.to_ascii_lowercase();
        let digits = lower.trim_end_matches(['u', 'l']);
        let suffix = &lower[digits.len()..];
        let (unsigned, long) = match suffix {
            "" => (false, false),
            "u" => (true, false),
            "l" | "ll" => (false, true),
            "ul" | "lu" | "ull" | "llu" => (true, true),
            _ => {
                let what = format!("\"{}\" is no ending of a number", shorten(suffix));
                return Err(bad(what, "there are u, l and ul"));
            }
        };
        if !hexadecimal && digits.len() > 1 && digits.starts_with('0') {
            let remedy = "leave the zeros before it out, or write it as hexadecimal with 0x";
            return Err(bad(format!("\"{}\" would be octal in C", shorten(text)), remedy));
        }
        let value =
            if hexadecimal { u64::from_str_radix(&digits[2..], 16) } else { digits.parse::<u64>() };
        let value = value.map_err(|_| {
            let what = format!("\"{}\" is no number of at most 64 bits", shorten(text));
            bad(what, "write decimal or hexadecimal digits, such as 42 or 0x2a")
        })?;
        // C's rule: the first type that holds it; hexadecimal ones may be unsigned.
        let may = unsigned || hexadecimal;
        let scalar = match value {
            0..=0x7fff_ffff if !unsigned && !long => Scalar::Int,
            0..=0xffff_ffff if may && !long => Scalar::Unsigned,
            0..=0x7fff_ffff_ffff_ffff if !unsigned => Scalar::Long,
            _ if may => Scalar::UnsignedLong,
            _ => {
                let what = format!("{} is too large for a long", shorten(text));
                return Err(bad(what, "write it with the ending ul"));
            }
        };
        Ok(Kind::Integer(value, scalar))
    }

    /// A character constant: an `int`, as in C.
    fn character(&mut self) -> Result<Kind, Diagnostic> {
        let (start, bytes) = (self.at, self.rest().as_bytes());
        let (value, length) = match bytes {
            [_, b'\\', escaped, b'\'', ..] => {
                let value = match escaped {
                    b'n' => Some(b'\n'),
                    b't' => Some(b'\t'),
                    b'r' => Some(b'\r'),
                    b'0' => Some(0),
                    b'\\' | b'\'' | b'"' => Some(*escaped),
                    _ => None,
                };
                (value, 4)
            }
            [_, plain, b'\'', ..] if plain.is_ascii() && !plain.is_ascii_control() => {
                (Some(*plain).filter(|c| !matches!(c, b'\'' | b'\\')), 3)
            }
            _ => (None, 1),
        };
        // Skipped only when all of it is ASCII, or the quote alone.
        self.at += if value.is_some() { length } else { 1 };
        let value = value.ok_or_else(|| {
            let remedy = "write one ASCII character, such as 'a' or '\\n', or its number";
            Diagnostic::new(self.span(start), "this is no character constant", remedy)
        })?;
        Ok(Kind::Integer(u64::from(value), Scalar::Int))
    }
}

/// The beginning of a text that may be long.
pub(crate) fn shorten(text: &str) -> &str {
    text.char_indices().nth(40).map_or(text, |(at, _)| &text[..at])
}
