//! Rules of CONTRIBUTING.md that no compiler keeps.

mod support;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "tidy/words.rs"]
mod words;

/// Lines beyond which a file is to be split: where a value can be handed over, not a type cut in two.
const LINES_MAX: usize = 700;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All files below a folder with one of these endings, built and vendored ones left out.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let skipped = ["target", "node_modules", "vendor", ".git", "corpus", "out"];
            if path.is_dir() && !path.is_symlink() {
                if !skipped.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty());
    found
}

fn complain(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn files_are_of_a_size_to_be_read() {
    let sources = files(&root(), &[".rs", ".js", ".mjs", ".sh"]);
    let long = sources.iter().filter_map(|path| {
        let lines = fs::read_to_string(path).unwrap().lines().count();
        (lines > LINES_MAX).then(|| format!("{}: {lines} lines", path.display()))
    });
    complain("too long, split them", &long.collect::<Vec<_>>());
}

#[test]
fn names_say_something() {
    let empty = ["util", "utils", "common", "helpers", "misc"];
    let sources = files(&root(), &[".rs", ".js"]);
    let wrong = sources.iter().filter(|path| {
        let inside = path.strip_prefix(root()).unwrap();
        inside.components().any(|part| {
            let part = part.as_os_str().to_str().unwrap();
            empty.contains(&part.split('.').next().unwrap())
        })
    });
    let wrong: Vec<_> = wrong.map(|path| path.display().to_string()).collect();
    complain("names that say nothing", &wrong);
}

#[test]
fn every_source_says_what_it_is() {
    let sources = files(&root(), &[".rs"]);
    let silent = sources.iter().filter(|path| {
        let text = fs::read_to_string(path).unwrap();
        !text.starts_with("//!")
    });
    let silent: Vec<_> = silent.map(|path| path.display().to_string()).collect();
    complain("open with what the file is (//!)", &silent);
}

/// A file in two: without the items that only tests have, and these. Such an item is a `mod tests;`, or
/// goes up to the brace that closes it at the same indentation.
fn divided(text: &str) -> (String, String) {
    let (mut code, mut tests) = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("#[cfg(test)]") && !line.contains("#[cfg(all(test") {
            code.extend([line, "\n"]);
            continue;
        }
        let close = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let mut item = lines.by_ref().skip_while(|line| line.trim_start().starts_with("#["));
        let Some(first) = item.next() else { break };
        tests.extend([first, "\n"]);
        if !first.trim_end().ends_with(';') {
            let is_open = |line: &&str| !line.starts_with(&close);
            tests.extend(item.take_while(is_open).flat_map(|line| [line, "\n"]));
        }
    }
    (code, tests)
}

#[test]
fn items_of_tests_are_told_from_the_code() {
    let text = "a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\nmod more {\n    c\n}\nd\n";
    let tests = "mod tests;\nmod more {\n    c\n";
    assert_eq!(divided(text), ("a\nb\nd\n".to_owned(), tests.to_owned()));
}

/// All Rust files: their paths from the root, what is product in them, and what only tests have.
fn sources() -> Vec<(String, String, String)> {
    let divided = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let inside = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let is_test = |part: &str| part == "tests" || part == "tests.rs";
        let (code, tests) = match inside.split('/').any(is_test) {
            true => (String::new(), text),
            false => divided(&text),
        };
        (inside, code, tests)
    };
    files(&root(), &[".rs"]).into_iter().map(divided).collect()
}

/// What stands behind a `Result<` up to its closing bracket, a text as the error only.
fn texts_as_errors(code: &str) -> Vec<&str> {
    let all = code.match_indices("Result<").filter_map(|(at, start)| {
        let inside = &code[at + start.len()..];
        let (mut depth, mut comma) = (0, None);
        for (at, c) in inside.char_indices() {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' if depth == 0 => {
                    let error = inside[comma? + 1..at].trim().trim_end_matches(',');
                    return (error == "String").then(|| &inside[..at]);
                }
                '>' if inside[..at].ends_with('-') => {}
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 0 && comma.is_none() => comma = Some(at),
                _ => {}
            }
        }
        None
    });
    all.collect()
}

#[test]
fn texts_as_errors_are_found() {
    let found =
        texts_as_errors("Result<(A, Vec<B>), String>, Result<String>, Result<A, E<String>>");
    assert_eq!(found, ["(A, Vec<B>), String"]);
    assert_eq!(texts_as_errors("Result<\n    A,\n    String,\n>").len(), 1);
}

