//! Which clients are admitted, and in which role: Host (against DNS rebinding), Origin (against other
//! sites' scripts), tokens.
//!
//! Pure: decides from a request's head and the time. A browser sends the token in `/?token=` or
//! `/watch?token=` once and gets a session for it: a cookie that scripts can't read and that it never
//! sends for other sites.
//! Programs send `Authorization: Bearer`.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use selvedge_control_config::{PageConfig, Tls, Token};
use selvedge_units::Instant;
use subtle::ConstantTimeEq;

use crate::problem::Problem;
use crate::session::{Role, SESSION, SessionKey};

/// The checks of every request.
#[derive(Debug)]
pub(crate) struct AccessGate {
    loopback: bool,
    encrypted: bool,
    /// If empty, every client may do everything.
    tokens: Vec<(Token, Role)>,
    cookie: String,
    sessions: SessionKey,
}

/// A request that was admitted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AdmittedRequest {
    pub(crate) role: Role,
    /// Set this cookie: the request had a token in the page's address.
    pub(crate) cookie: Option<String>,
}

impl AccessGate {
    /// `page.listen` is the server's address, with its port.
    pub(crate) fn new(page: &PageConfig, sessions: SessionKey) -> Self {
        let encrypted = page.tls != Tls::Off;
        // All ports of a host share cookies, so the port in the name distinguishes two nodes. The
        // prefix excludes cookies that an unencrypted page sets (RFC 6265bis, 4.1.3.2).
        let prefix = if encrypted { "__Host-" } else { "" };
        let cookie = format!("{prefix}selvedge_{}", page.listen.port());
        let tokens = [
            (&page.token, Role::Control),
            (&page.view_token, Role::View),
            (&page.watch_token, Role::Watch),
        ];
        let tokens = tokens.into_iter().filter_map(|(token, role)| Some((token.clone()?, role)));
        let loopback = page.listen.ip().is_loopback();
        Self { loopback, encrypted, tokens: tokens.collect(), cookie, sessions }
    }

    /// Whether this request is admitted.
    pub(crate) fn admit(&self, head: &Parts, now: Instant) -> Result<AdmittedRequest, Problem> {
        let host = self.host(&head.headers)?;
        if head.headers.contains_key(header::TRANSFER_ENCODING) {
            return Err(no_length());
        }
        let reads = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
        if !reads || matches!(head.uri.path(), "/ws" | "/watch/ws") {
            self.same_origin(&head.headers, &host)?;
        }
        if !reads && is_for_receivers(head.uri.path()) {
            // Those who ask for a stream have a token for it, which its route checks.
            return Ok(AdmittedRequest { role: Role::View, cookie: None });
        }
        let admitted = if self.tokens.is_empty() || is_open(head.uri.path()) {
            AdmittedRequest { role: Role::Control, cookie: None }
        } else {
            self.identify(head, now)?
        };
        match admitted.role {
            Role::View if !reads => Err(view_only()),
            Role::Watch if !reads || !may_watch(head.uri.path()) => Err(watch_only()),
            _ => Ok(admitted),
        }
    }

