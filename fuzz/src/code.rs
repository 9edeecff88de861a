//! E-code as text: any text is refused with a place in it, or compiles; then evaluator and machine code
//! leave the same bytes, and the byte code is either made or refused.

use std::cell::RefCell;

use selvedge_control_code::interpret::NoHost;
use selvedge_control_code::native::Compiler;
use selvedge_control_code::{Environment, compile, ebpf};
use selvedge_os_jit::{Handler, Interpreted, Native};

/// The most that each call may use.
const FUEL: u64 = 2000;

thread_local! {
    static COMPILER: RefCell<Compiler> = RefCell::new(Compiler::new().expect("a known machine"));
}

pub fn fuzz(source: &str) {
    let program = match compile("fuzz.ec", source, &Environment::default()) {
        Ok(program) => program,
        Err(error) => {
            assert!(!error.diagnoses.is_empty(), "a refusal has a reason");
            let lines = source.split('\n').count();
            for diagnosis in &error.diagnoses {
                let line = diagnosis.position.line as usize;
                assert!((1..=lines).contains(&line), "{error}");
                assert!(!diagnosis.remedy.is_empty(), "{error}");
            }
            assert!(error.to_string().len() < 32_768, "no message grows with its source");
            return;
        }
    };
    assert!(!program.to_string().is_empty());
    if let Ok(code) = ebpf::emit(&program) {
        assert!(code.encode(3).len() >= 4);
    }
    let mut walked = Interpreted::new(program.clone());
    let native = COMPILER.with_borrow_mut(|compiler| Native::new(program.clone(), compiler));
    let mut native = native.expect("what the checker takes can be compiled");
    for _ in 0..2 {
        for handler in [&mut walked as &mut dyn Handler, &mut native] {
            handler.memory_mut()[..8].copy_from_slice(&FUEL.to_le_bytes());
        }
        let outcomes = (walked.call(&mut NoHost), native.call(&mut NoHost));
        assert_eq!(outcomes.0, outcomes.1);
        assert!(walked.memory() == native.memory(), "the same bytes\n{program}");
    }
}
