//! The header and the library agree: C programs compile against it with all warnings, link, run, and lay out
//! its structures as Rust does. Needs `cc`; uses valgrind where it is installed.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use core::mem::{offset_of, size_of};
use selvedge_sched_c::{Contract, Counters, Expiry, HeadFrame, Node, Served, StreamletCounts};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// The static library that was built along with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let deps = test.parent().expect("in a folder");
    let beside = [deps, deps.parent().expect("in the target folder")];
    let mut found = Vec::new();
    for folder in beside {
        for entry in std::fs::read_dir(folder).expect("readable").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("libselvedge_sched_c") && name.ends_with(".a") {
                let changed = entry.metadata().and_then(|data| data.modified()).expect("a time");
                found.push((changed, entry.path()));
            }
        }
    }
    found.sort();
    found.pop().expect("cargo builds the static library for its tests").1
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    output
}

/// Compiles a C file with these additional options; returns the program.
fn compile(source: &str, name: &str, options: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let strict = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"];
    run(Command::new("cc")
        .args(strict)
        .args(options)
        .arg("-I")
        .arg(Path::new(CRATE).join("include"))
        .arg(Path::new(CRATE).join(source))
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program));
    program
}

#[test]
fn four_streams_share_a_link_from_c() {
    let program = compile("examples/four_streams.c", "four_streams", &[]);
    let output = run(&mut Command::new(&program));
    let text = String::from_utf8(output.stdout).expect("plain text");
    let expected = [1000, 1000, 2000, 4000].iter().enumerate().fold(String::new(), |mut all, n| {
        writeln!(all, "stream {}: {} frames", n.0, n.1).expect("a string grows");
        all
    });
    assert_eq!(text, expected);
}

#[test]
fn a_tree_and_classes_from_c() {
    let program = compile("examples/tree.c", "tree", &[]);
    let output = run(&mut Command::new(&program));
    let text = String::from_utf8(output.stdout).expect("plain text");
    let lines: Vec<&str> = text.lines().collect();
    // Finish tags below the link: video 333, 667, 1000; backup 1000. Video's first is live's, whose
    // first is the lecture's; then live and film both end at 1000 of video's.
    assert_eq!(lines[0], "block: lecture door film backup");
    assert_eq!(lines[1..5], ["lecture: 375", "door: 125", "film: 250", "backup: 250"]);
    // A quarter each by deadline and by priority, and the rest half and half.
    assert_eq!(lines[5..], ["lecture: 250", "door: 250", "film: 250", "backup: 250"]);
}

/// Each slot's streamlets had 30 frames for each eighth of the link, those of the fourth 160 and 80.
#[test]
fn streamlets_share_slots_from_c() {
    let program = compile("examples/streamlets.c", "streamlets", &[]);
    let output = run(&mut Command::new(&program));
    let text = String::from_utf8(output.stdout).expect("plain text");
    let sets = [(0, 0, 3000, 30, 101), (1, 0, 3000, 30, 101), (2, 0, 6000, 60, 101)];
    let sets = sets.into_iter().chain([(3, 0, 8000, 160, 77), (3, 1, 4000, 80, 152)]);
    let within = |found: i64, due: i64| (found - due).abs() <= 1.max(due / 100);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    for (line, (slot, set, all, one, turns)) in lines.into_iter().zip(sets) {
        let numbers: Vec<i64> =
            line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        assert_eq!((numbers[0], numbers[1], numbers[4]), (slot, set, turns), "{line}");
        assert!(within(numbers[2], all) && within(numbers[3], one), "{line}");
    }
}

#[test]
fn memory_is_neither_lost_nor_read_out_of_bounds() {
    for (source, name) in [
        ("examples/four_streams.c", "four_streams_checked"),
        ("examples/tree.c", "tree_checked"),
        ("examples/streamlets.c", "streamlets_checked"),
        ("tests/misuse.c", "misuse_checked"),
    ] {
        let found = Command::new("valgrind").arg("--version").output().is_ok();
        let sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        let program = compile(source, name, if found { &[] } else { &sanitize });
        let mut command = Command::new(if found { Path::new("valgrind") } else { &program });
        if found {
            command.args(["-q", "--leak-check=full", "--error-exitcode=99"]).arg(&program);
        }
        run(&mut command);
    }
}

#[test]
fn misuse_is_refused_and_layouts_agree() {
    let program = compile("tests/misuse.c", "misuse", &[]);
    let output = run(&mut Command::new(&program));
    macro_rules! layout {
        ($name:literal, $type:ty, $($field:ident)*) => {
            [$name.to_owned(), size_of::<$type>().to_string(), $(offset_of!($type, $field).to_string()),*]
                .join(" ")
        };
    }
    let rust = [
        layout!("contract", Contract, period_ns delay_ns weight priority window_lose window_of
                late_send work_conserving class parent),
        layout!("node", Node, parent weight),
        layout!("head", HeadFrame, arrival_ns deadline_ns size_bytes),
        layout!("expiry", Expiry, deadline_ns next_ns misses stream dropped violation),
        layout!("served", Served, deadline_ns late),
        layout!("counters", Counters, sent late missed dropped violations),
        layout!("streamlet_counts", StreamletCounts, sent sent_bytes dropped),
    ];
    let text = String::from_utf8(output.stdout).expect("plain text");
    assert_eq!(text.lines().collect::<Vec<_>>(), rust);
}

/// Names that are followed by a parenthesis, after this word.
fn functions(text: &str, before: &str) -> BTreeSet<String> {
    let name = |rest: &str| -> String {
        rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let lines = text.lines().filter(|line| line.starts_with(before));
    lines
        .filter_map(|line| line.find("selvedge_").map(|at| (line, at)))
        .filter(|(line, _)| line.contains('('))
        .map(|(line, _)| {
            let end = line.find('(').expect("filtered");
            let begin = line[..end].rfind("selvedge_").expect("filtered");
            name(&line[begin..])
        })
        .collect()
}

#[test]
fn the_header_declares_every_function_and_no_other() {
    let header = include_str!("../include/selvedge_sched.h");
    let mut declared = functions(header, "int ");
    declared.extend(functions(header, "void "));
    declared.extend(functions(header, "const char *"));
    let mut defined = functions(include_str!("../src/lib.rs"), "pub unsafe extern");
    defined.extend(functions(include_str!("../src/lib.rs"), "pub extern"));
    defined.extend(functions(include_str!("../src/make.rs"), "pub unsafe extern"));
    defined.extend(functions(include_str!("../src/aggregate.rs"), "pub unsafe extern"));
    assert_eq!(declared, defined);
    assert_eq!(declared.len(), 30);
}
