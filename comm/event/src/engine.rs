//! The engine's configuration, which follows from measurements of Zenoh. It never uses blocking congestion
//! control, where one slow sink stalls all for five seconds. It sets a lease of a second, and scouts only on
//! request. It uses gossip, so that a host that knows one host learns of all, and no shared memory.

use serde_json::{Value, json};

use crate::address::Address;
use crate::keys::escaped;
use crate::settings::{MemberRights, Role, Settings};

/// How long a silent host counts as present, in milliseconds.
const LEASE_MS: u64 = 1000;
/// The longest message that is accepted, in bytes; ours are shorter.
const MESSAGE_MAX: u64 = 256 << 10;
/// How long to wait for room before a message is dropped, in microseconds.
const WAIT_BEFORE_DROP_US: u64 = 200;

/// The configuration of a session, in the engine's own syntax.
pub(crate) fn configuration(
    settings: &Settings,
    id: &str,
    listen: &[Address],
    connect: &[Address],
) -> Value {
    let scheme = if settings.tls.is_some() { "tls" } else { "tcp" };
    let endpoints = |all: &[Address]| -> Vec<String> {
        all.iter().map(|address| format!("{scheme}/{address}")).collect()
    };
    let mode = match settings.role {
        Role::Peer => "peer",
        Role::Client => "client",
        Role::Router => "router",
    };
    let retry = json!({ "period_init_ms": 20, "period_max_ms": 1000, "period_increase_factor": 2 });
    let mut link = json!({
        "tx": {
            "lease": LEASE_MS,
            "keep_alive": 4,
            "queue": {
                "congestion_control": { "drop": { "wait_before_drop": WAIT_BEFORE_DROP_US } }
            },
        },
        "rx": { "max_message_size": MESSAGE_MAX },
    });
    if let Some(tls) = &settings.tls {
        link["tls"] = json!({
            "root_ca_certificate": tls.authority,
            "listen_certificate": tls.certificate,
            "listen_private_key": tls.key,
            "connect_certificate": tls.certificate,
            "connect_private_key": tls.key,
            "enable_mtls": true,
            "verify_name_on_connect": tls.verify_address,
            "close_link_on_expiration": true,
        });
    }
    let mut configuration = json!({
        "id": id,
        "mode": mode,
        "listen": { "endpoints": endpoints(listen), "timeout_ms": 0, "exit_on_failure": true },
        "connect": {
            "endpoints": endpoints(connect),
            "timeout_ms": -1,
            "exit_on_failure": false,
            "retry": retry,
        },
        "open": { "return_conditions": { "connect_scouted": false, "declares": false } },
        "scouting": {
            "multicast": { "enabled": settings.scout },
            "gossip": { "enabled": settings.gossip },
        },
        "timestamping": { "enabled": false },
        "transport": {
            "unicast": { "open_timeout": 2000, "accept_timeout": 2000, "max_sessions": 4096 },
            "link": link,
        },
        "adminspace": { "enabled": false },
    });
    if !settings.members.is_empty() {
        configuration["access_control"] = access(settings);
    }
    configuration
}

/// Each member may send under its own name, and receive what it has rights to; others may do nothing.
fn access(settings: &Settings) -> Value {
    let root = format!("selvedge/{}", settings.domain);
    let rule = |id: &str, messages: &[&str], flow: &str, keys: &[String]| {
        json!({
            "id": id,
            "messages": messages,
            "flows": [flow],
            "permission": "allow",
            "key_exprs": keys,
        })
    };
    let all = [format!("{root}/**")];
    let presence = ["liveliness_token", "liveliness_query", "declare_liveliness_subscriber"];
    let mut rules = vec![rule("presence", &presence, "egress", &all)];
    let (mut subjects, mut policies) = (Vec::new(), Vec::new());
    for (number, member) in settings.members.iter().enumerate() {
        let name = &member.name;
        let own = format!("{root}/{name}/**");
        let mut read = vec![
            format!("{root}/*/*/all"),
            format!("{root}/*/*/to/{name}/*"),
            format!("{root}/*/*/up"),
        ];
        read.extend(channels(&root, member));
        let (sends, wants, gets) =
            (format!("sends-{number}"), format!("wants-{number}"), format!("gets-{number}"));
        let asks = ["declare_subscriber", "liveliness_query", "declare_liveliness_subscriber"];
        rules.push(rule(&sends, &["put", "liveliness_token"], "ingress", &[own]));
        rules.push(rule(&wants, &asks, "ingress", &read));
        // The interests of this process are no secret; its events go where they are wanted.
        rules.push(rule(&gets, &["put", "declare_subscriber"], "egress", &all));
        let subject = format!("member-{number}");
        subjects.push(json!({ "id": subject, "cert_common_names": [name] }));
        policies.push(json!({
            "rules": ["presence", sends, wants, gets],
            "subjects": [subject],
        }));
    }
    json!({
        "enabled": true,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    })
}

/// The keys of the channels whose events a member may receive.
fn channels<'a>(root: &'a str, member: &'a MemberRights) -> impl Iterator<Item = String> + 'a {
    member.subscribe.iter().map(move |channel| {
        let part = match channel.strip_suffix('*') {
            Some("") => "*".to_owned(),
            Some(begin) => format!("{}$*", escaped(begin)),
            None => escaped(channel),
        };
        format!("{root}/*/*/ch/{part}")
    })
}

/// Whether a pattern (a name, or its beginning and a star) matches a channel.
pub(crate) fn means(pattern: &str, channel: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(begin) => channel.starts_with(begin),
        None => pattern == channel,
    }
}
