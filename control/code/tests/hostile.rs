//! Sources that are meant to do harm: they are refused, or run, in bounded time, stack and memory.

use std::fmt::Write;

use selvedge_control_code::ebpf::KernelError;
use selvedge_control_code::interpret::{NoHost, call};
use selvedge_control_code::limits::{NEST_MAX, OPERATIONS_MAX, SOURCE_MAX};
use selvedge_control_code::{Environment, Fault, Memory, compile, ebpf};

fn refused(source: &str) -> String {
    let error = compile("h", source, &Environment::default()).expect_err("hostile");
    let message = error.to_string();
    assert!(message.len() < 16_384, "no message grows with its source");
    message
}

#[test]
fn ten_megabytes_are_refused_unread() {
    let source = format!("{{ {} }}", "x = x + 1; ".repeat(1_000_000));
    assert!(refused(&source).contains(&format!("more than {SOURCE_MAX}")));
}

#[test]
fn deep_nesting_is_refused_at_the_limit() {
    let deep = 60_000 / 2;
    for (open, close) in [("(", ")"), ("{", "}"), ("-", ""), ("!", ""), ("if(1)", ""), ("a[", "]")]
    {
        let deep = deep / open.len();
        let body = format!("{}1{}", open.repeat(deep), close.repeat(deep));
        let source = format!("{{ int a[2]; {body}; }}");
        let message = refused(&source[..source.len().min(SOURCE_MAX)]);
        assert!(message.contains("nests more than 100 deep"), "{open}: {message}");
    }
    let long = format!("{{ return 1{}; }}", " + now()".repeat(NEST_MAX as usize + 1));
    assert!(refused(&long).contains("operators in a row"));
    let chain = format!("{{ int a; a{}; }}", " = a".repeat(20_000 / 4));
    assert!(refused(&chain).contains("deep"));
    let choices = format!("{{ return {}1; }}", "now() ? 1 : ".repeat(5000));
    assert!(refused(&choices).contains("deep"));
    let members = format!("{{ return x{}; }}", ".y".repeat(20_000));
    assert!(refused(&members).contains("in a row"));
}

#[test]
fn what_is_within_the_limits_runs() {
    let deep = NEST_MAX as usize - 8;
    let source = format!("{{ return {}7{}; }}", "(".repeat(deep), ")".repeat(deep));
    let program = compile("h", &source, &Environment::default()).unwrap();
    assert_eq!(call(&program, &mut Memory::new(&program), &mut NoHost), Ok(7));
}

#[test]
fn too_many_operations_are_refused() {
    let mut source = String::from("{ long a = now(); ");
    for _ in 0..OPERATIONS_MAX / 2 {
        source += "a++;";
    }
    source += "}";
    assert!(refused(&source).contains(&OPERATIONS_MAX.to_string()));
    // Also in a place that is not a statement of its own.
    let row = ["now()"; 60].join(" + ");
    let all = vec![row; 140].join(") + (");
    let source = format!("{{ if (({all}) > 1) return 1; }}");
    if let Err(error) = compile("h", &source, &Environment::default()) {
        assert!(error.to_string().len() < 16_384);
    }
}

#[test]
fn many_names_and_variables_are_refused() {
    let mut source = String::from("{ ");
    for number in 0..2000 {
        let _ = write!(source, "long variable{number} = {number}; ");
    }
    source += "}";
    assert!(refused(&source).contains("512 variables"));
    let name = "x".repeat(65);
    assert!(refused(&format!("{{ int {name}; }}")).contains("64 characters"));
}

#[test]
fn sizes_do_not_overflow() {
    let environment = Environment::default();
    let mut source = String::from("struct s0 { long x[8000]; };\n");
    for number in 1..200 {
        let before = number - 1;
        let _ = writeln!(source, "struct s{number} {{ struct s{before} x[60000]; }};");
    }
    source += "{ return 1; }";
    assert!(compile("h", &source, &environment).is_err());
    let wide = "{ static char a[65536][65536][65536][65536]; }";
    assert!(compile("h", wide, &environment).is_err());
}

#[test]
fn endless_loops_end_by_fuel() {
    for source in
        ["{ while (1); }", "{ for (;;); }", "{ do ; while (1); }", "{ while (1) continue; }"]
    {
        let program = compile("h", source, &Environment::default()).unwrap();
        let mut memory = Memory::new(&program);
        let ended = call(&program, &mut memory, &mut NoHost).unwrap_err();
        assert_eq!(ended, Fault::OutOfFuel { at: 2, budget: 100_000 }, "{source}");
        assert!(ended.to_string().contains("100000"));
    }
}

#[test]
fn faults_of_the_budget_stop_exactly() {
    let source = "{ static long n; while (1) n++; }";
    let program = compile("h", source, &Environment::default()).unwrap();
    let mut memory = Memory::new(&program);
    let turns = |memory: &Memory| {
        let bytes = memory.bytes();
        u64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap())
    };
    memory.set_budget(0);
    assert!(call(&program, &mut memory, &mut NoHost).is_err());
    assert_eq!(turns(&memory), 0);
    memory.set_budget(1000);
    assert!(call(&program, &mut memory, &mut NoHost).is_err());
    let some = turns(&memory);
    assert!((100..=500).contains(&some), "{some}");
    memory.set_budget(2000);
    assert!(call(&program, &mut memory, &mut NoHost).is_err());
    // Twice the budget gives twice the turns, within one turn.
    assert!(turns(&memory).abs_diff(3 * some) <= 1);
}

#[test]
fn the_kernel_refuses_doubles_with_their_place() {
    let source = "{ double x = now();\n return (long)(x * 2.0); }";
    let program = compile("h", source, &Environment::default()).unwrap();
    let refused = ebpf::emit(&program).unwrap_err();
    let KernelError::Double(position) = refused else { panic!("{refused}") };
    assert_eq!(position.to_string(), "1:10");
    assert!(refused.to_string().contains("use a long"), "{refused}");
    // A constant that is computed at compile time is not a double operation.
    let program = compile("h", "{ return (long)(1.5 * 4); }", &Environment::default()).unwrap();
    assert!(ebpf::emit(&program).is_ok());
}
