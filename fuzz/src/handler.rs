//! E-code that is well typed: the input chooses the program and its events. Evaluator and machine
//! code leave the same bytes.

#[path = "../../os/jit/tests/generate/mod.rs"]
mod generate;

use std::cell::RefCell;

use selvedge_control_code::interpret::NoHost;
use selvedge_control_code::native::Compiler;
use selvedge_control_code::{Environment, compile, ebpf};
use selvedge_os_jit::{Handler, Interpreted, Native};

use generate::{FORMATS, Features, FuzzChoices, handler};

thread_local! {
    static COMPILER: RefCell<Compiler> = RefCell::new(Compiler::new().expect("a known machine"));
}

pub fn fuzz(bytes: &[u8]) {
    let (choices, event) = bytes.split_at(bytes.len().min(2000));
    let environment = Environment::parse("formats", FORMATS).expect("formats of our own");
    let source = handler(&mut FuzzChoices::new(choices), Features { doubles: true, host: false });
    let program = compile("fuzz.ec", &source, &environment)
        .unwrap_or_else(|error| panic!("{error}\n{source}"));
    // Doubles are refused, and nothing else.
    match ebpf::emit(&program) {
        Ok(_) | Err(ebpf::KernelError::Double(_) | ebpf::KernelError::Stack(_)) => {}
        Err(other) => panic!("{other}\n{source}"),
    }
    let mut walked = Interpreted::new(program.clone());
    let native = COMPILER.with_borrow_mut(|compiler| Native::new(program.clone(), compiler));
    let mut native = native.unwrap_or_else(|error| panic!("{error}\n{source}"));
    let record = program.record("input").expect("declared");
    let (start, size) = (record.offset as usize, record.record.layout.size as usize);
    for turn in 0..2 {
        for handler in [&mut walked as &mut dyn Handler, &mut native] {
            handler.memory_mut()[..8].copy_from_slice(&2000_u64.to_le_bytes());
            let input = &mut handler.memory_mut()[start..start + size];
            for (at, byte) in input.iter_mut().enumerate() {
                *byte = event.get(at + turn).or(choices.get(at)).copied().unwrap_or(at as u8);
            }
        }
        let outcomes = (walked.call(&mut NoHost), native.call(&mut NoHost));
        assert_eq!(outcomes.0, outcomes.1, "{source}");
        assert!(walked.memory() == native.memory(), "the same bytes\n{source}\n{program}");
    }
}
