//! `selvedge cpu` from the outside: what programs get, how they end, and who dies when.

mod support;

use std::path::Path;
use std::process::Command;

use selvedge_os::control::Connection;
use selvedge_os::seqpacket::{self, Received};
use selvedge_place_cpu::{Placement, class, rights};
use selvedge_units::Duration;
use serde_json::Value;
use support::{Folder, Running, TIMEOUT, until};

/// A command of ours with a daemon of this test's own.
fn selvedge(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = support::program(env!("CARGO_BIN_EXE_selvedge"));
    command.args(["cpu"]).args(arguments).env("XDG_RUNTIME_DIR", folder.path());
    command
}

/// Runs it to its end: status, standard output, standard error.
fn ended(command: &mut Command) -> (Option<i32>, String, String) {
    finished(Running::start(command))
}

fn finished(running: Running) -> (Option<i32>, String, String) {
    let ended = running.end(TIMEOUT);
    (ended.code, ended.stdout, ended.stderr)
}

/// Whether there is a dispatcher here; a test that needs one says so and passes where there is not.
fn dispatched() -> bool {
    rights::try_placement(Placement::Fifo)
        .inspect_err(|why| eprintln!("SKIPPED, no dispatcher here: {why}"))
        .is_ok()
}

fn last_json(text: &str) -> Value {
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

const LOAD: [&str; 5] = ["run", "--period", "40ms", "--service", "8ms"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&LOAD[..], more].concat()
}

/// A program that runs for ever, whatever becomes of who started it; ended with this value.
struct Spinner(i32);

impl Drop for Spinner {
    fn drop(&mut self) {
        // It may have ended, and then, by bad luck, another has its number.
        let name = std::fs::read_to_string(format!("/proc/{}/cmdline", self.0)).unwrap_or_default();
        if name.contains("while :; do :; done") {
            let _ = class::signal(self.0, libc::SIGKILL);
        }
    }
}

/// A program that writes its number to a file and then runs for ever.
fn spinner(folder: &Folder, more: &[&str]) -> (Running, Spinner) {
    let mark = folder.join("mark");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; while :; do :; done", mark.display());
    let run = with(&[more, &["--json", "--", "sh", "-c", &script]].concat());
    let mut client = Running::start(&mut selvedge(folder, &run));
    client.until("starts the program", |_| mark.exists());
    let pid = std::fs::read_to_string(mark).unwrap().trim().parse().unwrap();
    (client, Spinner(pid))
}

fn signal(pid: i32, number: i32) {
    class::signal(pid, number).expect("it runs");
}

#[test]
fn the_status_is_passed_on() {
    let folder = Folder::new();
    let none = with(&["--placement", "none", "--"]);
    let end = |script: &str| ended(selvedge(&folder, &none).args(["sh", "-c", script])).0;
    assert_eq!(end("exit 0"), Some(0));
    assert_eq!(end("exit 7"), Some(7));
    assert_eq!(end("kill -9 $$"), Some(137));
    let missing = ended(selvedge(&folder, &none).arg("/no/such/program"));
    assert_eq!(missing.0, Some(127), "as shells have it");
    assert!(missing.2.contains("/no/such/program"), "{}", missing.2);
    assert_eq!(ended(selvedge(&folder, &none).arg("/etc/passwd")).0, Some(126));
}

#[test]
fn bad_numbers_are_refused_with_the_remedy() {
    let folder = Folder::new();
    let cases: [(&[&str], &str); 5] = [
        (&["run", "--period", "40", "--service", "8ms", "--", "true"], "--period"),
        (
            &["run", "--period", "40ms", "--service", "41ms", "--", "true"],
            "no more than the period",
        ),
        (&[&LOAD[..], &["--window", "3/2", "--", "true"]].concat(), "x must be at most y"),
        (&[&LOAD[..], &["--cpu", "5000", "--", "true"]].concat(), "no processor 5000; there are"),
        (&["play", "--work", "50ms"], "state less"),
    ];
    for (arguments, says) in cases {
        let (code, out, err) = ended(&mut selvedge(&folder, arguments));
        assert_eq!((code, &*out), (Some(2), ""), "{arguments:?}: {err}");
        assert!(err.contains(says), "{arguments:?}: {err}");
    }
}

#[test]
fn a_player_is_counted_whatever_keeps_its_time() {
    let folder = Folder::new();
    for placement in ["none", "fifo", "deadline"] {
        if placement != "none" && !dispatched() {
            continue;
        }
        let ours = env!("CARGO_BIN_EXE_selvedge");
        let play =
            ["--placement", placement, "--json", "--", ours, "cpu", "play", "--frames", "10"];
        let (code, out, err) = ended(&mut selvedge(&folder, &with(&play)));
        assert_eq!(code, Some(0), "{placement}: {err}");
        let report = last_json(&out);
        assert_eq!(report["placement"], placement);
        // On a loaded machine frames may be late; then they are counted so.
        assert!(report["periods"].as_u64() >= Some(5), "{report}");
        let ran = report["ran_ns"].as_u64().unwrap();
        let skipped = 10 - out.split(" of ").next().and_then(|n| n.parse::<u64>().ok()).unwrap();
        assert!(ran >= 8_000_000 * 10_u64.saturating_sub(skipped), "{report}");
    }
}

