//! Every route: its answers and its refusals.

use selvedge_control_config::view::Knob;
use selvedge_data_stream::Window;
use selvedge_units::Bitrate;
use selvedge_web::Limits;

use crate::http::{ask, get, patch};
use crate::idle_node::{IdleNode, ODD};

/// `ODD` in a path.
const ODD_PATH: &str = "/api/v1/streams/a%20%22b%22%5C%2F%C3%A9%0A%2541";

#[test]
fn every_route_answers() {
    let server = IdleNode::new().serve(Limits::default());
    let at = server.local_addr();
    let routes = [
        ("/", "text/html; charset=utf-8"),
        ("/index.html", "text/html; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/main.js", "text/javascript; charset=utf-8"),
        ("/favicon.svg", "image/svg+xml"),
        ("/vendor/uplot-1.6.32/uPlot.esm.js", "text/javascript; charset=utf-8"),
        ("/vendor/uplot-1.6.32/LICENSE", "text/plain; charset=utf-8"),
        ("/api/v1/node", "application/json"),
        ("/api/v1/channels", "application/json"),
        ("/api/v1/stacks", "application/json"),
        ("/api/v1/events", "application/json"),
        ("/api/v1/streams/lecture", "application/json"),
        ("/api/v1/streams/lecture/streamlet?number=17", "application/json"),
        ("/api/v1/links/uplink", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ];
    for (path, kind) in routes {
        let answer = get(at, path);
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)), "{path}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        let head = ask(at, &format!("HEAD {path}"), &[], "");
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
    }
}

#[test]
fn a_node_without_a_file_says_so() {
    let server = IdleNode::new().serve(Limits::default());
    for path in ["/api/v1/reload", "/api/v1/save"] {
        let answer = ask(server.local_addr(), &format!("POST {path}"), &[], "");
        assert_eq!((answer.status, &answer.json()["error"]["code"]), (409, &"no-file".into()));
        assert_eq!(get(server.local_addr(), path).status, 405);
        let other = [("Origin", "http://evil.example")];
        let answer = ask(server.local_addr(), &format!("POST {path}"), &other, "");
        assert_eq!(answer.json()["error"]["code"], "other-origin");
    }
}

#[test]
fn a_streamlet_is_found_by_what_the_query_states() {
    let server = IdleNode::new().serve(Limits::default());
    let path = "/api/v1/streams/lecture/streamlet?ssrc=1017&to=192.0.2.9:7";
    let one = get(server.local_addr(), path).json();
    assert_eq!(
        (&one["number"], &one["set"], &one["to"]),
        (&17.into(), &"gold".into(), &"rtp://192.0.2.9:7".into())
    );
    assert_eq!((&one["sent"], &one["waiting"]), (&400.into(), &3.into()));
    let sets = get(server.local_addr(), "/api/v1/streams/lecture").json()["sets"].clone();
    assert_eq!((&sets[0]["name"], &sets[0]["dropped"]), (&"gold".into(), &7.into()));
}

#[test]
fn snapshots_have_every_field() {
    let server = IdleNode::new().serve(Limits::default());
    let at = server.local_addr();
    let node = get(at, "/api/v1/node").json();
    assert_eq!(node["name"], "studio");
    assert_eq!(node["links"][0]["rate_bps"], 6_000_000);
    assert_eq!(node["streams"][0]["dropped"]["group-skipped"], 10);
    assert_eq!(node["streams"][1]["name"], ODD);
    let stream = get(at, "/api/v1/streams/lecture").json();
    assert_eq!(stream, node["streams"][0]);
    assert_eq!(stream["state"], "running");
    assert_eq!(stream["on_time_share"], serde_json::Value::Null);
    assert_eq!(get(at, ODD_PATH).json()["name"], ODD);
    assert_eq!(get(at, "/api/v1/links/uplink").json(), node["links"][0]);
    assert_eq!(get(at, "/api/v1/node").header("cache-control"), Some("no-store"));
}

