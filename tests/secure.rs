//! A node whose page speaks TLS, from the outside: its certificate is made once and kept, `top` and `node`
//! know it, and slow clients do not hold up its end.

mod support;

use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use support::{Ended, Folder, Running, Stream, TIMEOUT, http, node_file, program, sink};

const TOKEN: &str = "s3cret-token-to-control";
const VIEW: &str = "s3cret-token-to-look";

/// The command, of a user whose state is kept there and who has this token.
fn user(state: &Path, token: &str, args: &[&str]) -> Running {
    let mut command = program(env!("CARGO_BIN_EXE_selvedge"));
    command.args(args).env("XDG_STATE_HOME", state).env("SELVEDGE_TOKEN", token);
    Running::start(command.env_remove("SELVEDGE_LOG"))
}

fn ask(state: &Path, token: &str, args: &[&str]) -> Ended {
    user(state, token, args).end(TIMEOUT)
}

/// A node with TLS, its address and the fingerprint that it prints.
fn node(folder: &Folder) -> (Running, String, String) {
    let (_receiver, to) = sink();
    let stream = Stream { name: "tone", source: "test:audio".into(), to, more: "" };
    let listen = "listen = \"127.0.0.1:0\"";
    let secure = format!("{listen}\ntls = \"auto\"\ntoken = \"{TOKEN}\"\nview_token = \"{VIEW}\"");
    let text = node_file("rate = \"6 Mbit/s\"", &[stream]).replace(listen, &secure);
    let path = folder.write("node.toml", text);
    let mut node = user(folder.path(), "", &["run", path.to_str().expect("UTF-8")]);
    node.until("has said where its certificate is", |node| node.stderr().contains("kept in"));
    let said = node.stderr();
    let of = |start: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(start));
        line.unwrap_or_else(|| panic!("no {start} in {said}")).to_owned()
    };
    let (page, fingerprint) = (of("page: https://"), of("certificate: SHA-256 "));
    (node, page.trim_end_matches('/').to_owned(), fingerprint)
}

#[test]
fn a_node_is_known_by_a_certificate_that_it_keeps() {
    let (own, other) = (Folder::new(), Folder::new());
    let (running, at, fingerprint) = node(&own);
    let kept = own.join("selvedge/page.pem");
    let mode = std::fs::metadata(&kept).expect("it is kept").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!running.stderr().contains(TOKEN));

    let page = format!("https://{at}");
    let known = ask(own.path(), VIEW, &["top", "--json", &page]);
    assert_eq!(known.json()["streams"][0]["name"], "tone");
    // Another user gets an error with the node's fingerprint, and must pass that fingerprint to connect.
    let stranger = ask(other.path(), VIEW, &["top", "--json", &page]);
    assert_eq!(stranger.code, Some(1), "{stranger:?}");
    assert!(stranger.stderr.contains(&format!("--fingerprint {fingerprint}")), "{stranger:?}");
    let pinned = &["top", "--json", &page, "--fingerprint", &fingerprint];
    assert_eq!(ask(other.path(), VIEW, pinned).json()["streams"][0]["name"], "tone");
    let wrong = fingerprint.replace('A', "B").replace('0', "1");
    let refused = ask(other.path(), VIEW, &["top", "--json", &page, "--fingerprint", &wrong]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let plain = ask(own.path(), VIEW, &["top", "--json", &format!("http://{at}")]);
    assert!(plain.stderr.contains("write https://"), "{plain:?}");

    // One token shows, the other changes.
    let shown = ask(own.path(), VIEW, &["node", "reload", &page]);
    assert!(shown.code == Some(1) && shown.stderr.contains("change nothing"), "{shown:?}");
    let changed = ask(own.path(), TOKEN, &["node", "reload", &page]);
    assert_eq!((changed.code, changed.stdout.as_str()), (Some(0), "nothing changed\n"));

    running.signal("TERM");
    assert_eq!(running.end(TIMEOUT).code, Some(0));
    let (_again, _, same) = node(&own);
    assert_eq!(same, fingerprint, "the next start shows the same");
}

#[test]
fn slow_clients_do_not_hold_up_the_end() {
    let folder = Folder::new();
    let (running, at, _) = node(&folder);
    let (status, _) = http::request(&at, "GET", "/metrics", "");
    assert_eq!(status, 307, "plain HTTP is answered");
    let slow: Vec<TcpStream> = [&b""[..], b"\x16\x03\x01", b"GET / HTTP/1.1\r\nHost: "]
        .into_iter()
        .cycle()
        .take(16)
        .map(|said| {
            let mut tcp = TcpStream::connect(&at).expect("the node listens");
            tcp.write_all(said).expect("it is connected");
            tcp
        })
        .collect();
    let began = Instant::now();
    running.signal("TERM");
    let ended = running.end(TIMEOUT);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    drop(slow);
}
