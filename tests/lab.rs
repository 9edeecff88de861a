//! The commands that became `selvedge-lab`: each runs that program from beside `selvedge`, with what was
//! typed; where it is not there, the answer names it.

mod support;

use support::{Ended, Folder, Running, TIMEOUT, program};

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
fn help_no_longer_lists_them() {
    let (_folder, name) = alone();
    let help = run(&name, &["--help"]).stdout;
    assert!(help.contains("schedule"), "{help}");
    for gone in ["bench", "repro"] {
        assert!(!help.contains(gone), "{gone}: {help}");
    }
}
