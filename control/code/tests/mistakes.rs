//! Mistakes are reported at their place, with the line, a caret and a remedy.

use selvedge_control_code::{Environment, compile};

const FORMATS: &str = "const N = 4; struct part { int size; double load; };
    input { int cpu; struct part part[N]; };
    struct other { int size; double load; };
    output { int busy; struct part worst; struct other other; struct part all[N]; };";

fn refused(source: &str) -> String {
    let environment = Environment::parse("formats", FORMATS).unwrap();
    compile("h", source, &environment).expect_err(source).to_string()
}

#[test]
fn a_mistake_is_shown_in_full() {
    let source = "{\n  int i;\n  if (input.part[i].sise > 3)\n    return 1;\n}";
    assert_eq!(
        refused(source),
        "h:3:21: input.part[] has no member \"sise\"\n 3 |   if (input.part[i].sise > 3)\n   \
         |                     ^^^^\n   = write \"size\""
    );
}

/// Source, place, mistake, remedy.
const DIAGNOSTICS: &[(&str, &str, &str, &str)] = &[
    ("", "1:1", "no handler", "write a block"),
    ("{", "1:1", "has no \"}\"", "write the \"}\""),
    ("{ return 1 }", "1:10", "\";\" is missing", "write \";\""),
    ("{ int i = 0; i = j; }", "1:18", "\"j\" is not declared", "there are i,"),
    ("{ int sum = 0; sun = 1; }", "1:16", "\"sun\" is not declared", "write \"sum\""),
    ("{ return cpu; }", "1:10", "\"cpu\" is not declared", "write \"input.cpu\""),
    ("{ input.cpu = 1; }", "1:3", "can't be written", "member of output"),
    ("{ N = 1; }", "1:3", "can't be written", "declare a variable"),
    ("{ int i; int i; }", "1:14", "declared already", "another name"),
    ("{ int input; }", "1:7", "declared already", "another name"),
    ("{ return input.part[4].size; }", "1:21", "no element 4", "0 to 3"),
    ("{ return input.part[-1].size; }", "1:21", "no element -1", "0 to 3"),
    ("{ return input.part.size; }", "1:21", "no members", "choose an element"),
    ("{ return input.part[0]; }", "1:10", "no number", "choose a member"),
    ("{ input.part[0] = output.worst; }", "1:3", "can't be written", "member of output"),
    ("{ output.worst = 3; }", "1:18", "no struct part", "of the same type"),
    ("{ output.worst = input.cpu; }", "1:18", "no struct part", "members one by one"),
    ("{ output.worst = input.prat[0]; }", "1:24", "no member", "write \"part\""),
    ("{ output.worst = output.other; }", "1:18", "struct other, and no struct part", "same type"),
    ("{ output.all = input.part; }", "1:3", "no number", "choose an element"),
    ("{ output.worst += input.part[0]; }", "1:3", "no number", "choose a member"),
    ("{ int i = (output.worst = input.part[0]); }", "1:12", "no number", "a statement of its own"),
    ("{ struct part p = 3; }", "1:19", "no struct part", "of the same type"),
    ("{ struct part p = p; }", "1:19", "\"p\" is not declared", "there are input"),
    ("{ output = input; }", "1:12", "no struct output", "members one by one"),
    ("{ return input.cpu[0]; }", "1:10", "no elements", "leave the [ ] out"),
    ("{ return input.part[0].load; }", "1:10", "returns a long", "write (long)"),
    ("{ return input.part[0].load % 2; }", "1:10", "for integers", "write (long)"),
    ("{ return input.part[1.5].size; }", "1:21", "can't be a double", "write (int)"),
    ("{ output.busy = nothing(); }", "1:17", "no function \"nothing\"", "there are now"),
    ("{ return mim(1, 2); }", "1:10", "no function \"mim\"", "write \"min\""),
    ("{ return min(1); }", "1:10", "takes 2 values", "as many"),
    ("{ if (input.cpu = 3) return 1; }", "1:7", "assigns", "write \"==\""),
    ("{ break; }", "1:3", "in no loop", "return"),
    ("{ else return 1; }", "1:3", "no if", "braces"),
    ("{ int a[0]; }", "1:9", "no length", "from 1"),
    ("{ int a[input.cpu]; }", "1:9", "not known before", "constants"),
    ("{ static int a = input.cpu; }", "1:18", "not known before", "constants"),
    ("{ int a[2000]; }", "1:7", "8000 bytes", "declare it static"),
    ("{ static long a[9000]; }", "1:15", "more than 65536 bytes", "shorter"),
    ("{ float x; }", "1:3", "no float", "write \"double\""),
    ("{ int *p; }", "1:7", "no pointers", "array"),
    ("{ return &input; }", "1:10", "no pointers", "name the"),
    ("{ return input->cpu; }", "1:15", "no pointers", "write \".\""),
    ("{ goto out; }", "1:3", "no goto", "while"),
    ("{ int a[2] = {1, 2}; }", "1:14", "no initial values", "one by one"),
    ("{ return \"text\"; }", "1:10", "no strings", "'a'"),
    ("#include <stdio.h>\n{}", "1:1", "no preprocessor", "const"),
    ("{ return 010; }", "1:10", "octal", "0x"),
    ("{ return 0x; }", "1:10", "no number", "0x2a"),
    ("{ return 99999999999999999999; }", "1:10", "64 bits", "write"),
    ("{ return 9223372036854775808; }", "1:10", "too large for a long", "ul"),
    ("{ return 'ab'; }", "1:10", "no character", "'a'"),
    ("{ return 1e999; }", "1:10", "too large for a double", "less"),
    ("{ /* no end }", "1:3", "no end", "*/"),
    ("int f(int x) { return f(x - 1); }", "1:5", "no functions of its own", "write out"),
    ("int x; {}", "1:5", "inside of the block", "move it"),
    ("{} {}", "1:4", "after the handler's block", "\"}\""),
    ("{ return \u{e9}; }", "1:10", "means nothing", "take it out"),
    ("{ struct prat p; }", "1:10", "no struct \"prat\"", "write \"part\""),
    ("{ unsigned double x; }", "1:3", "is no type", "there are char"),
    ("{ long short x; }", "1:3", "is no type", "there are char"),
    ("input { int x; };\n{}", "1:1", "declared already", "take it out"),
    ("struct s { int a; int a; };\n{}", "1:23", "a member already", "another name"),
    ("struct s { };\n{}", "1:8", "no members", "declare one"),
    ("{ if (input.cpu) int x = 1; }", "1:22", "never be used", "braces"),
];

