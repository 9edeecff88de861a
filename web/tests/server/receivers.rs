//! Receivers that ask: the token of their stream, their own address, and the bounds of what they ask for.

use selvedge_control_config::PageConfig;
use selvedge_web::Limits;
use serde_json::json;

use crate::http::{Answer, ask};
use crate::idle_node::{ASKS, IdleNode};

const PATH: &str = "/api/v1/streams/lecture/receivers";

#[test]
fn a_receiver_gets_a_stream_at_its_own_address_alone() {
    let token = Some("s3cret-token-to-control".parse().unwrap());
    let node = IdleNode::new();
    let server = node.serve_as(PageConfig { token, ..PageConfig::default() }, Limits::default());
    let with = |request: &str, token: &str, body: &str| -> Answer {
        let bearer = format!("Bearer {token}");
        ask(server.local_addr(), request, &[("Authorization", &bearer)], body)
    };
    let post = |body: &str| with(&format!("POST {PATH}"), ASKS, body);
    let answer = post("{\"port\": 5004, \"delay\": \"100 ms\"}");
    let granted =
        json!({ "name": "lecture/asked", "to": "rtp://127.0.0.1:5004", "for_s": 30, "sdp": null });
    assert_eq!((answer.status, answer.json()), (200, granted));
    for (body, field) in [
        ("{\"port\": 0}", "port"),
        ("{\"port\": 5004, \"for_s\": 0}", "for_s"),
        ("{\"port\": 5004, \"for_s\": 301}", "for_s"),
        ("{\"port\": 5004, \"delay\": \"soon\"}", "delay"),
        ("{\"port\": 5004, \"delay\": \"601 s\"}", "delay"),
    ] {
        let answer = post(body);
        assert_eq!(
            (answer.status, &answer.json()["error"]["field"]),
            (400, &field.into()),
            "{body}"
        );
    }
    // No other host can be named, nor a port that is none.
    for body in
        ["{\"port\": 5004, \"to\": \"rtp://192.0.2.1:5004\"}", "{\"port\": 70000}", "{}", "[", ""]
    {
        assert_eq!(post(body).json()["error"]["code"], "bad-json", "{body}");
    }
    // The node's own tokens are not those of the stream, nor the other way round.
    for token in ["s3cret-token-to-control", "s3cret-token-to-asK", ""] {
        assert_eq!(with(&format!("POST {PATH}"), token, "{\"port\": 5004}").status, 401, "{token}");
    }
    assert_eq!(with("PATCH /api/v1/streams/lecture", ASKS, "{}").status, 401);
    assert_eq!(with(&format!("GET {PATH}"), ASKS, "").status, 401);
    let other = with("POST /api/v1/streams/other/receivers", ASKS, "{\"port\": 5004}");
    assert_eq!((other.status, &other.json()["error"]["code"]), (404, &"unknown-stream".into()));
    let full = post("{\"port\": 9999}");
    assert_eq!((full.status, &full.json()["error"]["code"]), (429, &"too-many-receivers".into()));
    assert_eq!(with(&format!("DELETE {PATH}/5004"), ASKS, "").status, 200);
    assert_eq!(with(&format!("DELETE {PATH}/5006"), ASKS, "").status, 404);
    assert_eq!(with(&format!("DELETE {PATH}/5004"), "another-token-of-16", "").status, 401);
}
