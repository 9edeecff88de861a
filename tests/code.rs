//! `selvedge code` from the outside: results, faults and mistakes in text and JSON, exit status.

mod support;

use std::ffi::OsStr;
use std::path::Path;

use selvedge_os_jit::available;
use serde_json::{Value, json};
use support::{Folder, selvedge};

const FORMAT: &str =
    "input { int cpu; unsigned char_count; double load; char name[4]; long all[3]; };
output { int busy; double twice; };";

const HANDLER: &str = "{
    static int calls;
    calls++;
    output.busy = input.cpu > 80 && input.name[0] == 'a';
    return input.all[input.cpu % 4] * 10 + calls;
}";

fn run(file: &Path, format: &Path, options: &[&str]) -> support::Ended {
    let mut all = vec![OsStr::new("code"), OsStr::new("run"), file.as_os_str()];
    all.extend([OsStr::new("--format"), format.as_os_str()]);
    all.extend(options.iter().map(|option| OsStr::new(*option)));
    selvedge(all)
}

#[test]
fn every_target_gives_the_same() {
    let folder = Folder::new();
    let (file, format) = (folder.write("h.ec", HANDLER), folder.write("f.format", FORMAT));
    let events =
        r#"[{"cpu": 90, "name": "abc", "all": [1, 2, 3]}, {"cpu": 1, "all": [0, -7]}, {}]"#;
    let mut targets = vec!["process", "walk"];
    match available() {
        Ok(()) => targets.push("kernel"),
        Err(why) => println!("SKIPPED: no handlers in this kernel: {why}"),
    }
    for target in targets {
        let ended = run(&file, &format, &["--input", events, "--target", target, "--json"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let lines: Vec<Value> =
            ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let results: Vec<&Value> = lines.iter().map(|line| &line["result"]).collect();
        assert_eq!(results, [&json!(31), &json!(-68), &json!(3)], "{target}");
        assert_eq!(lines[0]["output"], json!({"busy": 1, "twice": 0.0}));
        assert_eq!(lines[1]["output"]["busy"], 0);
        assert_eq!(lines[0]["fuel_used"], 0);
    }
    let input = folder.write("event.json", "{\"cpu\": 2}");
    let ended = run(&file, &format, &["--input", &format!("@{}", input.display())]);
    assert_eq!(ended.stdout, "result 1\noutput {\"busy\":0,\"twice\":0.0}\n", "{ended:?}");
}

#[test]
fn a_fault_has_a_caret_and_exit_status_1() {
    let folder = Folder::new();
    let (file, format) = (folder.write("h.ec", HANDLER), folder.write("f.format", FORMAT));
    let ended = run(&file, &format, &["--input", "{\"cpu\": 3}"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("h.ec:5:22: the index is out of bounds"), "{ended:?}");
    assert!(ended.stderr.lines().nth(2).unwrap().ends_with('^'), "{ended:?}");
    let file = folder.write("endless.ec", "{ while (1); }");
    let ended = selvedge(["code".as_ref(), "run".as_ref(), file.as_os_str(), "--json".as_ref()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let fault: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((&fault["line"], &fault["column"]), (&json!(1), &json!(3)));
}

#[test]
fn bad_input_is_named_and_nothing_is_run() {
    let folder = Folder::new();
    let (file, format) = (folder.write("h.ec", HANDLER), folder.write("f.format", FORMAT));
    for (input, message) in [
        ("{\"cpu\": 90", "no JSON"),
        ("[{}, {\"cqu\": 1}]", "event 2: there is no input.cqu; there are cpu"),
        ("{\"cpu\": 1.5}", "input.cpu is 1.5, which is no int"),
        ("{\"cpu\": 5000000000}", "input.cpu is 5000000000, which is no int"),
        ("{\"char_count\": -1}", "input.char_count is -1, which is no unsigned"),
        ("{\"cpu\": [1]}", "input.cpu is a list; write a number"),
        ("{\"all\": 1}", "input.all is a number; write a list"),
        ("{\"all\": [1, 2, 3, 4]}", "input.all has 4 elements, and room for 3"),
        ("{\"name\": \"abcde\"}", "input.name has 5 bytes, and room for 4"),
        ("7", "input is a number; write an object"),
        ("@nowhere.json", "nowhere.json: No such file"),
    ] {
        let ended = run(&file, &format, &["--input", input]);
        assert_eq!(ended.code, Some(2), "{input}: {ended:?}");
        assert!(ended.stderr.contains(message), "{input}: {ended:?}");
        assert_eq!(ended.stdout, "", "{input}");
    }
}

#[test]
fn mistakes_are_told_in_text_and_json() {
    let folder = Folder::new();
    let file = folder.write("h.ec", "input { int cpu; };\n{\n  return input.cqu;\n}");
    let check = |more: &[&str]| {
        let mut all = vec![OsStr::new("code"), OsStr::new("check"), file.as_os_str()];
        all.extend(more.iter().map(|one| OsStr::new(*one)));
        selvedge(all)
    };
    let ended = check(&["--json"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("h.ec:3:16: input has no member \"cqu\""), "{ended:?}");
    assert!(ended.stderr.contains("write \"cpu\""), "{ended:?}");
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(report["ok"], false);
    assert_eq!(report["mistakes"][0]["line"], 3);
    folder.write("h.ec", "{ return (long)(now() * 1.5); }");
    let ended = check(&["--target", "kernel"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("this is a double, and the kernel has none"), "{ended:?}");
    let ended = check(&[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    folder.write("h.ec", "x = 1; ".repeat(2_000_000));
    let ended = check(&[]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("14000000 bytes") && ended.stderr.len() < 1000, "{ended:?}");
}

#[test]
fn dump_shows_form_byte_code_and_size() {
    let folder = Folder::new();
    let source = "input { int a[4]; int i; };\n{ return input.a[input.i]; }";
    let file = folder.write("h.ec", source);
    let ended = selvedge(["code".as_ref(), "dump".as_ref(), file.as_os_str()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for part in ["return (long)int[64 + (int[80] below 4) * 4]", "if r1 >= 4 goto", "exit"] {
        assert!(ended.stdout.contains(part), "{part}: {ended:?}");
    }
    let last = ended.stdout.lines().last().unwrap();
    assert!(last.starts_with("machine code, ") && last.ends_with(" bytes"), "{last}");
    let ended = selvedge(["code".as_ref(), "dump".as_ref(), file.as_os_str(), "--json".as_ref()]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(report["machine_code_bytes"].as_u64().unwrap() > 20);
    assert_eq!(report["ebpf_refused"], Value::Null);
}
