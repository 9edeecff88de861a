//! Host, Origin and token against the real server, and the errors of `start`.

use std::sync::Arc;

use selvedge_control_config::PageConfig;
use selvedge_control_config::view::NodeView;
use selvedge_web::{Limits, Server, ServerError};
use serde_json::json;

use crate::http::{ask, get};
use crate::idle_node::IdleNode;
use crate::socket::{open_with, reply, say};

const TOKEN: &str = "s3cret-token-to-control";
const WATCH: &str = "s3cret-token-to-watch";
const VIEW: &str = "s3cret-token-to-look";

fn start(listen: &str, token: Option<&str>) -> Result<Server, ServerError> {
    let view: Arc<dyn NodeView> = IdleNode::new();
    let (listen, token) = (listen.parse().unwrap(), token.map(|token| token.parse().unwrap()));
    let view_token = token.as_ref().map(|_| VIEW.parse().unwrap());
    Server::start(view, PageConfig { listen, token, view_token, ..PageConfig::default() })
}

#[test]
fn start_says_what_to_do() {
    let first = start("127.0.0.1:0", None).unwrap();
    let taken = first.local_addr().to_string();
    let error = start(&taken, None).unwrap_err();
    let text = format!(
        "cannot listen on {taken}: the port is in use; stop the program that has it, or set \
         [node] listen to another port"
    );
    assert_eq!(error.to_string(), text);
    let error = start("0.0.0.0:0", None).unwrap_err();
    assert!(matches!(error, ServerError::TokenRequired(_)) && error.to_string().contains("token"));
    assert!(matches!(start("[::]:0", None), Err(ServerError::TokenRequired(_))));
    let error = start("192.0.2.1:0", Some(TOKEN)).unwrap_err();
    assert!(matches!(error, ServerError::NoSuchAddress(_)), "{error}");
}

#[test]
fn a_stopped_server_frees_its_port() {
    let server = start("127.0.0.1:0", None).unwrap();
    let at = server.local_addr();
    assert_eq!(get(at, "/").status, 200);
    server.stop();
    let again = start(&at.to_string(), None).unwrap();
    assert_eq!(get(again.local_addr(), "/").status, 200);
}

#[test]
fn names_of_other_sites_are_refused() {
    let server = start("127.0.0.1:0", None).unwrap();
    let at = server.local_addr();
    let local = format!("localhost:{}", at.port());
    assert_eq!(ask(at, "GET /api/v1/node", &[("Host", &local)], "").status, 200);
    let rebound = ask(at, "GET /api/v1/node", &[("Host", "evil.example")], "");
    assert_eq!(rebound.error(), (400, "bad-host".into(), "Host".into()));
}

#[test]
fn other_sites_pages_change_nothing() {
    let node = IdleNode::new();
    let server = node.serve(Limits::default());
    let at = server.local_addr();
    let body = r#"{"window": "0/1"}"#;
    let evil = [("Origin", "http://evil.example")];
    let answer = ask(at, "PATCH /api/v1/streams/lecture", &evil, body);
    assert_eq!(answer.error(), (403, "other-origin".into(), "Origin".into()));
    assert_eq!(ask(at, "GET /ws", &evil, "").status, 403);
    assert_eq!(node.last_set_knob(), None);
    let own = format!("http://{at}");
    let answer = ask(at, "PATCH /api/v1/streams/lecture", &[("Origin", &own)], body);
    assert_eq!(answer.status, 200);
}

#[test]
fn the_token_opens_everything_and_nothing_opens_without() {
    let server = start("127.0.0.1:0", Some(TOKEN)).unwrap();
    let at = server.local_addr();
    for path in ["/api/v1/node", "/metrics", "/ws", "/main.js", "/api/v1/streams/lecture"] {
        let refused = get(at, path);
        assert_eq!(refused.error(), (401, "unauthorized".into(), "Authorization".into()));
        assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"selvedge\""));
    }
    let asking = get(at, "/");
    assert_eq!(asking.status, 401);
    assert!(asking.body.contains("<form"), "a browser gets a page that asks");
    assert_eq!(get(at, "/?token=wrong-token").status, 401);

    let bearer = format!("Bearer {TOKEN}");
    assert_eq!(ask(at, "GET /metrics", &[("Authorization", &bearer)], "").status, 200);
    let page = get(at, &format!("/?token={TOKEN}"));
    assert_eq!(page.status, 200);
    let cookie = page.header("set-cookie").unwrap();
    assert!(cookie.ends_with("; HttpOnly; SameSite=Strict"), "{cookie}");
    assert!(cookie.contains("; Max-Age=43200;") && !cookie.contains(TOKEN), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    assert_eq!(ask(at, "GET /api/v1/node", &[("Cookie", pair)], "").status, 200);
    assert_eq!(ask(at, "GET /", &[("Cookie", pair)], "").header("set-cookie"), None);
}

