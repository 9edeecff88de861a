//! Random well-typed handlers, for tests: the same bytes give the same source. All types, operators
//! and statements occur; some programs loop for ever, and some leave their bounds.

use std::fmt::Write;

/// Choices that are read off a list; when it ends, all further ones are the simplest.
#[derive(Debug)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// From bytes that a test tool makes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn below(&mut self, limit: usize) -> usize {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                usize::from(*first) % limit
            }
            None => 0,
        }
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The formats that generated handlers use.
pub const FORMATS: &str = "
    const N = 5;
    struct point { long x; char y[3]; double z; };
    input { char c; short s; unsigned short us; int i; unsigned u; long l; unsigned long ul;
            double d; int a[N]; struct point p[4]; long m[3][2]; };
    output { char c; short s; unsigned short us; int i; unsigned u; long l; unsigned long ul;
             double d; int a[N]; struct point p[4]; long m[3][2]; };
    shared { long total; int bins[8]; double mean; };
";

/// What may occur in a generated handler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Features {
    /// Doubles, which the kernel has not.
    pub doubles: bool,
    /// Calls of `long pick(long, int)`, and with doubles `double scale(double)`, which the
    /// environment has to declare.
    pub host: bool,
}

/// Integer places, by what may be done with them.
const READ: &[&str] = &[
    "input.c",
    "input.s",
    "input.us",
    "input.i",
    "input.u",
    "input.l",
    "input.ul",
    "output.i",
    "output.l",
    "output.us",
    "shared.total",
    "kept",
    "count",
];
const WRITTEN: &[&str] = &[
    "output.c",
    "output.s",
    "output.us",
    "output.i",
    "output.u",
    "output.l",
    "output.ul",
    "shared.total",
    "kept",
    "count",
];
const TYPES: &[&str] =
    &["int", "long", "unsigned", "unsigned long", "char", "short", "unsigned short"];
const LITERALS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "31",
    "33",
    "63",
    "255",
    "1000",
    "2147483647",
    "0x80000000",
    "4294967295u",
    "1l",
    "9223372036854775807",
    "0xffffffffffffffff",
    "5000000000",
    "'a'",
    "N",
    "sizeof(struct point)",
];

struct Generator<'c, 'b> {
    choices: &'c mut Choices<'b>,
    features: Features,
    source: String,
    /// Locals in sight: their names, and whether they are doubles.
    locals: Vec<(String, bool)>,
    named: usize,
    depth: usize,
    loops: usize,
    statements: usize,
    /// Indexes that are being written inside one another.
    indexes: usize,
}

/// A handler for [`FORMATS`].
pub fn handler(choices: &mut Choices<'_>, features: Features) -> String {
    let mut generator = Generator {
        choices,
        features,
        source: String::from("{\n  static long kept = 3; static char count; int grid[4][3];\n"),
        locals: Vec::new(),
        named: 0,
        depth: 0,
        loops: 0,
        statements: 0,
        indexes: 0,
    };
    generator.block(8);
    let value = generator.integer(3);
    let _ = writeln!(generator.source, "  return {value};\n}}");
    generator.source
}

impl Generator<'_, '_> {
    fn block(&mut self, most: usize) {
        let outer = self.locals.len();
        for _ in 0..1 + self.choices.below(most) {
            self.statement();
        }
        self.locals.truncate(outer);
    }

    fn line(&mut self, text: &str) {
        let pad = "  ".repeat(self.depth + 1);
        let _ = writeln!(self.source, "{pad}{text}");
    }

    fn statement(&mut self) {
        self.statements += 1;
        let simple = self.depth >= 3 || self.statements > 40;
        match self.choices.below(if simple { 6 } else { 11 }) {
            0 | 1 => self.declare(),
            2 | 3 => {
                let effect = self.assignment(3);
                self.line(&format!("{effect};"));
            }
            4 if self.loops > 0 => {
                let condition = self.condition(2);
                let word = self.choices.pick(&["break", "continue"]);
                self.line(&format!("if ({condition}) {word};"));
            }
            4 | 5 => {
                let (condition, value) = (self.condition(2), self.integer(2));
                let rare = self.choices.below(4) == 1;
                let effect = self.assignment(2);
                if rare {
                    self.line(&format!("if ({condition}) return {value};"));
                } else {
                    self.line(&format!("if ({condition}) {effect};"));
                }
            }
            6 | 7 => {
                let condition = self.condition(3);
                self.line(&format!("if ({condition}) {{"));
                self.inside(3);
                if self.choices.below(2) == 1 {
                    self.line("} else {");
                    self.inside(3);
                }
                self.line("}");
            }
            8 | 9 => {
                let (from, to) = (self.integer(1), self.choices.below(12));
                let name = self.fresh();
                let ty = self.choices.pick(&["int", "long", "unsigned", "short"]);
                let start = if self.choices.below(3) == 1 { from } else { "0".to_owned() };
                self.locals.push((name.clone(), false));
                self.line(&format!("for ({ty} {name} = {start}; {name} < {to}; {name}++) {{"));
                self.turn();
                self.line("}");
                self.locals.pop();
            }
            _ => {
                let condition = self.condition(2);
                if self.choices.below(2) == 0 {
                    self.line(&format!("while ({condition}) {{"));
                    self.turn();
                    self.line("}");
                } else {
                    self.line("do {");
                    self.turn();
                    self.line(&format!("}} while ({condition});"));
                }
            }
        }
    }

    fn inside(&mut self, most: usize) {
        self.depth += 1;
        self.block(most);
        self.depth -= 1;
    }

    fn turn(&mut self) {
        self.loops += 1;
        self.inside(3);
        self.loops -= 1;
    }

    fn fresh(&mut self) -> String {
        self.named += 1;
        format!("v{}", self.named)
    }

    fn declare(&mut self) {
        let double = self.features.doubles && self.choices.below(4) == 0;
        let name = self.fresh();
        if double {
            let value = self.double(2);
            self.line(&format!("double {name} = {value};"));
        } else {
            let (ty, value) = (self.choices.pick(TYPES), self.integer(3));
            self.line(&format!("{ty} {name} = {value};"));
        }
        self.locals.push((name, double));
    }

    /// A local of a kind, if there is one.
    fn local(&mut self, double: bool) -> Option<String> {
        let of_kind: Vec<&String> =
            self.locals.iter().filter(|(_, d)| *d == double).map(|(name, _)| name).collect();
        if of_kind.is_empty() {
            return None;
        }
        Some(of_kind[self.choices.below(of_kind.len())].clone())
    }

    /// An index that is mostly within bounds.
    fn index(&mut self, length: usize) -> String {
        // An index may have an element in it, with an index, and so on: no deeper than is allowed.
        if self.indexes == 3 {
            return self.choices.below(length).to_string();
        }
        self.indexes += 1;
        let index = match self.choices.below(8) {
            0 | 1 => self.choices.below(length).to_string(),
            2 => self.local(false).unwrap_or_else(|| "0".to_owned()),
            // Never known beforehand, which would be refused.
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

    fn assignment(&mut self, depth: usize) -> String {
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

    fn condition(&mut self, depth: usize) -> String {
        if depth > 0 && self.choices.below(3) == 0 {
            let operator = self.choices.pick(&["&&", "||"]);
            return format!("{} {operator} {}", self.operand(depth), self.operand(depth));
        }
        self.any(depth)
    }

    fn operand(&mut self, depth: usize) -> String {
        format!("({})", self.any(depth.saturating_sub(1)))
    }

    fn integer(&mut self, depth: usize) -> String {
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

    fn double(&mut self, depth: usize) -> String {
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
