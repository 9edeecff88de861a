//! Places and values of generated handlers.

use super::{Generator, LITERALS, READ, TYPES, WRITTEN};

impl Generator<'_, '_> {
    /// A local of a kind, if there is one.
    pub(super) fn local(&mut self, double: bool) -> Option<String> {
        let of_kind: Vec<&String> =
            self.locals.iter().filter(|(_, d)| *d == double).map(|(name, _)| name).collect();
        if of_kind.is_empty() {
            return None;
        }
        Some(of_kind[self.choices.below(of_kind.len())].clone())
    }

    /// An index that is mostly within bounds.
    pub(super) fn index(&mut self, length: usize) -> String {
        // An index may contain an element, with an index, and so on: no deeper than allowed.
        if self.indexes == 3 {
            return self.choices.below(length).to_string();
        }
        self.indexes += 1;
        let index = match self.choices.below(8) {
            0 | 1 => self.choices.below(length).to_string(),
            2 => self.local(false).unwrap_or_else(|| "0".to_owned()),
            // Never known at compile time, which would be refused.
            3 => format!("({}) + (input.c & 0)", self.integer(1)),
            _ => format!("((unsigned)({})) % {length}", self.integer(2)),
        };
        self.indexes -= 1;
        index
    }

    fn element(&mut self, written: bool) -> String {
        let of = if written || self.choices.below(2) == 0 { "output" } else { "input" };
        match self.choices.below(6) {
            0 => format!("{of}.a[{}]", self.index(5)),
            1 => format!("{of}.p[{}].x", self.index(4)),
            2 => format!("{of}.p[{}].y[{}]", self.index(4), self.index(3)),
            3 => format!("{of}.m[{}][{}]", self.index(3), self.index(2)),
            4 => format!("shared.bins[{}]", self.index(8)),
            _ => format!("grid[{}][{}]", self.index(4), self.index(3)),
        }
    }

    fn written(&mut self) -> String {
        match self.choices.below(3) {
            0 => self.local(false).unwrap_or_else(|| "output.i".to_owned()),
            1 => self.element(true),
            _ => self.choices.pick(WRITTEN).to_owned(),
        }
    }

    pub(super) fn assignment(&mut self, depth: usize) -> String {
        if self.features.doubles && self.choices.below(4) == 0 {
            let to = match self.choices.below(3) {
                0 => self.local(true).unwrap_or_else(|| "output.d".to_owned()),
                1 => format!("output.p[{}].z", self.index(4)),
                _ => "shared.mean".to_owned(),
            };
            let operator = self.choices.pick(&["=", "+=", "-=", "*=", "/="]);
            return format!("{to} {operator} {}", self.double(depth));
        }
        let to = self.written();
        match self.choices.below(4) {
            0 => format!("{to}{}", self.choices.pick(&["++", "--"])),
            1 => {
                let all = ["+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="];
                let operator = self.choices.pick(&all);
                format!("{to} {operator} {}", self.integer(depth))
            }
            _ => format!("{to} = {}", self.any(depth)),
        }
    }

    fn any(&mut self, depth: usize) -> String {
        if self.features.doubles && self.choices.below(4) == 0 {
            self.double(depth)
        } else {
            self.integer(depth)
        }
    }

    pub(super) fn condition(&mut self, depth: usize) -> String {
        if depth > 0 && self.choices.below(3) == 0 {
            let operator = self.choices.pick(&["&&", "||"]);
            return format!("{} {operator} {}", self.operand(depth), self.operand(depth));
        }
        self.any(depth)
    }

    fn operand(&mut self, depth: usize) -> String {
        format!("({})", self.any(depth.saturating_sub(1)))
    }

    pub(super) fn integer(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.choices.below(4) {
                0 => self.choices.pick(LITERALS).to_owned(),
                1 => self.local(false).unwrap_or_else(|| "1".to_owned()),
                _ => self.choices.pick(READ).to_owned(),
            };
        }
        let below = depth - 1;
        match self.choices.below(14) {
            0..=3 => {
                let all = ["+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^"];
                let operator = self.choices.pick(&all);
                format!("({}) {operator} ({})", self.integer(below), self.integer(below))
            }
            4 | 5 => {
                let operator = self.choices.pick(&["<", "<=", ">", ">=", "==", "!="]);
                format!("({}) {operator} ({})", self.any(below), self.any(below))
            }
            6 => {
                let operator = self.choices.pick(&["-", "~", "!", "+"]);
                format!("{operator}({})", self.integer(below))
            }
            7 => format!("({})({})", self.choices.pick(TYPES), self.any(below)),
            8 => {
                let condition = self.condition(below);
                format!("({condition}) ? ({}) : ({})", self.integer(below), self.integer(below))
            }
            9 => self.element(false),
            10 => {
                let to = self.written();
                let step = self.choices.pick(&["++", "--"]);
                if self.choices.below(2) == 0 {
                    format!("{to}{step}")
                } else {
                    format!("{step}{to}")
                }
            }
            11 => {
                let name = self.choices.pick(&["min", "max"]);
                format!("{name}({}, {})", self.integer(below), self.integer(below))
            }
            12 if self.features.host => {
                format!("pick({}, {})", self.any(below), self.any(below))
            }
            12 => format!("abs({})", self.integer(below)),
            _ => {
                let (operator, to) = (self.choices.pick(&["=", "+=", "^="]), self.written());
                format!("({to} {operator} {})", self.integer(below))
            }
        }
    }

    pub(super) fn double(&mut self, depth: usize) -> String {
        if depth == 0 {
            return match self.choices.below(4) {
                0 => {
                    self.choices.pick(&["0.0", "1.5", "-2.25", "1e300", "0.1", "1e-320"]).to_owned()
                }
                1 => self.local(true).unwrap_or_else(|| "input.d".to_owned()),
                2 => format!("input.p[{}].z", self.index(4)),
                _ => self.choices.pick(&["input.d", "output.d", "shared.mean"]).to_owned(),
            };
        }
        let below = depth - 1;
        match self.choices.below(6) {
            0 | 1 => {
                let operator = self.choices.pick(&["+", "-", "*", "/"]);
                format!("({}) {operator} ({})", self.double(below), self.any(below))
            }
            2 => format!("-({})", self.double(below)),
            3 => format!("(double)({})", self.integer(below)),
            4 if self.features.host => format!("scale({})", self.any(below)),
            _ => {
                let condition = self.condition(below);
                format!("({condition}) ? ({}) : ({})", self.double(below), self.any(below))
            }
        }
    }
}