#[test]
fn a_patch_turns_the_knob_and_gives_back_its_value() {
    let node = IdleNode::new();
    let server = node.serve(Limits::default());
    let at = server.local_addr();

    let answer = patch(at, "/api/v1/streams/lecture", r#"{"window": "2/ 7"}"#);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"window":"2/7"}"#));
    let window = Window::new(2, 7).unwrap();
    assert_eq!(node.last_set_knob(), Some(Knob::Window { stream: "lecture".into(), window }));

    let answer = patch(at, ODD_PATH, r#"{"priority": -4}"#);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"priority":-4}"#));
    assert_eq!(node.last_set_knob(), Some(Knob::Priority { stream: ODD.into(), priority: -4 }));

    let answer = patch(at, "/api/v1/links/uplink", r#"{"rate": "0.7 Mbit/s"}"#);
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"rate":"700 kbit/s"}"#));
    let rate = Bitrate::from_kbps(700);
    assert_eq!(node.last_set_knob(), Some(Knob::Rate { link: "uplink".into(), rate }));
}

#[test]
fn refusals_have_a_status_a_code_and_a_field() {
    let node = IdleNode::new();
    let server = node.serve(Limits::default());
    let at = server.local_addr();
    let stream = "PATCH /api/v1/streams/lecture";
    let link = "PATCH /api/v1/links/uplink";
    let long = format!(r#"{{"window": "{}"}}"#, "1".repeat(5000));
    let cases = [
        (stream, "", 400, "bad-json", ""),
        (stream, "[]", 400, "bad-json", ""),
        (stream, "{}", 400, "nothing-to-set", ""),
        (stream, r#"{"window": "6/5"}"#, 400, "bad-value", "window"),
        (stream, r#"{"window": "1/5", "priority": 1}"#, 400, "too-many-keys", "window"),
        (stream, r#"{"weight": 3}"#, 400, "unknown-key", "weight"),
        (stream, r#"{"priority": "high"}"#, 400, "bad-value", "priority"),
        (stream, r#"{"priority": 2000}"#, 400, "bad-value", "priority"),
        (stream, r#"{"priority": -2000}"#, 503, "stopping", ""),
        (stream, &long, 413, "bad-body", ""),
        (link, r#"{"rate": "6 Mbit"}"#, 400, "bad-value", "rate"),
        (link, r#"{"rate": 6000000}"#, 400, "bad-value", "rate"),
        (link, r#"{"window": "1/5"}"#, 400, "unknown-key", "window"),
        ("PATCH /api/v1/streams/none", r#"{"window": "1/5"}"#, 404, "unknown-stream", "stream"),
        ("PATCH /api/v1/links/none", r#"{"rate": "1 bit/s"}"#, 404, "unknown-link", "link"),
        ("GET /api/v1/streams/none", "", 404, "unknown-stream", "stream"),
        ("GET /api/v1/links/none", "", 404, "unknown-link", "link"),
        ("GET /api/v1/streams/%FF", "", 400, "bad-name", ""),
        ("GET /api/v1/streams/none/streamlet?number=17", "", 404, "unknown-streamlet", ""),
        ("GET /api/v1/streams/lecture/streamlet?number=18", "", 404, "unknown-streamlet", ""),
        ("GET /api/v1/streams/lecture/streamlet", "", 400, "bad-query", ""),
        ("GET /api/v1/streams/lecture/streamlet?number=-1", "", 400, "bad-query", "number"),
        ("GET /api/v1/streams/lecture/streamlet?to=there", "", 400, "bad-query", "to"),
        ("GET /api/v1/streams/lecture/streamlet?set=gold", "", 400, "bad-query", "set"),
        ("GET /api/v2/node", "", 404, "no-such-route", ""),
        ("GET /../Cargo.toml", "", 404, "no-such-route", ""),
        ("GET /vendor/", "", 404, "no-such-route", ""),
        ("POST /api/v1/node", "{}", 405, "no-such-method", ""),
        ("DELETE /api/v1/streams/lecture", "", 405, "no-such-method", ""),
        ("POST /style.css", "", 405, "no-such-method", ""),
        ("GET /ws", "", 400, "not-a-websocket", "Upgrade"),
    ];
    for (request, body, status, code, field) in cases {
        let answer = ask(at, request, &[], body);
        let expected = (status, code.to_owned(), field.to_owned());
        assert_eq!(answer.error(), expected, "{request} {body}: {answer:?}");
        assert_eq!(answer.header("content-type"), Some("application/json"), "{request}");
    }
    assert_eq!(node.last_set_knob(), None, "a refused change changes nothing");
    let allow = ask(at, "DELETE /api/v1/streams/lecture", &[], "");
    assert_eq!(allow.header("allow"), Some("GET,HEAD,PATCH"));
}

#[test]
fn files_are_sent_once() {
    let server = IdleNode::new().serve(Limits::default());
    let at = server.local_addr();
    let first = get(at, "/main.js");
    assert_eq!(first.header("cache-control"), Some("private, no-cache"));
    let tag = first.header("etag").unwrap();
    let second = ask(at, "GET /main.js", &[("If-None-Match", tag)], "");
    assert_eq!((second.status, second.body.as_str()), (304, ""));
    let other = ask(at, "GET /main.js", &[("If-None-Match", "\"0\"")], "");
    assert_eq!((other.status, other.body == first.body), (200, true));
    let vendored = get(at, "/vendor/uplot-1.6.32/uPlot.min.css");
    assert!(vendored.header("cache-control").unwrap().contains("immutable"));
}
