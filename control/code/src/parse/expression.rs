//! Expressions, with C's precedence.

use super::{Parsed, Parser};
use crate::lex::Kind;
use crate::limits::{NEST_MAX, PARAMETERS_MAX};
use crate::source::{Diagnostic, Span};
use crate::syntax::{Binary, Comparison, Expr, ExprKind, Name, Operator, TypeName, Unary};

/// The binary operators, from loosest to tightest.
const LEVELS: &[&[(&str, Binary)]] = &[
    &[("||", Binary::Either)],
    &[("&&", Binary::Both)],
    &[("|", Binary::Operator(Operator::Or))],
    &[("^", Binary::Operator(Operator::Xor))],
    &[("&", Binary::Operator(Operator::And))],
    &[
        ("==", Binary::Comparison(Comparison::Equal)),
        ("!=", Binary::Comparison(Comparison::NotEqual)),
    ],
    &[
        ("<", Binary::Comparison(Comparison::Less)),
        ("<=", Binary::Comparison(Comparison::LessEqual)),
        (">", Binary::Comparison(Comparison::Greater)),
        (">=", Binary::Comparison(Comparison::GreaterEqual)),
    ],
    &[
        ("<<", Binary::Operator(Operator::ShiftLeft)),
        (">>", Binary::Operator(Operator::ShiftRight)),
    ],
    &[("+", Binary::Operator(Operator::Add)), ("-", Binary::Operator(Operator::Subtract))],
    &[
        ("*", Binary::Operator(Operator::Multiply)),
        ("/", Binary::Operator(Operator::Divide)),
        ("%", Binary::Operator(Operator::Remainder)),
    ],
];

const ASSIGNMENTS: &[(&str, Option<Operator>)] = &[
    ("=", None),
    ("+=", Some(Operator::Add)),
    ("-=", Some(Operator::Subtract)),
    ("*=", Some(Operator::Multiply)),
    ("/=", Some(Operator::Divide)),
    ("%=", Some(Operator::Remainder)),
    ("<<=", Some(Operator::ShiftLeft)),
    (">>=", Some(Operator::ShiftRight)),
    ("&=", Some(Operator::And)),
    ("|=", Some(Operator::Or)),
    ("^=", Some(Operator::Xor)),
];

