//! Addresses of hosts: `HOST:PORT`, an IPv6 address in brackets.

use std::fmt;
use std::str::FromStr;

/// The address at which a host listens, or to which a process connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address; write HOST:PORT, as 192.168.1.5:7451 or [::1]:7451")]
pub struct AddressError(String);

impl Address {
    /// An address on the loopback.
    pub fn loopback(port: u16) -> Self {
        Self { host: "127.0.0.1".to_owned(), port }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn with_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port }
    }

    /// The host without brackets.
    pub(crate) fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let failed = || AddressError(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(failed)?;
        let port = port.parse().map_err(|_| failed())?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let fits = match inner {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
            None => {
                let fits = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
                (1..=253).contains(&host.len()) && host.chars().all(fits)
            }
        };
        fits.then(|| Self { host: host.to_owned(), port }).ok_or_else(failed)
    }
}
