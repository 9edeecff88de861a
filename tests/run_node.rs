//! `selvedge run` from the outside: the page's API, knobs, metrics, a clean end, and failures of
//! one stream that must not harm another.

mod support;

use std::net::TcpListener;

use serde_json::Value;
use support::{
    CORRIDOR, Folder, Running, Stream, TIMEOUT, beginning_of, clip, file_source, http, node_file,
    sink,
};

/// A clip of sound.
const SPEECH: &str = "10001-90210-01803.wav";

/// A playout delay that no slowness of the machine uses up.
const PATIENT: &str = "delay = \"20 s\"";
const AMPLE: &str = "rate = \"20 Mbit/s\"";

fn run(folder: &Folder, text: String) -> (Running, String) {
    let path = folder.write("node.toml", text);
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    let page = node.page();
    (node, page)
}

fn stop(node: Running) -> Value {
    node.signal("TERM");
    node.end(TIMEOUT).json()
}

fn frames(stream: &Value) -> u64 {
    stream["frames"].as_u64().unwrap_or_else(|| panic!("no frames in {stream}"))
}

/// Every frame that came was sent on time, except those that still wait.
fn unharmed(stream: &Value) {
    assert_eq!(stream["state"], "running", "{stream}");
    assert_eq!(stream["dropped"], serde_json::json!({}), "{stream}");
    assert_eq!(stream["missed"], 0, "{stream}");
    assert_eq!(stream["violations"], 0, "{stream}");
    assert_eq!(stream["decodable"], stream["sent"], "{stream}");
    assert!(frames(stream) <= stream["sent"].as_u64().unwrap_or(0) + 20, "{stream}");
}

#[test]
fn the_api_shows_a_node_and_turns_its_knobs() {
    let folder = Folder::new();
    let (_receivers, to): (Vec<_>, Vec<_>) = (0..2).map(|_| sink()).unzip();
    let streams = [
        Stream {
            name: "corridor",
            source: file_source(&clip(CORRIDOR), true),
            to: to[0],
            more: PATIENT,
        },
        Stream {
            name: "card",
            source: "test:jpeg?rate=10&size=160x120".into(),
            to: to[1],
            more: PATIENT,
        },
    ];
    let (node, page) = run(&folder, node_file(AMPLE, &streams));
    support::until("both streams have frames", || {
        ["corridor", "card"].iter().all(|name| frames(&http::stream(&page, name)) >= 20)
    });
    let snapshot = http::node(&page);
    assert_eq!(snapshot["name"], "test");
    assert_eq!(snapshot["links"][0]["rate_bps"], 20_000_000);
    assert_eq!(snapshot["links"][0]["discipline"], "dwcs");
    for (stream, encoding) in [(0, "H264"), (1, "JPEG")] {
        unharmed(&snapshot["streams"][stream]);
        assert_eq!(snapshot["streams"][stream]["encoding"], encoding);
        assert_eq!(snapshot["streams"][stream]["window"], "1/5");
        assert_eq!(snapshot["streams"][stream]["period_ms"], 100.0);
    }

    let turn = |path: &str, body: &str| http::request(&page, "PATCH", path, body);
    for (path, body) in [
        ("/api/v1/streams/card", "{\"window\": \"2/7\"}"),
        ("/api/v1/streams/card", "{\"priority\": -3}"),
        ("/api/v1/links/uplink", "{\"rate\": \"3 Mbit/s\"}"),
    ] {
        let (status, answer) = turn(path, body);
        assert_eq!(status, 200, "{path} {body}: {answer}");
    }
    support::until("the knobs are seen to be turned", || {
        let card = http::stream(&page, "card");
        let rate = &http::node(&page)["links"][0]["rate_bps"];
        card["window"] == "2/7" && card["priority"] == -3 && *rate == 3_000_000
    });
    let corridor = http::stream(&page, "corridor");
    assert_eq!((&corridor["window"], &corridor["priority"]), (&"1/5".into(), &0.into()));
    for (path, body, status, said) in [
        ("/api/v1/streams/card", "{\"window\": \"3/2\"}", 400, "window"),
        ("/api/v1/streams/card", "{\"priority\": 5000}", 400, "-1000 to 1000"),
        ("/api/v1/streams/crad", "{\"window\": \"1/2\"}", 404, "crad"),
        ("/api/v1/links/uplink", "{\"rate\": \"3\"}", 400, "unit"),
        ("/api/v1/links/uplink", "{\"rate\": \"0 bit/s\"}", 400, "rate"),
    ] {
        let (got, answer) = turn(path, body);
        assert_eq!(got, status, "{path} {body}: {answer}");
        assert!(answer.contains(said), "{path} {body}: {answer}");
    }

    let (status, metrics) = http::request(&page, "GET", "/metrics", "");
    assert_eq!(status, 200);
    for name in ["stream=\"corridor\"", "stream=\"card\"", "link=\"uplink\""] {
        assert!(metrics.lines().any(|line| line.contains(name)), "no {name} in:\n{metrics}");
    }
    for file in [
        include_str!("../docs/monitoring/grafana.json"),
        include_str!("../docs/monitoring/alerts.yml"),
    ] {
        let words = file.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("selvedge_")) {
            let is_there = |line: &str| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            // Absent from a running node only where nothing has waited or was late yet.
            let is_told =
                metrics.lines().any(is_there) || metrics.contains(&format!("# TYPE {name} gauge"));
            assert!(is_told, "no {name} in:\n{metrics}");
        }
    }

    let last = stop(node);
    assert_eq!(last["streams"][1]["window"], "2/7");
    assert!(frames(&last["streams"][0]) >= frames(&snapshot["streams"][0]));
    TcpListener::bind(&page).expect("the port is free again");
}