impl<'a> Parser<'a, '_> {
    fn node(&self, kind: ExprKind<'a>, at: Span) -> Parsed<Expr<'a>> {
        let below = match &kind {
            ExprKind::Integer(..) | ExprKind::Double(_) | ExprKind::Name(_) => 0,
            ExprKind::SizeOf(_) => 0,
            ExprKind::Member(of, _) | ExprKind::Unary(_, of) | ExprKind::Cast(_, of) => of.depth,
            ExprKind::Step { place, .. } => place.depth,
            ExprKind::Index(a, b)
            | ExprKind::Binary(_, a, b)
            | ExprKind::Assign(_, a, b)
            | ExprKind::Then(a, b) => a.depth.max(b.depth),
            ExprKind::Choose(a, b, c) => a.depth.max(b.depth).max(c.depth),
            ExprKind::Call(_, all) => all.iter().map(|one| one.depth).max().unwrap_or(0),
        };
        if below >= NEST_MAX {
            let what = format!("this expression has more than {NEST_MAX} operators in a row");
            return Err(Diagnostic::new(at, what, "use a variable in between"));
        }
        Ok(Expr { kind, at, depth: below + 1 })
    }

    pub(super) fn in_parentheses(&mut self, place: &str) -> Parsed<Expr<'a>> {
        self.expect("(", place)?;
        let inside = self.expression()?;
        self.expect(")", "here")?;
        Ok(inside)
    }

    /// The condition of an `if` or a loop; `if (a = b)` is refused, `if ((a = b))` is not.
    pub(super) fn condition(&mut self, place: &str) -> Parsed<Expr<'a>> {
        let doubled = matches!(self.token_after().kind, Kind::Sign("("));
        let inside = self.in_parentheses(place)?;
        if let (ExprKind::Assign(None, ..), false) = (&inside.kind, doubled) {
            let remedy = "write \"==\" to compare, or a second pair of parentheses to assign";
            return Err(Diagnostic::new(inside.at, "this assigns where a condition is", remedy));
        }
        Ok(inside)
    }

    /// The whole, with commas.
    pub(super) fn expression(&mut self) -> Parsed<Expr<'a>> {
        let mut all = self.assignment()?;
        while self.accept(",") {
            let next = self.assignment()?;
            let at = all.at.to(next.at);
            all = self.node(ExprKind::Then(Box::new(all), Box::new(next)), at)?;
        }
        Ok(all)
    }

    pub(super) fn assignment(&mut self) -> Parsed<Expr<'a>> {
        self.deeper(|parser| {
            let left = parser.choice()?;
            let Kind::Sign(sign) = parser.token().kind else { return Ok(left) };
            let Some((_, operator)) = ASSIGNMENTS.iter().find(|(s, _)| *s == sign) else {
                return Ok(left);
            };
            parser.at += 1;
            let value = parser.assignment()?;
            let at = left.at.to(value.at);
            parser.node(ExprKind::Assign(*operator, Box::new(left), Box::new(value)), at)
        })
    }

    fn choice(&mut self) -> Parsed<Expr<'a>> {
        let condition = self.binary(0)?;
        if !self.accept("?") {
            return Ok(condition);
        }
        self.deeper(|parser| {
            let then = parser.expression()?;
            parser.expect(":", "behind ?")?;
            let other = parser.choice()?;
            let at = condition.at.to(other.at);
            let parts = (Box::new(condition), Box::new(then), Box::new(other));
            parser.node(ExprKind::Choose(parts.0, parts.1, parts.2), at)
        })
    }

    /// Precedence climbing: operators of at least this level.
    fn binary(&mut self, least: usize) -> Parsed<Expr<'a>> {
        let mut left = self.unary()?;
        while let Kind::Sign(sign) = self.token().kind {
            let found = LEVELS.iter().enumerate().skip(least).find_map(|(level, signs)| {
                signs.iter().find(|(s, _)| *s == sign).map(|(_, binary)| (level, *binary))
            });
            let Some((level, binary)) = found else { break };
            self.at += 1;
            let right = self.binary(level + 1)?;
            let at = left.at.to(right.at);
            left = self.node(ExprKind::Binary(binary, Box::new(left), Box::new(right)), at)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expr<'a>> {
        let token = self.token();
        let Kind::Sign(sign) = token.kind else {
            if token.kind == Kind::Name && self.text(token) == "sizeof" {
                return self.size_of();
            }
            return self.postfix();
        };
        let operator = match sign {
            "+" => Some(Unary::Plus),
            "-" => Some(Unary::Minus),
            "!" => Some(Unary::Not),
            "~" => Some(Unary::Complement),
            _ => None,
        };
        if let Some(operator) = operator {
            self.at += 1;
            let inside = self.deeper(Self::unary)?;
            let at = token.at.to(inside.at);
            return self.node(ExprKind::Unary(operator, Box::new(inside)), at);
        }
        match sign {
            "++" | "--" => {
                self.at += 1;
                let place = Box::new(self.deeper(Self::unary)?);
                let at = token.at.to(place.at);
                self.node(ExprKind::Step { up: sign == "++", old: false, place }, at)
            }
            "*" | "&" => {
                let remedy = "name the array's element or the struct's member itself";
                Err(self.error_at("E-code has no pointers", remedy))
            }
            "(" if self.begins_type() => {
                self.at += 1;
                let Some(TypeName::Storage(to)) = self.type_name()? else {
                    return Err(self.error_at("a cast is to a number", "write \"(long)\""));
                };
                self.expect(")", "in a cast")?;
                let inside = self.deeper(Self::unary)?;
                let at = token.at.to(inside.at);
                self.node(ExprKind::Cast(to, Box::new(inside)), at)
            }
            _ => self.postfix(),
        }
    }

    /// Whether a type's name follows the bracket here.
    fn begins_type(&self) -> bool {
        let after = self.token_after();
        let words = ["char", "short", "int", "long", "signed", "unsigned", "double"];
        let others = ["float", "void", "struct"];
        after.kind == Kind::Name && {
            let text = self.text(after);
            words.contains(&text) || others.contains(&text)
        }
    }

    fn size_of(&mut self) -> Parsed<Expr<'a>> {
        let start = self.next().at;
        self.expect("(", "behind sizeof")?;
        let Some(of) = self.type_name()? else {
            return Err(self.unexpected("in sizeof", "write a type, such as sizeof(long)"));
        };
        let end = self.expect(")", "in sizeof")?;
        self.node(ExprKind::SizeOf(of), start.to(end))
    }

    fn postfix(&mut self) -> Parsed<Expr<'a>> {
        let mut of = self.primary()?;
        while let Kind::Sign(sign) = self.token().kind {
            match sign {
                "." => {
                    self.at += 1;
                    let member = self.name("the member")?;
                    let at = of.at.to(member.at);
                    of = self.node(ExprKind::Member(Box::new(of), member), at)?;
                }
                "[" => {
                    self.at += 1;
                    let index = self.expression()?;
                    let at = of.at.to(self.expect("]", "in an index")?);
                    of = self.node(ExprKind::Index(Box::new(of), Box::new(index)), at)?;
                }
                "++" | "--" => {
                    let at = of.at.to(self.next().at);
                    let place = Box::new(of);
                    of = self.node(ExprKind::Step { up: sign == "++", old: true, place }, at)?;
                }
                "->" => return Err(self.error_at("E-code has no pointers", "write \".\"")),
                _ => break,
            }
        }
        Ok(of)
    }

    fn primary(&mut self) -> Parsed<Expr<'a>> {
        let token = self.token();
        match token.kind {
            Kind::Integer(value, scalar) => {
                self.at += 1;
                self.node(ExprKind::Integer(value, scalar), token.at)
            }
            Kind::Double(value) => {
                self.at += 1;
                self.node(ExprKind::Double(value), token.at)
            }
            Kind::Sign("(") => self.in_parentheses("here"),
            Kind::Name => {
                let name = self.name("a value")?;
                if self.peek_is("(") {
                    self.call(name)
                } else {
                    self.node(ExprKind::Name(name.text), name.at)
                }
            }
            _ => Err(self.unexpected("where a value is", "write a number, a name or \"(\"")),
        }
    }

    fn call(&mut self, name: Name<'a>) -> Parsed<Expr<'a>> {
        self.at += 1;
        let mut arguments = Vec::new();
        while !self.peek_is(")") {
            arguments.push(self.assignment()?);
            if arguments.len() > PARAMETERS_MAX {
                let what = format!("functions have at most {PARAMETERS_MAX} parameters");
                return Err(self.error_at(what, "pass less"));
            }
            if !self.accept(",") {
                break;
            }
        }
        let end = self.expect(")", "in a call")?;
        self.node(ExprKind::Call(name, arguments), name.at.to(end))
    }
}