#[test]
fn more_than_the_whole_is_refused_and_signals_end_the_program() {
    if !dispatched() {
        return;
    }
    let folder = Folder::new();
    let (first, _spinner) = spinner(&folder, &["--cpu", "0"]);
    let rest = ["run", "--period", "40ms", "--service", "31ms", "--cpu", "0", "--", "true"];
    let (code, _, err) = ended(&mut selvedge(&folder, &rest));
    assert_eq!(code, Some(1), "{err}");
    // 8/40, 31/40, and 5/100 for everybody else.
    assert!(err.contains("41/40 (102.50 %) of the processor, 1/40 (2.50 %) too much"), "{err}");
    assert!(err.contains("5 ms in 100 ms of it are kept for programs without a promise"), "{err}");
    first.signal("TERM");
    let (code, out, err) = finished(first);
    assert_eq!(code, Some(128 + libc::SIGTERM), "{err}");
    assert_eq!(last_json(&out)["status"], 128 + libc::SIGTERM);
}

fn daemon_of(folder: &Folder) -> Option<i32> {
    let peer = Connection::open(&folder.join("selvedge/cpu.sock")).ok()?.peer().ok()?;
    Some(peer.pid.as_raw_nonzero().get())
}

#[test]
fn a_program_outlives_its_daemon_and_is_dispatched_again() {
    if !dispatched() {
        return;
    }
    let folder = Folder::new();
    let (client, spinner) = spinner(&folder, &[]);
    let pid = spinner.0;
    until("it is dispatched", || class::policy(pid).unwrap() != libc::SCHED_OTHER);
    let first = daemon_of(&folder).expect("it serves");
    signal(first, libc::SIGKILL);
    until("there is another", || daemon_of(&folder).is_some_and(|pid| pid != first));
    signal(pid, libc::SIGTERM);
    let (_, out, err) = finished(client);
    assert_eq!(last_json(&out)["dispatcher_lost"], 1, "{err}");
    let second = daemon_of(&folder).expect("it serves");
    signal(second, libc::SIGTERM);
    until("it has gone", || !folder.join("selvedge/cpu.sock").exists());
}

#[test]
fn a_program_whose_client_is_killed_is_ordinary_again() {
    if !dispatched() {
        return;
    }
    let folder = Folder::new();
    let (client, spinner) = spinner(&folder, &[]);
    let pid = spinner.0;
    until("it is dispatched", || class::policy(pid).unwrap() != libc::SCHED_OTHER);
    client.signal("KILL");
    // Its output stays open: the program has it, too.
    drop(client);
    until("it is ordinary", || class::policy(pid).unwrap() == libc::SCHED_OTHER);
    signal(pid, libc::SIGKILL);
    until("no client, no daemon", || !folder.join("selvedge/cpu.sock").exists());
}

#[test]
fn garbage_harms_nobody_else() {
    if !dispatched() {
        return;
    }
    let folder = Folder::new();
    let (client, spinner) = spinner(&folder, &[]);
    let pid = spinner.0;
    let socket = folder.join("selvedge/cpu.sock");
    let long = "x".repeat(100_000);
    let huge = r#"{"v":1,"op":"admit","period":18446744073709551615,"service":1,"window":[0,0],"work_conserving":true,"events":false,"in_kernel":false,"cpu":null}"#;
    let end = r#"{"v":1,"op":"end"}"#;
    for case in ["\n", "{}", "null", end, "\u{0}\u{ff}", &long, huge] {
        let answer = ask(&socket, case.as_bytes());
        assert!(answer.contains("\"ok\":false"), "{case:.40}: {answer}");
    }
    assert!(ask(&socket, b"\xff\xfe").contains("makes no sense"));
    signal(pid, libc::SIGTERM);
    let (_, out, err) = finished(client);
    assert_eq!(last_json(&out)["dispatcher_lost"], 0, "{err}");
}

/// What the daemon answers before it hangs up.
fn ask(socket: &Path, what: &[u8]) -> String {
    let socket = seqpacket::connect_to(socket).expect("it serves");
    seqpacket::send(&socket, what, &[]).expect("there is room");
    let wait =
        || assert!(seqpacket::wait_readable(&socket, Duration::from_secs(60)), "it is silent");
    wait();
    let Ok(Received::Message(answer, _)) = seqpacket::receive(&socket) else {
        return String::new();
    };
    wait();
    assert!(matches!(seqpacket::receive(&socket), Ok(Received::End)), "it hangs up");
    String::from_utf8(answer).expect("it answers in text")
}