#[test]
fn each_mistake_has_its_place_and_its_remedy() {
    for (source, place, what, remedy) in DIAGNOSTICS {
        let message = refused(source);
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[0].starts_with(&format!("h:{place}: ")), "{source}\n{message}");
        assert!(lines[0].contains(what), "{source}\n{message}");
        assert!(lines[2].contains('^'), "{source}\n{message}");
        assert!(lines[3].contains(remedy), "{source}\n{message}");
    }
}

#[test]
fn several_mistakes_are_told_at_once_and_in_order() {
    let message = refused("{\n  output.bussy = 1;\n  int x = y;\n  x = z;\n  output.busy = x;\n}");
    let places: Vec<&str> =
        message.lines().filter(|line| line.starts_with("h:")).map(|line| &line[..5]).collect();
    assert_eq!(places, ["h:2:1", "h:3:1", "h:4:7"]);
    let many = format!("{{ {} }}", "nothing; ".repeat(100));
    let environment = Environment::default();
    assert_eq!(compile("h", &many, &environment).unwrap_err().diagnoses.len(), 20);
}

#[test]
fn formats_hold_no_handler() {
    let error = Environment::parse("f", "input { int x; };\n{ return 1; }").unwrap_err();
    assert!(error.to_string().starts_with("f:2:"), "{error}");
}