    /// The name or address by which the client knows the node.
    pub(crate) fn host(&self, headers: &HeaderMap) -> Result<Authority, Problem> {
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

    fn identify(&self, head: &Parts, now: Instant) -> Result<AdmittedRequest, Problem> {
        let role_of = |given: &[u8]| {
            let is_given = |token: &Token| bool::from(given.ct_eq(token.as_str().as_bytes()));
            self.tokens.iter().find(|(token, _)| is_given(token)).map(|(_, role)| *role)
        };
        let headers = &head.headers;
        let bearer = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        if let Some(role) = bearer.and_then(bearer_of).and_then(role_of) {
            return Ok(AdmittedRequest { role, cookie: None });
        }
        let query = head.uri.query().unwrap_or_default().as_bytes();
        let mut pairs = form_urlencoded::parse(query);
        let asked = pairs.find(|(key, _)| key == "token");
        let given = matches!(head.uri.path(), "/" | "/watch").then_some(asked).flatten();
        if let Some(role) = given.and_then(|(_, value)| role_of(value.as_bytes())) {
            let (name, session) = (self.cookie_of(role), self.sessions.issue(role, now));
            let (seconds, secure) = (SESSION.0 / 1_000_000_000, ["", "; Secure"]);
            let secure = secure[usize::from(self.encrypted)];
            let cookie = format!(
                "{name}={session}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
            );
            return Ok(AdmittedRequest { role, cookie: Some(cookie) });
        }
        let session = |of: Role| {
            let name = self.cookie_of(of);
            let values = headers.get_all(header::COOKIE).iter().map(|value| value.as_bytes());
            let mut cookies = values.flat_map(|value| value.split(|byte| *byte == b';'));
            cookies.find_map(|pair| {
                let value = pair.trim_ascii().strip_prefix(name.as_bytes());
                self.sessions.role(value?.strip_prefix(b"=")?, now)
            })
        };
        if let Some(role) = session(Role::Control).or_else(|| session(Role::Watch)) {
            return Ok(AdmittedRequest { role, cookie: None });
        }
        let message = "this node wants a token, and none or a wrong one came";
        let remedy = match head.uri.path() {
            "/watch" | "/watch/ws" => "open /watch?token=TOKEN, the link that you were given",
            _ => "send Authorization: Bearer TOKEN, or open /?token=TOKEN in a browser",
        };
        Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message, remedy)
            .at("Authorization"))
    }

    /// The name of a session's cookie. One who only watches has another, beside that of a person who may do more.
    fn cookie_of(&self, role: Role) -> String {
        let name = &self.cookie;
        if role == Role::Watch { format!("{name}_watch") } else { name.clone() }
    }

    /// Browsers send the origin of the requesting script; programs send no Origin.
    fn same_origin(&self, headers: &HeaderMap, host: &Authority) -> Result<(), Problem> {
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let text = origin.to_str().unwrap_or_default();
        // An unencrypted node may run behind a proxy that encrypts.
        let plain = text.strip_prefix("http://").filter(|_| !self.encrypted);
        let site = plain.or_else(|| text.strip_prefix("https://"));
        if site.is_some_and(|site| site.eq_ignore_ascii_case(host.as_str())) {
            return Ok(());
        }
        let message = "a page of another site asks for this";
        let remedy = "use the node's own page, or a program that sends no Origin";
        Err(Problem::new(StatusCode::FORBIDDEN, "other-origin", message, remedy).at("Origin"))
    }
}

/// A change that was requested with the view token.
pub(crate) fn view_only() -> Problem {
    let message = "the token lets you see the node and change nothing";
    let remedy = "use the one that the node file has as [node] token";
    Problem::new(StatusCode::FORBIDDEN, "view-only", message, remedy)
}

/// What is refused with the watch token.
pub(crate) fn watch_only() -> Problem {
    let message = "the token lets you watch the pictures and nothing else";
    let remedy = "open /watch, or /?token=TOKEN with the node's token or view_token";
    Problem::new(StatusCode::FORBIDDEN, "watch-only", message, remedy)
}

/// The HTTP library removes Content-Length where there is a Transfer-Encoding too. So both together,
/// which can smuggle requests past proxies, can't be distinguished from the latter alone.
fn no_length() -> Problem {
    let message = "the body comes with a Transfer-Encoding";
    let remedy = "send its length as Content-Length, and no Transfer-Encoding";
    Problem::bad("bad-framing", "Transfer-Encoding", message, remedy)
}

/// Whether a path is that by which receivers ask for a stream.
fn is_for_receivers(path: &str) -> bool {
    let rest = path.strip_prefix("/api/v1/streams/").and_then(|rest| rest.split_once('/'));
    rest.is_some_and(|(_, rest)| rest == "receivers" || rest.starts_with("receivers/"))
}

/// Whether the page of those who only watch needs this.
pub(crate) fn may_watch(path: &str) -> bool {
    let files = [
        "/watch.js",
        "/connection.js",
        "/wire.js",
        "/videos.js",
        "/player.js",
        "/sound.js",
        "/make.js",
    ];
    matches!(path, "/watch" | "/watch/ws") || files.contains(&path) || is_open(path)
}

/// The two files that the token page needs; they contain nothing about the node.
fn is_open(path: &str) -> bool {
    matches!(path, "/style.css" | "/favicon.svg")
}

