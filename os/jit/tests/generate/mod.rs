//! Random well-typed handlers, for tests: the same bytes give the same source. All types, operators
//! and statements occur; some programs loop for ever, and some leave their bounds.

mod value;

use std::fmt::Write;

/// Choices that are read from a list; when it ends, all further ones are the simplest.
#[derive(Debug)]
pub(crate) struct FuzzChoices<'a> {
    bytes: &'a [u8],
}

impl<'a> FuzzChoices<'a> {
    /// From bytes of a test tool.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
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
pub(crate) const FORMATS: &str = "
    const N = 5;
    struct point { long x; char y[3]; double z; };
    struct wide { struct point near[3]; int rest[5]; };
    struct small { short s; char c; };
    input { char c; short s; unsigned short us; int i; unsigned u; long l; unsigned long ul;
            double d; int a[N]; struct point p[4]; long m[3][2];
            struct wide w[2]; struct small t[3]; };
    output { char c; short s; unsigned short us; int i; unsigned u; long l; unsigned long ul;
             double d; int a[N]; struct point p[4]; long m[3][2];
             struct wide w[2]; struct small t[3]; };
    shared { long total; int bins[8]; double mean; struct wide w; };
";

/// The features that may occur in a generated handler.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    /// Doubles, which the kernel lacks.
    pub(crate) doubles: bool,
    /// Calls of `long pick(long, int)`, and with doubles `double scale(double)`, which the environment must
    /// declare.
    pub(crate) host: bool,
}

/// Integer places, by their allowed uses.
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
    choices: &'c mut FuzzChoices<'b>,
    features: Features,
    source: String,
    /// Locals in sight: their names, and whether they are doubles.
    locals: Vec<(String, bool)>,
    named: usize,
    depth: usize,
    loops: usize,
    statements: usize,
    /// The depth of nested indexes that are being written.
    indexes: usize,
}

/// A handler for [`FORMATS`].
pub(crate) fn handler(choices: &mut FuzzChoices<'_>, features: Features) -> String {
    let mut generator = Generator {
        choices,
        features,
        source: String::from(
            "{\n  static long kept = 3; static char count; int grid[4][3];\n  struct point spot;\n",
        ),
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
        match self.choices.below(if simple { 7 } else { 12 }) {
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
            6 => self.copy(),
            7 | 8 => {
                let condition = self.condition(3);
                self.line(&format!("if ({condition}) {{"));
                self.inside(3);
                if self.choices.below(2) == 1 {
                    self.line("} else {");
                    self.inside(3);
                }
                self.line("}");
            }
            9 | 10 => {
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

    /// Copies a whole struct, sometimes a whole record.
    fn copy(&mut self) {
        let of = self.choices.pick(&["input", "output"]);
        let line = match self.choices.below(10) {
            0 | 1 => format!("output.p[{}] = {of}.p[{}];", self.index(4), self.index(4)),
            2 => format!("output.w[{}] = {of}.w[{}];", self.index(2), self.index(2)),
            3 => format!("output.t[{}] = {of}.t[{}];", self.index(3), self.index(3)),
            4 => format!("shared.w = {of}.w[{}];", self.index(2)),
            5 => {
                format!("output.w[{}].near[{}] = shared.w.near[1];", self.index(2), self.index(3))
            }
            6 => format!("spot = {of}.p[{}];", self.index(4)),
            7 => format!("output.p[{}] = spot;", self.index(4)),
            8 => {
                let name = self.fresh();
                let index = self.index(3);
                format!("struct small {name} = {of}.t[{index}]; output.i = {name}.s;")
            }
            _ => "output = input;".to_owned(),
        };
        self.line(&line);
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
}
