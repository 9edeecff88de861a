//! The behaviour of programs: C's precedence and conversions, and cases that C leaves open.

use selvedge_control_code::interpret::{NoHost, call};
use selvedge_control_code::{Environment, Fault, Memory, Number, Storage, compile};

fn result(source: &str) -> i64 {
    let program =
        compile("h", source, &Environment::default()).unwrap_or_else(|error| panic!("{error}"));
    call(&program, &mut Memory::new(&program), &mut NoHost)
        .unwrap_or_else(|e| panic!("{source}: {e}"))
}

#[test]
fn expressions_mean_what_they_mean_in_c() {
    let (three, zero) = (3, 0);
    for (text, value) in [
        ("1 + 2 * 3 - 4 / 2 % 3", 5),
        ("1 << 2 + 1", 1 << 3),
        ("6 & 3 == 3", 0),
        ("1 | 2 ^ 3 & 2", 1),
        ("1 < 2 == 1", 1),
        ("!0 + !5", 1),
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("~0", -1),
        ("0 ? 1 : 0 ? 2 : 3", three),
        ("1 || now() && 0", 1),
        ("-1 < 1u", zero),
        ("-1 < 1l", 1),
        ("(unsigned)-1 > 0", 1),
        ("2147483647 + 1", -2_147_483_648),
        ("2147483647 + 1l", 2_147_483_648),
        ("4294967295u + 1u", 0),
        ("0x80000000 == 2147483648", 1),
        ("(char)300", 44),
        ("(char)-1", 255),
        ("(short)40000", -25536),
        ("(unsigned short)-1", 65535),
        ("5 / 0", 0),
        ("5 % 0", 5),
        ("(-2147483647 - 1) / -1", -2_147_483_648),
        ("1 << 33", 2),
        ("1l << 33", 1 << 33),
        ("-8 >> 1", -4),
        ("(long)2.9 + (long)-2.9", 0),
        ("(int)1e30", 2_147_483_647),
        ("(unsigned)-1.0", 0),
        ("0.1 + 0.2 == 0.3", 0),
        ("1.0 / 0.0 > 1e308", 1),
        ("'a' + '\\n'", 107),
        ("sizeof(long) + sizeof(unsigned short)", 10),
        ("min(3, -2) + max(3u, 2) + abs(-4)", 5),
        ("min(1, 0.5) < 1", 1),
        ("(1, 2, 3)", 3),
        ("0x7fffffffffffffff + 1 < 0", 1),
        ("0xfful", 255),
        (".5 + 5. == 5.5", 1),
    ] {
        assert_eq!(result(&format!("{{ return {text}; }}")), value, "{text}");
        // The same, when nothing is known at compile time: each number comes from a variable.
        let hidden = hide(text);
        assert_eq!(result(&hidden), value, "{hidden}");
    }
}

/// Moves plain small numbers into variables, so that the checker does not compute them.
fn hide(text: &str) -> String {
    let mut source = String::from("{ static int zero; int ");
    let names: Vec<String> = (0..10).map(|digit| format!("d{digit} = {digit} + zero")).collect();
    source += &names.join(", ");
    source += "; return ";
    let bytes = text.as_bytes();
    for (at, c) in text.char_indices() {
        let alone =
            |at: Option<&u8>| !at.is_some_and(|b| b.is_ascii_alphanumeric() || b".'\\".contains(b));
        let before = at.checked_sub(1).map(|at| &bytes[at]);
        if c.is_ascii_digit() && alone(before) && alone(bytes.get(at + 1)) {
            source += "d";
        }
        source.push(c);
    }
    source + "; }"
}

#[test]
fn statements_mean_what_they_mean_in_c() {
    for (body, value) in [
        (
            "int i, n = 0; for (i = 0; i < 10; i++) { if (i == 3) continue; if (i == 6) break; n += i; } return n;",
            12,
        ),
        ("int i = 0; do i++; while (i < 5); return i;", 5),
        ("int i = 9; do { if (i > 3) continue; i = 100; } while (i-- > 5); return i;", 4),
        ("int i = 5; int j = i++ + ++i; return j * 100 + i;", 1207),
        ("int i = 1; i += i++ + 1; return i;", 3),
        ("int a[3]; a[1] = 5; a[a[1] - 3] = 7; return a[0] + a[1] * 10 + a[2] * 100;", 750),
        (
            "int a[2][3]; int i; for (i = 0; i < 6; i++) a[i / 3][i % 3] = i; return a[1][0] * 10 + a[0][2];",
            32,
        ),
        ("int x = 1; { int x = 2; x++; } return x;", 1),
        ("char c = 250; c += 10; return c;", 4),
        ("unsigned short s = 0; s--; return s;", 65535),
        (
            "long n = 0; for (int i = 0; i < 3; i++) { int fresh; fresh += i; n += fresh; } return n;",
            3,
        ),
        ("double d = 1; d /= 4; d += 1; return d * 100;", -1),
        ("return 1; return 2;", 1),
        ("if (0) return 1; else if (0) return 2; else return 3;", 3),
        ("const K = 3; int a[K]; a[K - 1] = K; return a[2];", 3),
        ("int i = 0; while (1) { while (1) { i++; break; } if (i > 4) break; } return i;", 5),
        ("", 0),
    ] {
        let source =
            format!("{{ {} }}", body.replace("return d * 100;", "return (long)(d * 100);"));
        let value = if value == -1 { 125 } else { value };
        assert_eq!(result(&source), value, "{source}");
    }
}