/// Only literal addresses and the one name that no resolver handles.
fn is_local(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

pub(crate) fn bearer_of(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use selvedge_units::Duration;

    const CONTROL: &str = "control/with=care+1";
    const VIEW: &str = "only-to-look-at-it";
    const NOW: Instant = Instant(1_000_000_000);

    fn gate(listen: &str, tls: Tls, tokens: &[&str]) -> AccessGate {
        let token = |at: usize| tokens.get(at).map(|token| token.parse().unwrap());
        let listen = listen.parse().unwrap();
        let (view_token, watch_token) = (token(1), token(2));
        let page = PageConfig {
            listen,
            token: token(0),
            view_token,
            watch_token,
            tls,
            ..Default::default()
        };
        AccessGate::new(&page, SessionKey::new(&[1; 32]))
    }

    fn open() -> AccessGate {
        gate("127.0.0.1:7700", Tls::Off, &[])
    }

    fn head(request: &str, headers: &[(&str, &str)]) -> Parts {
        let (method, path) = request.split_once(' ').unwrap();
        let mut builder = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    /// The role of a request, or the reason for its refusal.
    fn ask(gate: &AccessGate, request: &str, headers: &[(&str, &str)]) -> &'static str {
        let code = |problem: Problem| problem.code;
        gate.admit(&head(request, headers), NOW).map_or_else(code, |admitted| match admitted.role {
            Role::Watch => "watch",
            Role::View => "view",
            Role::Control => "control",
        })
    }

    #[test]
    fn a_loopback_node_answers_to_loopback_names_only() {
        let gate = open();
        for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:7700", "127.8.9.1", "[::1]:7700"] {
            assert_eq!(ask(&gate, "GET /", &[("host", host)]), "control", "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::2]", "", "a b"] {
            assert_eq!(ask(&gate, "GET /", &[("host", host)]), "bad-host", "{host}");
        }
        assert_eq!(ask(&gate, "GET /", &[]), "bad-host");
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(ask(&gate, "GET /", &two), "bad-host");
    }

    #[test]
    fn changes_and_sockets_come_from_the_same_origin() {
        let from = |gate: &AccessGate, request: &str, origin: &str| {
            ask(gate, request, &[("host", "localhost:7700"), ("origin", origin)])
        };
        let (plain, encrypted) = (open(), gate("127.0.0.1:7700", Tls::Auto, &[]));
        for request in ["GET /ws", "PATCH /api/v1/streams/a", "POST /api/v1/reload"] {
            assert_eq!(from(&plain, request, "http://localhost:7700"), "control");
            assert_eq!(from(&plain, request, "https://localhost:7700"), "control");
            assert_eq!(from(&encrypted, request, "https://localhost:7700"), "control");
            assert_eq!(from(&encrypted, request, "http://localhost:7700"), "other-origin");
            for origin in ["http://evil.example", "http://localhost", "null", "http://localhost:1"]
            {
                assert_eq!(from(&plain, request, origin), "other-origin", "{origin}");
            }
        }
        assert_eq!(from(&plain, "GET /api/v1/node", "http://evil.example"), "control");
    }

    #[test]
    fn a_token_opens_in_three_ways_and_only_one_of_them_changes_something() {
        let gate = gate("0.0.0.0:7700", Tls::Auto, &[CONTROL, VIEW]);
        let host = ("host", "studio.example:7700");
        assert_eq!(ask(&gate, "GET /api/v1/node", &[host]), "unauthorized");
        for (token, role, change) in [(CONTROL, "control", "control"), (VIEW, "view", "view-only")]
        {
            let bearer = format!("bearer {token}");
            let bearer = ("authorization", bearer.as_str());
            assert_eq!(ask(&gate, "GET /api/v1/node", &[host, bearer]), role);
            assert_eq!(ask(&gate, "PATCH /api/v1/streams/a", &[host, bearer]), change);
            assert_eq!(ask(&gate, "POST /api/v1/save", &[host, bearer]), change);

            let encoded: String = form_urlencoded::byte_serialize(token.as_bytes()).collect();
            let asked = head(&format!("GET /?token={encoded}"), &[host]);
            let cookie = gate.admit(&asked, NOW).unwrap().cookie.expect("a cookie");
            assert!(!cookie.contains(token), "{cookie}");
            let (pair, rest) = cookie.split_once(';').unwrap();
            assert_eq!(rest, " Path=/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure");
            assert!(pair.starts_with("__Host-selvedge_7700="), "{pair}");
            let jar = format!("other=1; {pair}");
            let with_cookie = [host, ("cookie", jar.as_str())];
            assert_eq!(ask(&gate, "GET /ws", &with_cookie), role);
            assert_eq!(ask(&gate, "PATCH /api/v1/streams/a", &with_cookie), change);
            let late = gate.admit(&head("GET /", &with_cookie), NOW + Duration::from_secs(43_200));
            assert_eq!(late.unwrap_err().code, "unauthorized", "a session ends");
        }
    }

    #[test]
    fn the_watch_token_opens_the_pictures_and_nothing_else() {
        const WATCH: &str = "only-the-pictures";
        let gate = gate("0.0.0.0:7700", Tls::Off, &[CONTROL, VIEW, WATCH]);
        let host = ("host", "studio.example:7700");
        let session = |path: &str, token: &str| {
            let asked = head(&format!("GET {path}?token={token}"), &[host]);
            let cookie = gate.admit(&asked, NOW).unwrap().cookie.expect("a cookie");
            cookie.split(';').next().unwrap().to_owned()
        };
        let (watch, control) =
            (session("/watch", WATCH), session("/watch", "control%2fwith%3dcare%2b1"));
        let by_token = format!("Bearer {WATCH}");
        for by in [("cookie", &watch), ("authorization", &by_token)] {
            let ask = |request: &str| ask(&gate, request, &[host, (by.0, by.1)]);
            for path in ["/watch", "/watch/ws", "/watch.js", "/player.js", "/style.css"] {
                assert_ne!(ask(&format!("GET {path}")), "watch-only", "{path}");
            }
            for path in ["/", "/ws", "/main.js", "/metrics", "/api/v1/node", "/watch/", "/watch/x"]
            {
                assert_eq!(ask(&format!("GET {path}")), "watch-only", "{path}");
            }
            for request in ["POST /watch", "PATCH /api/v1/streams/a", "POST /api/v1/save"] {
                assert_eq!(ask(request), "watch-only", "{request}");
            }
        }
        let both = format!("{watch}; {control}");
        assert_eq!(ask(&gate, "GET /", &[host, ("cookie", &both)]), "control");
        assert_eq!(ask(&gate, "GET /?token=only-the-pictures", &[host]), "watch-only");
        assert_eq!(ask(&gate, "GET /watch?token=only-the-picture", &[host]), "unauthorized");
        assert_eq!(ask(&gate, "GET /watch", &[host, ("cookie", &control)]), "control");
        assert_eq!(ask(&open(), "GET /watch", &[("host", "localhost")]), "control");
    }

    #[test]
    fn a_wrong_token_opens_nothing() {
        let gate = gate("0.0.0.0:7700", Tls::Off, &[CONTROL]);
        let host = ("host", "studio.example:7700");
        let hex: String = CONTROL.bytes().map(|byte| format!("{byte:02x}")).collect();
        let headers = [
            ("authorization", "Bearer control/with=care".to_owned()),
            ("authorization", "Bearer".to_owned()),
            ("authorization", format!("Basic {CONTROL}")),
            ("cookie", "selvedge_7700=".to_owned()),
            ("cookie", format!("selvedge_7700={CONTROL}")),
            ("cookie", format!("selvedge_7700={hex}")),
        ];
        for (name, value) in headers {
            assert_eq!(ask(&gate, "GET /", &[host, (name, &value)]), "unauthorized", "{value}");
        }
        assert_eq!(ask(&gate, "GET /?token=control/with=care", &[host]), "unauthorized");
        let elsewhere = ask(&gate, &format!("GET /metrics?token={CONTROL}"), &[host]);
        assert_eq!(elsewhere, "unauthorized", "only the page takes it from its address");
        assert_eq!(ask(&gate, "GET /style.css", &[host]), "control");
    }
}