#[test]
fn the_watch_link_opens_the_pictures_and_nothing_else() {
    let watch_token = Some(WATCH.parse().unwrap());
    let token = Some(TOKEN.parse().unwrap());
    let page = PageConfig { token, watch_token, ..PageConfig::default() };
    let server = IdleNode::new().serve_as(page, Limits::default());
    let at = server.local_addr();
    assert_eq!(
        server.announcement(),
        format!(
            "page: http://{at}/\nwatch: http://{at}/watch?token=TOKEN with the node file's watch_token"
        )
    );
    for path in ["/watch", "/watch?token=s3cret-token-to-watc"] {
        let asking = get(at, path);
        assert!(asking.status == 401 && asking.body.contains("<form"), "{path}");
    }
    assert_eq!(get(at, "/watch/ws").error(), (401, "unauthorized".into(), "Authorization".into()));
    let page = get(at, &format!("/watch?token={WATCH}"));
    assert!(page.status == 200 && page.body.contains("watch.js"));
    let pair = page.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let own = format!("http://{at}");
    for path in ["/watch", "/watch.js", "/videos.js", "/favicon.svg"] {
        assert_eq!(ask(at, &format!("GET {path}"), &[("Cookie", &pair)], "").status, 200, "{path}");
    }
    for path in
        ["/", "/main.js", "/ws", "/metrics", "/api/v1/node", "/api/v1/events", "/watch.html"]
    {
        let refused = ask(at, &format!("GET {path}"), &[("Cookie", &pair), ("Origin", &own)], "");
        assert_eq!(refused.error(), (403, "watch-only".into(), "".into()), "{path}");
    }
    let evil = [("Cookie", pair.as_str()), ("Origin", "http://evil.example")];
    let elsewhere = ask(at, "GET /watch/ws", &evil, "");
    assert_eq!(elsewhere.error(), (403, "other-origin".into(), "Origin".into()));
    let rebound = [("Cookie", pair.as_str()), ("Host", "evil.example")];
    assert_eq!(ask(at, "GET /watch", &rebound, "").status, 400);
}

#[test]
fn who_may_only_look_changes_nothing() {
    let server = start("127.0.0.1:0", Some(TOKEN)).unwrap();
    let at = server.local_addr();
    let bearer = format!("Bearer {VIEW}");
    let looks = [("Authorization", bearer.as_str())];
    for path in ["/", "/api/v1/node", "/metrics", "/api/v1/history"] {
        assert_eq!(ask(at, &format!("GET {path}"), &looks, "").status, 200, "{path}");
    }
    let window = r#"{"window": "0/1"}"#;
    for (request, body) in [
        ("PATCH /api/v1/streams/lecture", window),
        ("PATCH /api/v1/links/uplink", r#"{"rate": "1 Mbit/s"}"#),
        ("POST /api/v1/reload", ""),
        ("POST /api/v1/save", ""),
    ] {
        assert_eq!(ask(at, request, &looks, body).error(), (403, "view-only".into(), "".into()));
    }
    let page = get(at, &format!("/?token={VIEW}"));
    let session = page.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let refused = ask(at, "PATCH /api/v1/streams/lecture", &[("Cookie", &session)], window);
    assert_eq!(refused.status, 403);
    let mut socket = open_with(at, &[("cookie", &session)]);
    say(&mut socket, json!({ "set": { "stream": "lecture", "window": "0/1" }, "id": 3 }));
    assert_eq!(reply(&mut socket)["error"]["code"], "view-only");
}
