//! A node that runs takes changes of its file, by SIGHUP, by its API and by `selvedge node`: all of a file
//! or nothing of it. What was set while it ran is written back.

mod support;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use support::{
    CORRIDOR, Folder, Running, clip, file_source, first_packet, http, selvedge, sink, until,
};

/// A node that sends the corridor's clip as `lecture`: its file, its text, and where its page is.
fn node(folder: &Folder, to: SocketAddr) -> (Running, PathBuf, String, String) {
    let source = file_source(&clip(CORRIDOR), true);
    let text = format!(
        "# The hall.\n[node]\nlisten = \"127.0.0.1:0\"\n\n[link.uplink]  # by radio\nrate = \"20 Mbit/s\"\n\n\
         [stream.lecture]\nsource = '{source}' # looped\nto = \"rtp://{to}\"\nthumbnail = false\n"
    );
    let path = folder.write("node.toml", &text);
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
    let page = node.page();
    until("frames are sent", || http::stream(&page, "lecture")["sent"].as_u64() > Some(3));
    (node, path, text, page)
}

fn post(page: &str, path: &str) -> (u16, Value) {
    let (status, body) = http::request(page, "POST", path, "");
    (status, serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}")))
}

fn last_event(page: &str) -> Value {
    let (_, body) = http::request(page, "GET", "/api/v1/events", "");
    let all: Value = serde_json::from_str(&body).expect("JSON");
    all.as_array().and_then(|all| all.last().cloned()).unwrap_or_default()
}

fn second(to: SocketAddr) -> String {
    let source = file_source(&clip(CORRIDOR), true);
    format!(
        "[stream.hall]\nsource = '{source}'\nto = \"rtp://{to}\"\nweight = 2\nthumbnail = false\n"
    )
}

#[test]
fn streams_come_and_go_and_the_others_go_on() {
    let folder = Folder::new();
    let ((_a, to), (_b, other)) = (sink(), sink());
    let (node, path, text, page) = node(&folder, to);
    let before = http::stream(&page, "lecture");
    std::fs::write(&path, text.replace("20 Mbit/s", "10 Mbit/s") + &second(other)).unwrap();
    node.signal("HUP");
    until("the second stream sends", || {
        let now = http::node(&page);
        now["streams"][1]["name"] == "hall" && now["streams"][1]["sent"].as_u64() > Some(3)
    });
    until("the link has its new rate", || http::node(&page)["links"][0]["rate_bps"] == 10_000_000);
    let now = http::stream(&page, "lecture");
    assert!(now["frames"].as_u64() > before["frames"].as_u64(), "{before} {now}");
    let event = last_event(&page);
    assert_eq!(event["kind"], "reloaded");
    assert_eq!(event["text"], "added stream.hall; changed link.uplink.rate");

    // The same by the API: its input changes, so that this stream starts anew, and only this.
    let mute = second(other).replace("\nweight", "\nlate = \"send\"\nweight");
    std::fs::write(&path, text.replace("20 Mbit/s", "10 Mbit/s") + &mute).unwrap();
    let restarted =
        json!({"added": [], "removed": [], "changed": [], "restarted": ["stream.hall"]});
    assert_eq!(post(&page, "/api/v1/reload"), (200, restarted));
    until("it sends again", || http::stream(&page, "hall")["sent"].as_u64() > Some(3));

    // And by the command.
    std::fs::write(&path, &text).unwrap();
    let ended = selvedge(["node", "reload", &page]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    let lines: Vec<_> = ended.stdout.lines().collect();
    assert_eq!(lines, ["changed link.uplink.rate", "removed stream.hall"]);
    assert_eq!(http::node(&page)["streams"].as_array().map(Vec::len), Some(1));
    let last = http::stream(&page, "lecture");
    assert!(last["frames"].as_u64() >= now["frames"].as_u64(), "{now} {last}");
}

#[test]
fn a_bad_file_changes_nothing_and_is_named_by_line_and_field() {
    let folder = Folder::new();
    let ((_a, to), (_b, other)) = (sink(), sink());
    let (mut node, path, text, page) = node(&folder, to);
    let bad = text.replace("20 Mbit/s", "20") + &second(other);
    std::fs::write(&path, &bad).unwrap();
    let place = format!("{}:6:8: link.uplink.rate: the unit is missing", path.display());
    node.signal("HUP");
    node.until("complains", |node| node.stderr().contains(&place));
    let (status, answer) = post(&page, "/api/v1/reload");
    let error = &answer["error"];
    assert_eq!(
        (status, &error["code"], &error["field"]),
        (400, &json!("bad-file"), &json!("link.uplink.rate"))
    );
    assert!(error["message"].as_str().unwrap().starts_with(&place), "{error}");
    let event = last_event(&page);
    assert_eq!((&event["kind"], &event["text"]), (&json!("refused"), &error["message"]));
    let ended = selvedge(["node", "reload", &page]);
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains(&place), "{ended:?}");

    // A file that is not there is found before anything changes.
    let gone =
        text.replace("20 Mbit/s", "10 Mbit/s") + &second(other).replace(CORRIDOR, "gone.mp4");
    std::fs::write(&path, gone).unwrap();
    let (status, answer) = post(&page, "/api/v1/reload");
    assert_eq!(
        (status, &answer["error"]["field"]),
        (400, &json!("stream.hall.source")),
        "{answer}"
    );
    let now = http::node(&page);
    assert_eq!(now["links"][0]["rate_bps"], 20_000_000);
    assert_eq!(now["streams"].as_array().map(Vec::len), Some(1));

    // So is what needs a restart.
    let moved = text.replace("20 Mbit/s\"", "10 Mbit/s\"\nplacement = \"coprocessor\"");
    std::fs::write(&path, moved.replace("[node]", "[node]\nname = \"other\"")).unwrap();
    let (status, answer) = post(&page, "/api/v1/reload");
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("needs-restart")));
    let message = "needs a restart: node.name, link.uplink.placement; nothing was changed";
    assert_eq!(answer["error"]["message"], message);
    assert_eq!(http::node(&page)["links"][0]["rate_bps"], 20_000_000);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(post(&page, "/api/v1/reload").0, 409);
}

