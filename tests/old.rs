//! The names of the last release: each does what the new name does, and names it on standard error. Those
//! that became `selvedge-lab` run that program from beside `selvedge`, with what was typed; where it is not
//! there, the answer names it.

mod support;

use support::{Ended, Folder, Running, TIMEOUT, program, selvedge};

/// `selvedge` in a folder of its own, where nothing lies beside it yet.
fn alone() -> (Folder, String) {
    let folder = Folder::new();
    let path = folder.join("selvedge");
    std::fs::hard_link(env!("CARGO_BIN_EXE_selvedge"), &path).expect("one file system");
    let name = path.to_str().expect("plain").to_owned();
    (folder, name)
}

fn run(name: &str, arguments: &[&str]) -> Ended {
    Running::start(program(name).args(arguments)).end(TIMEOUT)
}

const TYPED: [(&[&str], &str); 4] = [
    (&["bench", "decide", "--json", "--seconds", "1"], "bench decide --json --seconds 1"),
    (&["repro", "--list", "--help"], "repro --list --help"),
    (&["-v", "events", "bench", "--sinks", "2"], "-v bench channels --sinks 2"),
    (&["schedule", "a.json", "--engine", "rtl"], "schedule --engine rtl -- a.json"),
];

#[test]
fn what_is_typed_goes_to_the_program_beside() {
    let (folder, name) = alone();
    std::os::unix::fs::symlink("/bin/echo", folder.join("selvedge-lab")).expect("a folder of ours");
    for (typed, expected) in TYPED {
        let ended = run(&name, typed);
        assert_eq!((ended.code, ended.stdout.trim()), (Some(0), expected), "{typed:?}: {ended:?}");
        assert!(ended.stderr.contains("is now `selvedge-lab "), "{typed:?}: {ended:?}");
    }
}

#[test]
fn without_it_the_answer_names_it() {
    let (_folder, name) = alone();
    for (typed, _) in TYPED {
        run(&name, typed).refused(&["the command is now selvedge-lab", "`make lab` builds it"]);
    }
}

#[test]
fn an_old_name_does_what_the_new_one_does() {
    let trace = |name: &str| format!("{}/vectors/{name}", env!("CARGO_MANIFEST_DIR"));
    let (fits, broken) = (trace("01-dwcs-backlogged.json"), trace("README.md"));
    let cases: [(&[&str], &[&str], &[&str]); 4] = [
        (&["schedule"], &["trace", "replay"], &[&fits, "--discipline", "edf"]),
        (&["schedule"], &["trace", "replay"], &[&broken]),
        (&["admit"], &["trace", "admit"], &[&fits, "--json"]),
        (&["admit"], &["trace", "admit"], &[&fits, "--discipline", "dwsc"]),
    ];
    for (old, new, more) in cases {
        let by_old = selvedge(old.iter().chain(more));
        let by_new = selvedge(new.iter().chain(more));
        assert_eq!(by_old.code, by_new.code, "{old:?} {more:?}: {by_old:?}");
        assert!(by_old.stdout == by_new.stdout, "{old:?} {more:?}: other lines");
        let (first, rest) = by_old.stderr.split_once('\n').expect("a line");
        assert!(first.contains(&format!("is now `selvedge {}`", new.join(" "))), "{first}");
        assert_eq!(rest, by_new.stderr, "{old:?} {more:?}");
    }
}

#[test]
fn help_shows_the_commands_then_the_nouns_and_no_old_name() {
    let help = selvedge(["--help"]).stdout;
    let names: Vec<&str> = help
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| word.chars().next().is_some_and(|c| c.is_ascii_lowercase()))
        .collect();
    let expected = [
        "demo", "run", "receive", "pack", "check", "play", "top", "doctor", "sim", "node", "bond",
        "trace", "events", "stack", "key", "line", "cpu", "kernel", "code",
    ];
    assert_eq!(names, expected, "{help}");
}
