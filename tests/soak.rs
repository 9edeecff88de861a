//! `tools/soak.sh` leaves no network behind when it is ended from outside. In place of Cargo stands a
//! program that makes a network as a test of cameras does, and waits.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use support::{Folder, Running, TIMEOUT, skipped, until};

#[test]
fn a_soak_that_is_ended_leaves_no_network() {
    let name = "a_soak_that_is_ended_leaves_no_network";
    let networks = || {
        let listed = Command::new("ip").args(["netns", "list"]).output();
        listed
            .map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let probe = format!("selvedge-probe-{}", std::process::id());
    let netns = |verb| Command::new("ip").args(["netns", verb, &probe]).status();
    if !netns("add").is_ok_and(|done| done.success()) {
        return skipped(name, "needs root and ip");
    }
    netns("del").expect("it was there");
    let folder = Folder::new();
    let cargo = folder.write(
        "cargo",
        "#!/bin/sh\nip netns add selvedge-test-$$-0-1\necho $$ > \"$SOAK_PROCESS\"\n\
         exec tail -f /dev/null\n",
    );
    std::fs::set_permissions(&cargo, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let path = std::env::var("PATH").expect("there is one");
    let process = folder.join("process");
    let mut soak = support::program("tools/soak.sh");
    soak.args(["--quick", "cameras"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .env("SOAK_PROCESS", &process);
    let soak = Running::start(&mut soak);
    let written = || std::fs::read_to_string(&process).unwrap_or_default();
    until("the network is there", || written().ends_with('\n'));
    let network = format!("selvedge-test-{}-0-1", written().trim());
    assert!(networks().contains(&network));
    soak.signal("TERM");
    assert_eq!(soak.end(TIMEOUT).code, Some(143));
    assert!(!networks().contains(&network), "{}", networks());
}
