//! Numeric addresses as node files write them: `rtp://HOST:PORT`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::quoted;

/// Why a text is not the address of one receiver, or not an address to receive at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `rtp://HOST:PORT` at all.
    #[error("{0} is not an address; write \"rtp://HOST:PORT\", such as \"rtp://127.0.0.1:5004\"")]
    Malformed(String),
    /// A host by name.
    #[error("{0} is not a numeric host; write its address, such as \"rtp://127.0.0.1:5004\"")]
    NamedHost(String),
    /// No port, or none that exists.
    #[error("{0} has no port of 1 to 65535; write one, such as \"rtp://127.0.0.1:5004\"")]
    Port(String),
    /// A group.
    #[error("{0} is a multicast address; write that of one host")]
    Multicast(IpAddr),
    /// The broadcast address.
    #[error("{0} is the broadcast address; write that of one host")]
    Broadcast(IpAddr),
    /// The unspecified address.
    #[error("{0} is no host's address; write that of the receiver")]
    Unspecified(IpAddr),
}

/// Reads `rtp://HOST:PORT` as the address of one receiver. IPv4 addresses written as IPv6
/// (`::ffff:10.0.0.1`) become IPv4.
///
/// # Errors
/// [`AddressError`]: malformed, named host, port 0, multicast, broadcast, or unspecified.
pub fn receiver(text: &str) -> Result<SocketAddr, AddressError> {
    let rest = text.strip_prefix("rtp://");
    receiver_at(text, rest.ok_or_else(|| AddressError::Malformed(quoted(text)))?)
}

/// The same for the text after `SCHEME://`.
pub(super) fn receiver_at(text: &str, host_port: &str) -> Result<SocketAddr, AddressError> {
    let address = numeric(text, host_port)?;
    match address.ip() {
        ip if ip.is_unspecified() => Err(AddressError::Unspecified(ip)),
        _ => Ok(address),
    }
}

/// Reads `rtp://HOST:PORT` as an address to receive at; `0.0.0.0` and `[::]` mean any address of the
/// host.
pub(super) fn listen(text: &str) -> Result<SocketAddr, AddressError> {
    let rest = text.strip_prefix("rtp://");
    numeric(text, rest.ok_or_else(|| AddressError::Malformed(quoted(text)))?)
}

fn numeric(text: &str, rest: &str) -> Result<SocketAddr, AddressError> {
    let Ok(address) = rest.parse::<SocketAddr>() else { return Err(reason(text, rest)) };
    let ip = address.ip().to_canonical();
    let address = if ip.is_ipv4() { SocketAddr::new(ip, address.port()) } else { address };
    match ip {
        _ if address.port() == 0 => Err(AddressError::Port(quoted(text))),
        ip if ip.is_multicast() => Err(AddressError::Multicast(ip)),
        ip if ip == IpAddr::V4(Ipv4Addr::BROADCAST) => Err(AddressError::Broadcast(ip)),
        _ => Ok(address),
    }
}

/// Why `HOST:PORT` could not be read.
fn reason(text: &str, host_port: &str) -> AddressError {
    let host = match host_port.rsplit_once(':') {
        // The colons in `[::1]` do not separate a port.
        Some((host, port)) if !port.contains(']') => host,
        _ => host_port,
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let numeric = host.parse::<Ipv4Addr>().is_ok()
        || bracketed.is_some_and(|host| host.parse::<std::net::Ipv6Addr>().is_ok());
    let named = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if numeric {
        AddressError::Port(quoted(text))
    } else if !host.is_empty() && host.chars().all(named) {
        AddressError::NamedHost(quoted(host))
    } else {
        AddressError::Malformed(quoted(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_host_and_a_port_are_read() {
        for (text, address) in [
            ("rtp://127.0.0.1:5004", "127.0.0.1:5004"),
            ("rtp://[::1]:5004", "[::1]:5004"),
            ("rtp://[fe80::1%2]:5004", "[fe80::1%2]:5004"),
            ("rtp://[::ffff:10.0.0.1]:9", "10.0.0.1:9"),
        ] {
            assert_eq!(receiver(text), Ok(address.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn all_else_is_refused_for_its_reason() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (text, error) in [
            ("rtp://studio.example:5004", AddressError::NamedHost("\"studio.example\"".into())),
            ("rtp://studio", AddressError::NamedHost("\"studio\"".into())),
            ("rtp://127.0.0.1", AddressError::Port("\"rtp://127.0.0.1\"".into())),
            ("rtp://[::1]", AddressError::Port("\"rtp://[::1]\"".into())),
            ("rtp://127.0.0.1:0", AddressError::Port("\"rtp://127.0.0.1:0\"".into())),
            ("rtp://127.0.0.1:70000", AddressError::Port("\"rtp://127.0.0.1:70000\"".into())),
            ("rtp://239.1.1.1:5004", AddressError::Multicast(ip("239.1.1.1"))),
            ("rtp://[ff02::1]:5004", AddressError::Multicast(ip("ff02::1"))),
            ("rtp://[::ffff:239.1.1.1]:5004", AddressError::Multicast(ip("239.1.1.1"))),
            ("rtp://255.255.255.255:5004", AddressError::Broadcast(ip("255.255.255.255"))),
            ("rtp://0.0.0.0:5004", AddressError::Unspecified(ip("0.0.0.0"))),
            ("127.0.0.1:5004", AddressError::Malformed("\"127.0.0.1:5004\"".into())),
            ("rtp://:5004", AddressError::Malformed("\"rtp://:5004\"".into())),
            ("rtp://", AddressError::Malformed("\"rtp://\"".into())),
        ] {
            assert_eq!(receiver(text), Err(error), "{text}");
        }
        assert!(listen("rtp://0.0.0.0:5004").is_ok());
    }
}