#[test]
fn errors_are_enums_and_not_texts() {
    let mut wrong = Vec::new();
    for (path, code, _) in sources() {
        let found = texts_as_errors(&code);
        wrong.extend(found.iter().map(|inside| format!("{path}: Result<{inside}>")));
    }
    complain("an error is an enum with the offending value, one per operation", &wrong);
}

#[test]
fn tests_wait_for_conditions() {
    let sleeps = ["thread::", "time::", "u", "nano"].map(|of| format!("{of}sleep("));
    let mut wrong = Vec::new();
    for (path, _, tests) in sources() {
        let found = sleeps.iter().filter(|sleep| tests.contains(*sleep));
        wrong.extend(found.map(|sleep| format!("{path}: {sleep}")));
        let own = |line: &&str| line.contains("fn until(") && !line.contains("self");
        wrong.extend(tests.lines().filter(own).map(|line| format!("{path}: {line}")));
    }
    wrong.retain(|line| !line.starts_with("tests/wait/src/lib.rs: "));
    complain("tests wait for conditions, by selvedge-tests-wait", &wrong);
}

/// Rooms without a clock, I/O and threads.
const PURE: [&str; 18] = [
    "units",
    "data/memory",
    "data/stream",
    "data/sched",
    "data/cpu",
    "data/net/line",
    "data/net/rate",
    "data/net/bond",
    "data/net/rtcp",
    "data/net/secure",
    "data/stack",
    "control/code",
    "control/event",
    "data/link",
    "data/receive",
    "control/config",
    "control/overload",
    "sim",
];
/// Pure rooms that give the same numbers on every machine.
const EXACT: [&str; 5] =
    ["data/net/line", "data/net/rate", "data/net/rtcp", "data/net/bond", "sim"];

/// What a manifest's `[dependencies]` name.
fn dependencies(manifest: &str) -> Vec<&str> {
    let behind = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let lines = behind.lines().take_while(|line| !line.starts_with('['));
    lines
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !["", "#"].contains(name))
        .collect()
}

#[test]
fn pure_rooms_have_no_input_output_or_clock() {
    let banned = [
        "std::net::Udp",
        "std::net::Tcp",
        "std::fs",
        "std::thread",
        "std::process",
        "std::io::",
        "Instant::now(",
        "SystemTime",
    ];
    // `trace` prints to a writer that it is given; it is a feature of its own.
    let exempt = ["data/sched/src/trace/"];
    // Rings and pools are made of atomics; all else of a pure room is one thread's at a time.
    let threads = ["Mutex", "RwLock", "Condvar", "Waker", "sync::atomic"];
    let mut wrong = Vec::new();
    for room in PURE {
        for path in files(&root().join(room).join("src"), &[".rs"]) {
            let inside = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            if exempt.iter().any(|file| inside.starts_with(file)) || inside.contains("tests") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let (code, _) = divided(&text);
            let locks = if inside.starts_with("data/memory/") { &[][..] } else { &threads };
            let floats = if EXACT.contains(&room) { &["f32", "f64"][..] } else { &[] };
            let all = banned.iter().chain(locks).chain(floats);
            let found = all.filter(|word| code.contains(**word));
            wrong.extend(found.map(|word| format!("{inside}: {word}")));
        }
    }
    complain("pure rooms take the time, and do no I/O and take no locks", &wrong);
}

#[test]
fn pure_rooms_depend_on_nothing_that_has_a_clock_or_threads() {
    // These only compute; what clocks, threads and files some of them have is not used.
    let others = [
        "crc32fast",
        "cranelift-codegen",
        "cranelift-frontend",
        "lz4_flex",
        "postcard",
        "reed-solomon-simd",
        "ring",
        "serde",
        "serde_bytes",
        "serde_json",
        "snow",
        "strsim",
        "target-lexicon",
        "thiserror",
        "toml",
        "toml_edit",
        "zeroize",
    ];
    let pure = |name: &str| {
        let room = |room: &&str| name == format!("selvedge-{}", room.replace('/', "-"));
        others.contains(&name) || PURE.iter().any(room)
    };
    let mut wrong = Vec::new();
    for room in PURE {
        let manifest = fs::read_to_string(root().join(room).join("Cargo.toml")).unwrap();
        let found = dependencies(&manifest);
        assert!(!found.is_empty(), "{room} depends on something");
        let impure = found.into_iter().filter(|name| !pure(name));
        wrong.extend(impure.map(|name| format!("{room}: {name}")));
    }
    complain("pure rooms depend on pure rooms, and on crates that only compute", &wrong);
    let manifest = "[a]\n[dependencies]\nb.workspace = true\n# c\nd = { x }\n\n[e]\nf = 1\n";
    assert_eq!(dependencies(manifest), ["b", "d"]);
}

