//! The largest and most tangled handlers that the limits allow become machine code and byte code, or are
//! refused, with bounded work; and endless ones end in all back ends.

use std::fmt::Write;

use selvedge_control_code::interpret::NoHost;
use selvedge_control_code::native::Compiler;
use selvedge_control_code::{Environment, Fault, Program, compile};
use selvedge_os_jit::{Handler, Hook, Interpreted, Kernel, LoadError, Native, available};

fn program(source: &str) -> Program {
    let environment = Environment::parse("f", "input { int i; long a[64]; };").unwrap();
    compile("h", source, &environment).unwrap_or_else(|error| panic!("{error}"))
}

/// Many variables that are all alive over many branches.
fn tangle(variables: usize, branches: usize) -> String {
    let mut source = String::from("{ long s = 0;\n");
    for number in 0..variables {
        let _ = writeln!(source, "long v{number} = input.a[{}];", number % 64);
    }
    source += "while (s < 10) { s++;\n";
    for number in 0..branches {
        let (a, b) = (number * 7 % variables, number * 13 % variables);
        let _ = writeln!(source, "if (v{a} > s) v{b} += v{a};");
    }
    source += "}\n return s";
    for number in 0..variables.min(90) {
        let _ = write!(source, " + v{number}");
    }
    source + "; }"
}

fn handlers() -> Vec<String> {
    let straight = format!("{{ long x = input.i; {} return x; }}", "x = x * 3 + 1;".repeat(2500));
    let loops = |depth: usize| {
        let open: String =
            (0..depth).map(|n| format!("for (int i{n} = 0; i{n} < 3; i{n}++) ")).collect();
        format!("{{ long x = 0; {open} x++; return x; }}")
    };
    let mut elements = String::from("{ static long g[8][8]; long s = 0; int i = input.i;\n");
    for _ in 0..900 {
        elements += "s += g[i & 7][s & 7];\n";
    }
    elements += "return s; }";
    vec![straight, loops(40), tangle(200, 600), tangle(400, 500), elements]
}

#[test]
fn the_largest_handlers_become_machine_code() {
    let mut compiler = Compiler::new().unwrap();
    for source in handlers() {
        let program = program(&source);
        let mut walked = Interpreted::new(program.clone());
        let mut native = Native::new(program, &mut compiler).unwrap();
        assert_eq!(walked.call(&mut NoHost), native.call(&mut NoHost));
        assert_eq!(walked.memory(), native.memory());
    }
}

#[test]
fn the_largest_handlers_are_loaded_or_refused() {
    if let Err(why) = available() {
        println!("SKIPPED: no handlers in this kernel: {why}");
        return;
    }
    let mut loaded = 0;
    for source in handlers() {
        let program = program(&source);
        let mut walked = Interpreted::new(program.clone());
        match Kernel::new(program, Hook::Call) {
            Ok(mut kernel) => {
                loaded += 1;
                assert_eq!(walked.call(&mut NoHost), kernel.call(&mut NoHost));
                assert_eq!(walked.memory(), kernel.memory());
            }
            Err(LoadError::Verifier { log, .. }) => println!("{}: {log}", source.len()),
            Err(LoadError::Emit(why)) => println!("{}: {why}", source.len()),
            Err(other) => panic!("{other}"),
        }
    }
    assert!(loaded >= 2, "only {loaded} were loaded");
}

#[test]
fn endless_loops_end_by_the_same_budget_everywhere() {
    let sources = [
        "{ while (1); }",
        "{ static long n; for (;;) n++; }",
        "{ do { if (input.i) break; } while (1); }",
    ];
    let mut compiler = Compiler::new().unwrap();
    let in_kernel = available().is_ok();
    for source in sources {
        let program = program(source);
        let mut all: Vec<Box<dyn Handler>> = vec![
            Box::new(Interpreted::new(program.clone())),
            Box::new(Native::new(program.clone(), &mut compiler).unwrap()),
        ];
        if in_kernel {
            all.push(Box::new(Kernel::new(program, Hook::Call).unwrap()));
        }
        for handler in &mut all {
            // The largest budget is below the limit at which the kernel would stop by itself.
            handler.memory_mut()[..8].copy_from_slice(&8_000_000_u64.to_le_bytes());
            let ended = handler.call(&mut NoHost).unwrap_err();
            assert!(matches!(ended, Fault::OutOfFuel { budget: 8_000_000, .. }), "{ended:?}");
        }
        assert!(all.windows(2).all(|two| two[0].memory() == two[1].memory()), "{source}");
    }
}
