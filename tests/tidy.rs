//! Rules of CONTRIBUTING.md that no compiler keeps.

use std::fs;
use std::path::{Path, PathBuf};

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

/// A file without the items that only tests have: a `mod tests;`, or an item up to the brace that
/// closes it at the same indentation.
fn without_tests(text: &str) -> String {
    let mut code = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !line.trim_start().starts_with("#[cfg(test)]") && !line.contains("#[cfg(all(test") {
            code.extend([line, "\n"]);
            continue;
        }
        let close = format!("{}}}", " ".repeat(line.len() - line.trim_start().len()));
        let mut item = lines.by_ref().skip_while(|line| line.trim_start().starts_with("#["));
        if item.next().is_some_and(|first| !first.trim_end().ends_with(';')) {
            item.find(|line| line.starts_with(&close));
        }
    }
    code
}

#[test]
fn only_items_of_tests_are_left_out() {
    let text = "a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\nmod more {\n    c\n}\nd\n";
    assert_eq!(without_tests(text), "a\nb\nd\n");
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
    let rooms = [
        "units/src",
        "data/memory/src",
        "data/stream/src",
        "data/sched/src",
        "data/cpu/src",
        "data/stack/src",
        "control/code/src",
        "control/event/src",
        "data/link/src",
        "control/config/src",
        "control/overload/src",
    ];
    for room in rooms {
        for path in files(&root().join(room), &[".rs"]) {
            let inside = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            if exempt.iter().any(|file| inside.starts_with(file)) || inside.contains("tests") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = without_tests(&text);
            let locks = if inside.starts_with("data/memory/") { &[][..] } else { &threads };
            let found = banned.iter().chain(locks).filter(|word| code.contains(**word));
            wrong.extend(found.map(|word| format!("{inside}: {word}")));
        }
    }
    complain("pure rooms take the time, and do no I/O and take no locks", &wrong);
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
