//! The steps of docs/start.md, run as they stand there, in a network and a folder of their own.

mod support;

use std::path::Path;
use std::process::Command;

use support::{Folder, skipped};

const PAGE: &str = include_str!("../docs/start.md");

/// The blocks of the page that begin with "```sh" and nothing else.
fn steps() -> Vec<String> {
    let mut steps = Vec::new();
    let mut block: Option<String> = None;
    for line in PAGE.lines() {
        match (line, &mut block) {
            ("```sh", None) => block = Some(String::new()),
            ("```", Some(_)) => steps.extend(block.take()),
            (line, Some(text)) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    steps
}

/// Runs the steps but the one that installs; returns what they print.
fn run() -> String {
    let folder = Folder::new();
    let steps = steps();
    assert_eq!(steps.len(), 9, "ten with the one that installs");
    let script = steps.concat();
    // However it ends, nothing of it stays: the first process of its own namespace takes all others with it.
    let script = folder.write("steps.sh", format!("set -e\nip link set lo up\n{script}"));
    let program = Path::new(env!("CARGO_BIN_EXE_selvedge")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["timeout", "120", "bash"])
        .arg(script)
        .current_dir(folder.path())
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    format!("{text}\nended with {:?}", output.status.code())
}

fn is_allowed() -> bool {
    let made = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "true"])
        .output();
    made.is_ok_and(|made| made.status.success())
}

#[test]
fn the_first_hour_ends_in_an_alarm_when_a_camera_dies() {
    if !is_allowed() {
        skipped("the_first_hour…", "needs user, network and process namespaces");
        return;
    }
    let printed = run();
    assert!(printed.ends_with("ended with Some(0)"), "{printed}");
    let alarm = "ALARM: a camera is gone";
    let (before, after) = printed.split_once(alarm).unwrap_or_else(|| panic!("{printed}"));
    assert!(before.contains("stream=\"back\"") && !before.contains("stream=\"front\",state"));
    assert!(before.contains("\"state\":\"running\""), "{before}");
    // Both streams were received before, the other camera's afterwards.
    let row = |text: &str, name: &str| text.lines().any(|line| line.starts_with(name));
    assert!(row(before, "front") && row(before, "back") && row(after, "front"), "{printed}");
}