#[test]
fn time_is_ours_outside_the_system() {
    let names = ["time::Duration", "StdDuration"];
    let grouped = |line: &str| line.contains("time::{") && line.contains("Duration");
    let is_product =
        |path: &str| !["os/", "lab/", "tests/", "fuzz/"].iter().any(|f| path.starts_with(f));
    let mut wrong = Vec::new();
    for (path, code, _) in sources() {
        // Where the two meet; and what shows a program of a user's.
        if !is_product(&path) || path.starts_with("units/src/") || path.contains("/examples/") {
            continue;
        }
        let named = |line: &&str| names.iter().any(|name| line.contains(name)) || grouped(line);
        wrong.extend(code.lines().filter(named).map(|line| format!("{path}: {line}")));
    }
    complain("a length of time is a selvedge_units::Duration", &wrong);
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for path in files(&root(), &[".md"]) {
        let text = fs::read_to_string(&path).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|t| !t.contains("://") && !t.starts_with('#')) {
            let file = target.split('#').next().unwrap();
            if !path.parent().unwrap().join(file).exists() {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    complain("links that lead nowhere", &wrong);
}

/// The names that may stand in front of a commit's subject: folders and files without their endings, and
/// `rooms` for a change that goes through all.
fn rooms() -> HashSet<String> {
    let named = |path: PathBuf| {
        let inside = path.strip_prefix(root()).unwrap().to_str().unwrap().to_lowercase();
        let part = |part: &str| part.trim_start_matches('.').split('.').next().unwrap().to_owned();
        inside.split('/').map(part).collect::<Vec<String>>()
    };
    let all = files(&root(), &[""]).into_iter().flat_map(named);
    all.chain(["rooms".to_owned()]).collect()
}

/// What is wrong with a commit's subject.
fn wrong_subject(subject: &str, rooms: &HashSet<String>) -> Option<&'static str> {
    let Some((front, said)) = subject.split_once(": ") else { return Some("no room in front") };
    if !front.split(", ").all(|room| rooms.contains(room)) {
        return Some("the room in front is no folder or file");
    }
    if !said.starts_with(|c: char| c.is_lowercase()) || said.ends_with('.') {
        return Some("write an imperative in lower case, without a full stop");
    }
    (subject.chars().count() > 72).then_some("more than 72 characters")
}

#[test]
fn subjects_are_told_right_from_wrong() {
    let rooms = ["stack", "os"].map(str::to_owned).into();
    for (subject, right) in [
        ("stack: retransmit sooner", true),
        ("os, stack: name errors", true),
        ("retransmit sooner", false),
        ("nowhere: retransmit sooner", false),
        ("stack: Retransmit sooner", false),
        ("stack: retransmit sooner.", false),
    ] {
        assert_eq!(wrong_subject(subject, &rooms).is_none(), right, "{subject}");
    }
    let of = |letters| format!("stack: {}", "x".repeat(letters));
    assert!(wrong_subject(&of(66), &rooms).is_some() && wrong_subject(&of(65), &rooms).is_none());
}

#[test]
fn commit_subjects_have_a_room_in_front() {
    let name = "commit_subjects_have_a_room_in_front";
    let git = |args: &[&str]| -> Result<String, String> {
        let done = Command::new("git").arg("-C").arg(root()).args(args).output();
        let done = done.map_err(|error| format!("git: {error}"))?;
        let said = |bytes| String::from_utf8_lossy(bytes).trim().to_owned();
        if done.status.success() { Ok(said(&done.stdout)) } else { Err(said(&done.stderr)) }
    };
    // Of a clone without the whole history the oldest commit is taken for the one that brought this.
    let since = ["log", "--format=%H", "--reverse", &format!("-Sfn {name}"), "--", "tests/tidy.rs"];
    let since = match git(&since) {
        Ok(found) => found.lines().next().unwrap_or("HEAD").to_owned(),
        Err(why) => return support::skipped(name, &format!("needs the history: {why}")),
    };
    let range = format!("{since}..HEAD");
    let subjects = git(&["log", "--no-merges", "--format=%h %s", &range]).expect("both are there");
    let rooms = rooms();
    let wrong = subjects.lines().filter_map(|line| {
        let (_, subject) = line.split_once(' ')?;
        wrong_subject(subject, &rooms).map(|why| format!("{line}: {why}"))
    });
    complain("write `room: imperative`", &wrong.collect::<Vec<_>>());
}