#[test]
fn static_variables_and_shared_records_live_on() {
    let environment = Environment::parse("f", "shared { int n; };").unwrap();
    let source = "{ static int calls = 5; calls++; shared.n += calls; return calls; }";
    let program = compile("h", source, &environment).unwrap();
    let mut memory = Memory::new(&program);
    assert_eq!(call(&program, &mut memory, &mut NoHost), Ok(6));
    assert_eq!(call(&program, &mut memory, &mut NoHost), Ok(7));
    let shared = memory.record(&program, "shared").unwrap();
    assert_eq!(Number::load(shared, 0, Storage::Int), Some(Number::Signed(13)));
}

#[test]
fn a_fault_is_told_at_its_index_and_keeps_what_was_written() {
    let environment =
        Environment::parse("f", "input { int i; };\noutput { int done, a[3]; };").unwrap();
    let source = "{\n  output.done = 1;\n  output.a[input.i] = 1;\n  output.done = 2;\n}";
    let program = compile("h", source, &environment).unwrap();
    for (index, fits) in [(0, true), (2, true), (3, false), (-1, false), (i32::MIN, false)] {
        let mut memory = Memory::new(&program);
        let input = memory.record_mut(&program, "input").unwrap();
        Number::Signed(i64::from(index)).store(input, 0, Storage::Int).unwrap();
        let ended = call(&program, &mut memory, &mut NoHost);
        let done = Number::load(memory.record(&program, "output").unwrap(), 0, Storage::Int);
        assert_eq!(ended, memory.outcome());
        if fits {
            assert_eq!((ended, done), (Ok(0), Some(Number::Signed(2))));
        } else {
            let fault = ended.unwrap_err();
            assert!(matches!(fault, Fault::OutOfBounds { .. }));
            assert_eq!(fault.position(&program).to_string(), "3:12");
            assert_eq!(done, Some(Number::Signed(1)));
        }
    }
}

#[test]
fn a_whole_struct_is_assigned_as_in_c() {
    let formats = "struct part { char name[3]; short size; double load; };
        struct large { struct part parts[4]; int last; };
        input { struct part part[3]; struct large large; };
        output { struct part part[3]; struct large large; };
        shared { int turns; };";
    let environment = Environment::parse("formats", formats).unwrap();
    let run = |source: &str| {
        let program = compile("h", source, &environment).unwrap_or_else(|e| panic!("{e}"));
        let mut memory = Memory::new(&program);
        let input = memory.record_mut(&program, "input").unwrap();
        input.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8 + 1);
        let result = call(&program, &mut memory, &mut NoHost);
        let record = |name| memory.record(&program, name).unwrap().to_vec();
        (result, record("input"), record("output"), record("shared"))
    };
    // 16 bytes a part, 72 the large struct.
    let (_, input, output, _) = run("{ output.part[1] = input.part[2]; }");
    assert_eq!((&output[16..32], &output[..16]), (&input[32..48], &[0; 16][..]));
    let (_, input, output, _) = run("{ output.large = input.large; }");
    assert_eq!((&output[48..], &output[..48]), (&input[48..], &[0; 48][..]));
    let (_, input, output, _) = run("{ output = input; }");
    assert_eq!(output, input);
    let (_, input, output, _) =
        run("{ struct part p = input.part[0]; p.size = 7; output.part[0] = p; \
                                      output.part[2] = output.part[0]; }");
    assert_eq!(
        (&output[..3], &output[4..6], &output[8..16]),
        (&input[..3], &[7, 0][..], &input[8..16])
    );
    assert_eq!(output[32..48], output[..16]);
    // Each index is evaluated once, the place before the value.
    let (result, input, output, shared) =
        run("{ output.part[shared.turns++] = input.part[shared.turns++]; return shared.turns; }");
    assert_eq!((result, &output[..16], shared[0]), (Ok(2), &input[16..32], 2));
    // An index out of bounds is reported before anything is written.
    let source =
        "{ shared.turns = 5; output.large.parts[0] = input.large.parts[shared.turns - 1]; }";
    let (result, _, output, _) = run(source);
    assert!(matches!(result, Err(Fault::OutOfBounds { .. })), "{result:?}");
    assert!(output.iter().all(|byte| *byte == 0));
    // A large one takes fuel, as loops do.
    let program = compile("h", "{ output.large = input.large; }", &environment).unwrap();
    assert!(program.has_loops());
}
