//! `selvedge top` beside a node that runs: once as tables and as JSON, and its screen as a terminal
//! shows it.

mod support;

use support::{Folder, Running, TIMEOUT, http, lecture, program, selvedge, sink, skipped};

fn node(folder: &Folder, to: std::net::SocketAddr) -> (Running, String) {
    let (node, page) = lecture(folder, to, "delay = \"20 s\"");
    support::until("frames are sent", || {
        http::stream(&page, "lecture")["sent"].as_u64() >= Some(20)
    });
    (node, page)
}

#[test]
fn one_look_is_printed() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let (_node, page) = node(&folder, to);
    let once = selvedge(["top", "--once", &page]);
    assert_eq!(once.code, Some(0), "{once:?}");
    for word in ["test", "uplink", "dwcs", "20.0 Mbit/s", "lecture", "running", "100.0 %"] {
        assert!(once.stdout.contains(word), "no \"{word}\" in {}", once.stdout);
    }
    let json = selvedge(["top", "--json", &page]).json();
    assert_eq!(json["streams"][0]["name"], "lecture", "{json}");
    assert!(json["streams"][0]["sent"].as_u64() >= Some(20), "{json}");
}

#[test]
fn a_node_that_is_not_there_is_told() {
    let (taken, at) = sink();
    drop(taken);
    let ended = selvedge(["top", "--once", &at.to_string()]);
    assert!(matches!(ended.code, Some(1 | 2)) && ended.stdout.is_empty(), "{ended:?}");
    assert!(ended.stderr.contains(&at.to_string()), "{ended:?}");
}

/// A terminal that nobody looks at, with its own server; ended when dropped.
struct Terminal(std::path::PathBuf);

impl Terminal {
    fn tmux(&self, args: &[&str]) -> (bool, String) {
        let mut command = program("tmux");
        command.arg("-S").arg(&self.0).args(["-f", "/dev/null"]).args(args);
        let ended = Running::start(&mut command).end(TIMEOUT);
        (ended.code == Some(0), ended.stdout)
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).1
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

#[test]
fn the_screen_follows_the_node_and_is_left_by_a_key() {
    if Running::start(program("tmux").arg("-V")).end(TIMEOUT).code != Some(0) {
        return skipped("the_screen_follows_the_node_and_is_left_by_a_key", "needs tmux");
    }
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let (node, page) = node(&folder, to);
    let terminal = Terminal(folder.join("tmux"));
    let top = format!("'{}' top {page}; echo left $?; exec cat", env!("CARGO_BIN_EXE_selvedge"));
    let size = ["-x", "120", "-y", "30"];
    let started = [&["new-session", "-d"][..], &size, &["sh", "-c", &top]].concat();
    assert!(terminal.tmux(&started).0, "tmux starts");
    let shows = |words: &[&str]| {
        let screen = terminal.screen();
        words.iter().all(|word| screen.contains(word))
    };
    support::until("the stream is on the screen", || shows(&["lecture", "uplink", "20.0 Mbit/s"]));
    let (status, said) =
        http::request(&page, "PATCH", "/api/v1/links/uplink", "{\"rate\": \"3 Mbit/s\"}");
    assert_eq!(status, 200, "{said}");
    support::until("the new rate is on the screen", || shows(&["lecture", "3.00 Mbit/s"]));
    // A smaller window is drawn anew.
    assert!(terminal.tmux(&["resize-window", "-x", "60", "-y", "12"]).0);
    support::until("it fits the smaller window", || {
        let screen = terminal.screen();
        screen.contains("lecture") && screen.lines().all(|line| line.chars().count() <= 60)
    });
    node.signal("TERM");
    drop(node);
    support::until("the screen says that the node is gone", || {
        shows(&["no node answers", "lecture"])
    });
    assert!(terminal.tmux(&["send-keys", "q"]).0);
    support::until("the terminal is given back", || shows(&["left 0"]) && !shows(&["uplink"]));
}