#[test]
fn what_was_set_is_written_back_and_comments_stay() {
    let folder = Folder::new();
    let (_a, to) = sink();
    let (_node, path, text, page) = node(&folder, to);
    assert_eq!(post(&page, "/api/v1/save"), (200, json!({"changes": []})));
    for (path, body) in [
        ("/api/v1/streams/lecture", r#"{"window": "2/9"}"#),
        ("/api/v1/streams/lecture", r#"{"priority": 4}"#),
        ("/api/v1/links/uplink", r#"{"rate": "7.5 Mbit/s"}"#),
    ] {
        assert_eq!(http::request(&page, "PATCH", path, body).0, 200);
    }
    assert_eq!(last_event(&page)["text"], "link.uplink.rate = \"7500 kbit/s\"");
    // A reload changes what the file changes: what was set goes on.
    assert_eq!(post(&page, "/api/v1/reload").0, 200);
    let ended = selvedge(["node", "save", &page]);
    let lines = "link.uplink.rate = \"7500 kbit/s\"\nstream.lecture.window = \"2/9\"\n\
                 stream.lecture.priority = 4\n";
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), lines), "{ended:?}");
    let saved = std::fs::read_to_string(&path).unwrap();
    let expected = text.replace("20 Mbit/s", "7500 kbit/s") + "window = \"2/9\"\npriority = 4\n";
    assert_eq!(saved, expected);
    let none = json!({"added": [], "removed": [], "changed": [], "restarted": []});
    assert_eq!(post(&page, "/api/v1/reload"), (200, none));
    assert_eq!(post(&page, "/api/v1/save"), (200, json!({"changes": []})));

    // A file that somebody has changed since is not overwritten.
    assert_eq!(
        http::request(&page, "PATCH", "/api/v1/streams/lecture", r#"{"priority": 5}"#).0,
        200
    );
    std::fs::write(&path, saved.replace("2/9", "3/9")).unwrap();
    let (status, answer) = post(&page, "/api/v1/save");
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("unusable-file")), "{answer}");
    assert!(std::fs::read_to_string(&path).unwrap().contains("3/9"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
}

#[test]
fn a_file_that_is_added_sends_its_first_frame_soon() {
    let folder = Folder::new();
    let (_a, to) = sink();
    let (_node, path, text, page) = node(&folder, to);
    let mut took = Vec::new();
    for name in [CORRIDOR, "one-by-one-mpeg2.ts", "10001-90210-01803.wav"].repeat(3) {
        let (receiver, other) = sink();
        std::fs::write(&path, text.clone() + &second(other).replace(CORRIDOR, name)).unwrap();
        took.push(first_packet(&receiver, || assert_eq!(post(&page, "/api/v1/reload").0, 200)));
        std::fs::write(&path, &text).unwrap();
        assert_eq!(post(&page, "/api/v1/reload").0, 200);
    }
    println!("first packets after {took:?}");
    took.sort();
    // The aim is 300 ms; a machine with much else to do has five times as long.
    assert!(took[took.len() / 2] < Duration::from_millis(1500), "{took:?}");
}
