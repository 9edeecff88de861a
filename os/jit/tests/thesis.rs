//! The example of Q-Fabric's section 3.2.4, as written there, in all three back ends.

use selvedge_control_code::interpret::NoHost;
use selvedge_control_code::native::Compiler;
use selvedge_control_code::{Environment, compile};
use selvedge_os_jit::{Handler, Hook, Interpreted, Kernel, Native, available};

const FORMATS: &str = "
    const NUM_RESOURCES = 3;
    struct resource { int num_attributes; int attribute[4]; int threshold[4]; };
    struct answer { int exceeded[4]; };
    input { struct resource resource[NUM_RESOURCES]; };
    output { struct answer resource[NUM_RESOURCES]; };
";

const EXAMPLE: &str = "{
    int i;
    int j;
    for (i = 0; i < NUM_RESOURCES; i++) {
        for (j = 0; j < input.resource[i].num_attributes; j++) {
            if (input.resource[i].attribute[j] > input.resource[i].threshold[j])
                output.resource[i].exceeded[j] = 1;
            else
                output.resource[i].exceeded[j] = 0;
        }
    }
}";

fn check(handler: &mut dyn Handler) {
    let (input, output) = {
        let place = |name| handler.program().record(name).unwrap().offset as usize;
        (place("input"), place("output"))
    };
    let put = |handler: &mut dyn Handler, index: usize, value: i32| {
        let at = input + index * 4;
        handler.memory_mut()[at..at + 4].copy_from_slice(&value.to_le_bytes());
    };
    // Three resources of nine numbers: a count, four attributes, four thresholds.
    let resources =
        [[2, 5, -7, 9, 9, 4, -7, 0, 0], [4, 1, 2, 3, 4, 4, 3, 2, 1], [0, 9, 9, 9, 9, 0, 0, 0, 0]];
    for (index, value) in resources.concat().into_iter().enumerate() {
        put(handler, index, value);
    }
    // Bytes that the handler does not reach stay.
    handler.memory_mut()[output + 32..output + 48].fill(0xff);
    assert_eq!(handler.call(&mut NoHost), Ok(0));
    let bytes = &handler.memory()[output..output + 48];
    let exceeded: Vec<i32> =
        bytes.chunks(4).map(|four| i32::from_le_bytes(four.try_into().unwrap())).collect();
    assert_eq!(exceeded, [1, 0, 0, 0, 0, 0, 1, 1, -1, -1, -1, -1]);
    // More attributes than there is room for: the fifth is out of bounds, at its index.
    put(handler, 0, 5);
    let fault = handler.call(&mut NoHost).unwrap_err();
    let line = EXAMPLE.lines().nth(5).unwrap();
    let column = line.find("attribute[j]").unwrap() + "attribute[".len() + 1;
    let position = fault.position(handler.program());
    assert_eq!((position.line, position.column as usize), (6, column), "{fault}");
}

#[test]
fn the_thesis_example_runs_as_written() {
    let environment = Environment::parse("formats", FORMATS).unwrap();
    let program = compile("example", EXAMPLE, &environment).unwrap();
    check(&mut Interpreted::new(program.clone()));
    let mut compiler = Compiler::new().unwrap();
    check(&mut Native::new(program.clone(), &mut compiler).unwrap());
    if let Err(why) = available() {
        println!("SKIPPED: no handlers in this kernel: {why}");
        return;
    }
    check(&mut Kernel::new(program, Hook::Call).unwrap());
}
