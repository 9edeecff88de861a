//! Who may come in: Host (against DNS rebinding), Origin (against other sites' scripts), token.
//!
//! Pure: decides from a request's head alone. A browser has the token from `/?token=` once and
//! keeps it as a cookie that scripts can't read and other sites can't make it send; programs send
//! `Authorization: Bearer`.

use std::net::{IpAddr, SocketAddr};

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::problem::Problem;

/// What is asked of every request.
#[derive(Debug)]
pub(crate) struct AccessGate {
    loopback: bool,
    token: Option<String>,
    cookie: String,
}

/// A request that may go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AdmittedRequest {
    AsIs,
    /// It brought the token in the page's address: give it this cookie.
    WithCookie(String),
}

impl AccessGate {
    pub(crate) fn new(local: SocketAddr, token: Option<String>) -> Self {
        // Cookies are shared by all ports of a host, so the port tells two nodes apart.
        let cookie = format!("selvedge_{}", local.port());
        Self { loopback: local.ip().is_loopback(), token, cookie }
    }

    /// Whether this request may go on.
    pub(crate) fn admit(&self, head: &Parts) -> Result<AdmittedRequest, Problem> {
        let host = self.host(&head.headers)?;
        let reads = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if !reads || head.uri.path() == "/ws" {
            same_origin(&head.headers, &host)?;
        }
        match &self.token {
            Some(token) if !is_open(head.uri.path()) => self.identify(token, head),
            _ => Ok(AdmittedRequest::AsIs),
        }
    }

    fn host(&self, headers: &HeaderMap) -> Result<Authority, Problem> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = match (hosts.next(), hosts.next()) {
            (Some(host), None) => host.to_str().ok(),
            _ => None,
        };
        let host: Authority = host.and_then(|host| host.parse().ok()).ok_or_else(|| {
            let message = "the Host header is missing, repeated or malformed";
            Problem::bad("bad-host", "Host", message, "send one, such as 127.0.0.1:7700")
        })?;
        if self.loopback && !is_local(host.host()) {
            let message = format!("\"{}\" is not a name of this machine's loopback", host.host());
            let remedy = "open the page as localhost, 127.0.0.1 or [::1]";
            return Err(Problem::bad("bad-host", "Host", message, remedy));
        }
        Ok(host)
    }

    fn identify(&self, token: &str, head: &Parts) -> Result<AdmittedRequest, Problem> {
        let is_token = |given: &[u8]| bool::from(given.ct_eq(token.as_bytes()));
        let headers = &head.headers;
        let bearer = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        if bearer.and_then(bearer_of).is_some_and(is_token) {
            return Ok(AdmittedRequest::AsIs);
        }
        let expected = hex(token);
        let mut cookies = headers
            .get_all(header::COOKIE)
            .iter()
            .flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
        let has_cookie = cookies.any(|pair| {
            let value = pair.trim_ascii().strip_prefix(self.cookie.as_bytes());
            let value = value.and_then(|rest| rest.strip_prefix(b"="));
            value.is_some_and(|value| value.ct_eq(expected.as_bytes()).into())
        });
        if has_cookie {
            return Ok(AdmittedRequest::AsIs);
        }
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let mut pairs = form_urlencoded::parse(query);
        let asked = pairs.find(|(key, _)| key == "token");
        let given = (head.uri.path() == "/").then_some(asked).flatten();
        if given.is_some_and(|(_, value)| is_token(value.as_bytes())) {
            let cookie = &self.cookie;
            let cookie = format!("{cookie}={expected}; Path=/; HttpOnly; SameSite=Strict");
            return Ok(AdmittedRequest::WithCookie(cookie));
        }
        let message = "this node wants its token, and none or a wrong one came";
        let remedy = "send Authorization: Bearer TOKEN, or open /?token=TOKEN in a browser";
        Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message, remedy)
            .at("Authorization"))
    }
}

/// The two files that the page asking for the token needs; they say nothing about the node.
fn is_open(path: &str) -> bool {
    matches!(path, "/style.css" | "/favicon.svg")
}

/// Only literal addresses and the one name that no resolver is asked for.
fn is_local(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Browsers name the site whose script asks; programs send no Origin.
fn same_origin(headers: &HeaderMap, host: &Authority) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let text = origin.to_str().unwrap_or_default();
    let site = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    if site.is_some_and(|site| site.eq_ignore_ascii_case(host.as_str())) {
        return Ok(());
    }
    let message = "a page of another site asks for this";
    let remedy = "use the node's own page, or a program that sends no Origin";
    Err(Problem::new(StatusCode::FORBIDDEN, "other-origin", message, remedy).at("Origin"))
}

