//! Keys within the engine. A host sends under its own name, so that access by the certificate's
//! name binds the two:
//!
//! ```text
//! selvedge/DOMAIN/NAME/PID-ID/up            it is there
//! selvedge/DOMAIN/NAME/PID-ID/all           to every host
//! selvedge/DOMAIN/NAME/PID-ID/to/NAME/PID-ID
//! selvedge/DOMAIN/NAME/PID-ID/ch/CHANNEL    to hosts that want the channel's events
//! ```

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::rand::{SecureRandom, SystemRandom};

use crate::settings::check_name;

/// A process on a host, as others see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ParticipantName {
    /// The host.
    pub name: String,
    /// The process.
    pub pid: u32,
    /// Distinguishes the process from an earlier one with the same name and number.
    pub(crate) id: String,
}

impl std::fmt::Display for ParticipantName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.name, self.pid)
    }
}

impl ParticipantName {
    /// Whether `NAME` or `NAME/PID` matches this participant.
    pub fn matches(&self, target: &str) -> bool {
        match target.split_once('/') {
            Some((name, pid)) => name == self.name && pid.parse() == Ok(self.pid),
            None => target == self.name,
        }
    }

    /// `NAME/PID-ID`, two parts of a key.
    pub(crate) fn parts(&self) -> String {
        format!("{}/{}-{}", self.name, self.pid, self.id)
    }

    fn parse(name: &str, process: &str) -> Option<Self> {
        let (pid, id) = process.split_once('-')?;
        let is_id = (1..=32).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_hexdigit());
        let pid = pid.parse().ok()?;
        (check_name(name).is_ok() && is_id).then(|| Self {
            name: name.to_owned(),
            pid,
            id: id.to_owned(),
        })
    }
}

/// Distinguishes this process, and its participants, from others: 128 random bits, or a count if
/// there is no randomness.
pub(crate) fn id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0_u8; 16];
    if SystemRandom::new().fill(&mut bytes).is_err() {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        bytes[..8].copy_from_slice(&count.to_le_bytes());
        bytes[8..].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
    }
    // The engine does not accept a leading zero.
    bytes[0] |= 0x80;
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The part of a key that names the sender: `NAME/PID-ID`.
pub(crate) fn sender(key: &str) -> Option<&str> {
    let mut slashes = key.match_indices('/').map(|(at, _)| at);
    let (from, to) = (slashes.nth(1)? + 1, slashes.nth(1)?);
    Some(&key[from..to])
}

/// Parses the result of [`sender`].
pub(crate) fn parse_sender(parts: &str) -> Option<ParticipantName> {
    let (name, process) = parts.split_once('/')?;
    ParticipantName::parse(name, process)
}

/// The keys under which one host sends and receives.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    domain: String,
    me: String,
}

impl Keys {
    pub(crate) fn new(domain: &str, me: &ParticipantName) -> Self {
        Self { domain: domain.to_owned(), me: me.parts() }
    }

    fn own_key(&self, rest: &str) -> String {
        format!("selvedge/{}/{}/{rest}", self.domain, self.me)
    }

    fn wildcard_key(&self, rest: &str) -> String {
        format!("selvedge/{}/*/*/{rest}", self.domain)
    }

    pub(crate) fn my_token(&self) -> String {
        self.own_key("up")
    }

    pub(crate) fn tokens(&self) -> String {
        self.wildcard_key("up")
    }

    pub(crate) fn to_all(&self) -> String {
        self.own_key("all")
    }

    pub(crate) fn any_all(&self) -> String {
        self.wildcard_key("all")
    }

    pub(crate) fn to(&self, host: &ParticipantName) -> String {
        self.own_key(&format!("to/{}", host.parts()))
    }

    pub(crate) fn own_inbox_key(&self) -> String {
        self.wildcard_key(&format!("to/{}", self.me))
    }

    pub(crate) fn to_channel(&self, channel: &str) -> String {
        self.own_key(&format!("ch/{}", escaped(channel)))
    }

    pub(crate) fn any_channel(&self, channel: &str) -> String {
        self.wildcard_key(&format!("ch/{}", escaped(channel)))
    }
}

/// A channel's name as one part of a key: letters, digits, `-`, `_` and `.` stay as they are.
pub(crate) fn escaped(channel: &str) -> String {
    let mut part = String::new();
    for byte in channel.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            part.push(char::from(byte));
        } else {
            let _ = write!(part, "%{byte:02x}");
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_is_found_in_its_keys() {
        let me = ParticipantName { name: "studio".to_owned(), pid: 7, id: "ab12".to_owned() };
        let keys = Keys::new("default", &me);
        for key in [keys.my_token(), keys.to_all(), keys.to(&me), keys.to_channel("a/b *")] {
            assert_eq!(parse_sender(sender(&key).unwrap()), Some(me.clone()), "{key}");
        }
        assert_eq!(keys.to_channel("a/b *"), "selvedge/default/studio/7-ab12/ch/a%2fb%20%2a");
        for wrong in
            ["", "selvedge/d/x", "selvedge/d/x/7-ab12", "selvedge/d/x/y/up", "a/b/c/1-zz/up"]
        {
            let sender = sender(wrong).and_then(parse_sender);
            assert_eq!(sender, None, "{wrong}");
        }
        assert!(me.matches("studio") && me.matches("studio/7") && !me.matches("studio/8"));
    }
}