#[test]
fn a_receiver_that_goes_away_harms_nobody() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let (vanishing, vanishes) = sink();
    let source = file_source(&clip(CORRIDOR), true);
    let streams = [("stays", to), ("vanishes", vanishes)].map(|(name, to)| Stream {
        name,
        source: source.clone(),
        to,
        more: PATIENT,
    });
    let (node, page) = run(&folder, node_file(AMPLE, &streams));
    support::until("both run", || frames(&http::stream(&page, "vanishes")) >= 10);
    drop(vanishing);
    let before = frames(&http::stream(&page, "stays"));
    support::until("it goes on", || frames(&http::stream(&page, "stays")) >= before + 30);
    for name in ["stays", "vanishes"] {
        unharmed(&http::stream(&page, name));
    }
    stop(node);
}

#[test]
fn a_stream_that_ends_leaves_the_others_running() {
    let folder = Folder::new();
    let (_receivers, to): (Vec<_>, Vec<_>) = (0..2).map(|_| sink()).unzip();
    let brief = folder.write("brief.wav", beginning_of(SPEECH, 40_000));
    let streams = [
        Stream {
            name: "goes-on",
            source: file_source(&clip(CORRIDOR), true),
            to: to[0],
            more: PATIENT,
        },
        Stream { name: "brief", source: file_source(&brief, false), to: to[1], more: PATIENT },
    ];
    let (node, page) = run(&folder, node_file(AMPLE, &streams));
    support::until("it ends", || http::stream(&page, "brief")["state"] == "ended");
    support::until("its last frame is sent", || {
        let ended = http::stream(&page, "brief");
        ended["queued_frames"] == 0 && ended["sent"] == ended["frames"]
    });
    let before = frames(&http::stream(&page, "goes-on"));
    support::until("the other goes on", || frames(&http::stream(&page, "goes-on")) >= before + 30);
    unharmed(&http::stream(&page, "goes-on"));
    let last = stop(node);
    assert_eq!(last["streams"][1]["state"], "ended");
}

#[test]
fn a_node_ends_by_itself_once_all_its_sources_have() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let brief = folder.write("brief.wav", beginning_of(SPEECH, 40_000));
    let stream = Stream { name: "brief", source: file_source(&brief, false), to, more: "" };
    let (node, _) = run(&folder, node_file(AMPLE, &[stream]));
    let last = node.end(TIMEOUT).json();
    assert_eq!(last["streams"][0]["state"], "ended");
    assert_eq!(last["streams"][0]["sent"], last["streams"][0]["frames"]);
}

#[test]
fn a_source_that_fails_is_tried_again_and_harms_nobody() {
    let folder = Folder::new();
    let (_receivers, to): (Vec<_>, Vec<_>) = (0..2).map(|_| sink()).unzip();
    let line = "launch:videotestsrc is-live=true \
                ! video/x-raw,format=I420,width=160,height=120,framerate=10/1 \
                ! identity error-after=20 ! jpegenc";
    let streams = [
        Stream {
            name: "sound",
            source: file_source(&clip(CORRIDOR), true),
            to: to[0],
            more: PATIENT,
        },
        Stream { name: "frail", source: line.into(), to: to[1], more: PATIENT },
    ];
    let (node, page) = run(&folder, node_file(AMPLE, &streams));
    let mut failed = Value::Null;
    support::until("it fails", || {
        failed = http::stream(&page, "frail");
        failed["state"] == "retrying"
    });
    let detail = failed["detail"].as_str().expect("a text");
    assert!(detail.contains("identity") && detail.contains("trying again in 1 s"), "{detail}");
    let before = frames(&failed);
    support::until("it comes back", || {
        let stream = http::stream(&page, "frail");
        stream["state"] == "running" && frames(&stream) > before
    });
    unharmed(&http::stream(&page, "sound"));
    // It waits to try again when it is stopped, or runs: either way it ends at once.
    stop(node);
}

#[test]
fn a_node_may_be_stopped_while_a_source_waits_to_be_tried_again() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let line = "launch:videotestsrc is-live=true \
                ! video/x-raw,format=I420,width=160,height=120,framerate=10/1 \
                ! identity error-after=5 ! jpegenc";
    let stream = Stream { name: "frail", source: line.into(), to, more: "" };
    let (node, page) = run(&folder, node_file(AMPLE, &[stream]));
    // 1 s, 2 s, then 4 s, which leaves time to stop it in the middle.
    support::until("it waits for 4 s", || {
        let frail = http::stream(&page, "frail");
        let detail = frail["detail"].as_str().unwrap_or_default();
        detail.ends_with("trying again in 4 s")
    });
    let last = stop(node);
    assert_eq!(last["streams"][0]["state"], "retrying");
}

#[test]
fn a_port_where_nothing_comes_is_silent_since_its_node_began() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let source = format!("rtp://{}?encoding=H264", support::free_port());
    let stream = Stream { name: "door", source, to, more: "" };
    let (node, page) = run(&folder, node_file(AMPLE, &[stream]));
    let mut door = Value::Null;
    support::until("its silence is seen", || {
        door = http::stream(&page, "door");
        door["state"] == "stalled"
    });
    let up = http::node(&page)["uptime_ms"].as_f64().expect("a number") / 1e3;
    let detail = door["detail"].as_str().expect("a text");
    let seconds = detail.strip_prefix("no picture in ").and_then(|rest| rest.split(' ').next());
    let seconds: f64 = seconds.and_then(|text| text.parse().ok()).expect(detail);
    assert!(seconds <= up + 1.0, "{detail}, after {up} s");
    assert!(detail.contains("sdp:FILE"), "{detail}");
    stop(node);
}