fn bearer_of(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

/// A token may hold characters that a cookie may not.
fn hex(token: &str) -> String {
    token.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    const TOKEN: &str = "s3cret; with=care";

    fn gate(listen: &str, token: Option<&str>) -> AccessGate {
        AccessGate::new(listen.parse().unwrap(), token.map(String::from))
    }

    fn ask(
        gate: &AccessGate,
        request: &str,
        headers: &[(&str, &str)],
    ) -> Result<AdmittedRequest, Problem> {
        let (method, path) = request.split_once(' ').unwrap();
        let mut builder = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        gate.admit(&builder.body(()).unwrap().into_parts().0)
    }

    fn code(result: Result<AdmittedRequest, Problem>) -> &'static str {
        result.map_or_else(|problem| problem.code, |_| "admitted")
    }

    #[test]
    fn a_loopback_node_answers_to_loopback_names_only() {
        let gate = gate("127.0.0.1:7700", None);
        for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:7700", "127.8.9.1", "[::1]:7700"] {
            assert_eq!(code(ask(&gate, "GET /", &[("host", host)])), "admitted", "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", "", "a b"] {
            assert_eq!(code(ask(&gate, "GET /", &[("host", host)])), "bad-host", "{host}");
        }
        assert_eq!(code(ask(&gate, "GET /", &[])), "bad-host");
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(code(ask(&gate, "GET /", &two)), "bad-host");
    }

    #[test]
    fn changes_and_sockets_come_from_the_same_origin() {
        let gate = gate("127.0.0.1:7700", None);
        let from = |request: &str, origin: &str| {
            code(ask(&gate, request, &[("host", "localhost:7700"), ("origin", origin)]))
        };
        for request in ["GET /ws", "PATCH /api/v1/streams/a", "POST /api/v1/reload"] {
            assert_eq!(from(request, "http://localhost:7700"), "admitted");
            assert_eq!(from(request, "https://localhost:7700"), "admitted");
            for origin in ["http://evil.example", "http://localhost", "null", "http://localhost:1"]
            {
                assert_eq!(from(request, origin), "other-origin", "{origin}");
            }
        }
        assert_eq!(from("GET /api/v1/node", "http://evil.example"), "admitted");
    }

    #[test]
    fn the_token_opens_in_three_ways() {
        let gate = gate("0.0.0.0:7700", Some(TOKEN));
        let host = ("host", "studio.example:7700");
        assert_eq!(code(ask(&gate, "GET /api/v1/node", &[host])), "unauthorized");
        let bearer = format!("bearer {TOKEN}");
        let answer = ask(&gate, "GET /api/v1/node", &[host, ("authorization", &bearer)]);
        assert_eq!(answer, Ok(AdmittedRequest::AsIs));

        let Ok(AdmittedRequest::WithCookie(cookie)) =
            ask(&gate, "GET /?token=s3cret%3B+with%3Dcare", &[host])
        else {
            panic!("the page's address holds the token");
        };
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"));
        let pair = cookie.split(';').next().unwrap();
        let jar = format!("other=1; {pair}");
        assert_eq!(ask(&gate, "GET /ws", &[host, ("cookie", &jar)]), Ok(AdmittedRequest::AsIs));
    }

    #[test]
    fn a_wrong_token_opens_nothing() {
        let gate = gate("0.0.0.0:7700", Some(TOKEN));
        let host = ("host", "studio.example:7700");
        let headers = [
            ("authorization", "Bearer s3cret"),
            ("authorization", "Bearer"),
            ("authorization", "Basic czNjcmV0"),
            ("cookie", "selvedge_7700="),
            ("cookie", "selvedge_7700=73336372"),
            ("cookie", "selvedge_7701=7333637265743b20776974683d63617265"),
        ];
        for header in headers {
            assert_eq!(code(ask(&gate, "GET /", &[host, header])), "unauthorized", "{header:?}");
        }
        assert_eq!(code(ask(&gate, "GET /?token=s3cre", &[host])), "unauthorized");
        let elsewhere = ask(&gate, "GET /metrics?token=s3cret%3B+with%3Dcare", &[host]);
        assert_eq!(code(elsewhere), "unauthorized", "only the page takes it from its address");
        assert_eq!(code(ask(&gate, "GET /style.css", &[host])), "admitted");
    }
}
