//! Logins of players: the digest of a password that is never sent (RFC 2617), and the delay of those who
//! guess. From the `Authorization` of a request to whether, and when, it is answered.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use gstreamer::glib::{ChecksumType, compute_checksum_for_data};
use selvedge_units::{Duration, Instant};

/// The name of what a login is for.
const REALM: &str = "Selvedge";
/// How long the answer to a wrong login takes: guesses from one address follow each other at this distance.
const PENALTY: Duration = Duration::from_secs(1);
/// Further guesses from an address are not even looked at while this much of it is ahead.
const PENALTY_MAX: Duration = Duration::from_secs(8);
/// The most addresses that are remembered; all others share one place.
const ADDRESSES: usize = 1024;

/// The user and the password that a stream asks for.
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(***)")
    }
}

/// Numbers that nobody can predict, as text.
pub(super) fn unpredictable() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The challenge of one connection: what answers it is of no use in another.
#[derive(Debug)]
pub(super) struct Challenge(pub(super) String);

impl Challenge {
    /// The value of `WWW-Authenticate`.
    pub(super) fn field(&self) -> String {
        format!("Digest realm=\"{REALM}\", nonce=\"{}\", algorithm=MD5", self.0)
    }

    /// Whether this `Authorization` shows that the client knows the password.
    pub(super) fn is_met(&self, login: &Login, method: &str, authorization: &str) -> bool {
        let Some(("Digest", parameters)) = authorization.split_once(' ') else { return false };
        let of = |name: &str| parameter(parameters, name);
        let (Some(uri), Some(response)) = (of("uri"), of("response")) else { return false };
        let Login { user, password } = login;
        let secret = md5(&format!("{user}:{REALM}:{password}"));
        let asked = md5(&format!("{method}:{uri}"));
        let right = md5(&format!("{secret}:{}:{asked}", self.0));
        of("username") == Some(user) && of("nonce") == Some(&self.0) && is_same(&right, response)
    }
}

/// The value of a parameter, with or without quotes.
fn parameter<'a>(mut text: &'a str, name: &str) -> Option<&'a str> {
    loop {
        let (found, rest) = text.split_once('=')?;
        let (value, behind) = match rest.trim_start().strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => rest.split_at(rest.find(',').unwrap_or(rest.len())),
        };
        if found.trim().eq_ignore_ascii_case(name) {
            return Some(value.trim());
        }
        text = behind.trim_start_matches([',', ' ']);
    }
}

fn md5(text: &str) -> String {
    compute_checksum_for_data(ChecksumType::Md5, text.as_bytes())
        .map_or_else(String::new, Into::into)
}

/// Compares in a time that does not show where two digests differ. Nothing equals an empty one.
fn is_same(right: &str, given: &str) -> bool {
    let differ = right.bytes().zip(given.bytes().map(|c| c.to_ascii_lowercase()));
    let differ = differ.fold(0, |all, (one, other)| all | (one ^ other));
    !right.is_empty() && right.len() == given.len() && differ == 0
}

/// The addresses that wrong logins come from.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// When the last wrong login of each address is answered.
    until: HashMap<IpAddr, Instant>,
    wrong: u64,
}

impl Guard {
    /// When a login from this address is answered: right ones too, or guessers in parallel would know at
    /// once which is right. `None`: too many wrong ones wait, and it must not be looked at.
    pub(super) fn answer_at(&self, from: IpAddr, now: Instant) -> Option<Instant> {
        let at = self.until.get(&self.place(from)).map_or(now, |until| now.max(*until));
        (at <= now + PENALTY_MAX).then_some(at)
    }

    /// A login from this address was wrong; returns how many were so far.
    pub(super) fn note_wrong(&mut self, from: IpAddr, now: Instant) -> u64 {
        if self.until.len() >= ADDRESSES {
            self.until.retain(|_, until| *until > now);
        }
        let until = self.until.entry(self.place(from)).or_insert(now);
        *until = now.max(*until) + PENALTY;
        self.wrong += 1;
        self.wrong
    }

    /// Where an address is remembered: a host of IPv6 has a whole network of them.
    fn place(&self, from: IpAddr) -> IpAddr {
        let own = match from.to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
            ip => ip,
        };
        let fits = self.until.len() < ADDRESSES || self.until.contains_key(&own);
        if fits { own } else { Ipv4Addr::UNSPECIFIED.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_digest_of_the_password_meets_a_challenge() {
        let login = Login { user: "Mufasa".into(), password: "Circle, Of Life".into() };
        let challenge = Challenge("abc".into());
        let digest = |password: &str, nonce: &str| {
            let (secret, asked) =
                (md5(&format!("Mufasa:{REALM}:{password}")), md5("PLAY:rtsp://h/a,b"));
            let response = md5(&format!("{secret}:{nonce}:{asked}"));
            format!(
                "Digest username=\"Mufasa\", realm=\"{REALM}\", nonce=\"{nonce}\", uri=\"rtsp://h/a,b\", \
                 response=\"{response}\""
            )
        };
        // RFC 1321, section A.5.
        assert_eq!(md5("abc"), "900150983cd24fb0d6963f7d28e17f72");
        let right = digest("Circle, Of Life", "abc");
        assert!(challenge.is_met(&login, "PLAY", &right));
        assert!(challenge.is_met(&login, "PLAY", &right.replace("\", ", "\",")));
        for (method, wrong) in [
            ("SETUP", right.clone()),
            ("PLAY", digest("circle, Of Life", "abc")),
            ("PLAY", digest("Circle, Of Life", "abd")),
            ("PLAY", right.replace("Mufasa", "Scar")),
            ("PLAY", "Digest response=\"\", uri=\"a\"".into()),
            ("PLAY", "Basic TXVmYXNhOkNpcmNsZSwgT2YgTGlmZQ==".into()),
            ("PLAY", String::new()),
        ] {
            assert!(!challenge.is_met(&login, method, &wrong), "{method} {wrong}");
        }
    }

    #[test]
    fn guesses_of_one_address_wait_for_each_other_and_others_do_not() {
        let (mut guard, now) = (Guard::default(), Instant(1));
        let (guesser, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut looked_at = 0;
        while guard.answer_at(guesser, now).is_some() {
            looked_at += 1;
            assert_eq!(guard.note_wrong(guesser, now), looked_at);
        }
        assert_eq!(looked_at, 9);
        assert_eq!(guard.answer_at(other, now), Some(now));
        assert!(guard.answer_at(guesser, now + PENALTY).is_some());
        // However many addresses guess, what is remembered of them is bounded.
        for n in 0..100_000_u32 {
            guard.note_wrong(IpAddr::from(n.to_be_bytes()), now);
        }
        assert!(guard.until.len() <= ADDRESSES + 1, "{}", guard.until.len());
        let neighbours =
            ["2001:db8::1", "2001:db8::ffff"].map(|ip| guard.place(ip.parse().unwrap()));
        assert_eq!(neighbours[0], neighbours[1]);
    }
}
