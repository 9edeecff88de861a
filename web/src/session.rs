//! The session that a browser keeps instead of a token: its end and its role, sealed by HMAC-SHA256
//! under a key that ends with the server, so that no state is kept for each browser.
//!
//! Pure: the key and the time are arguments.

use ring::hmac;
use selvedge_units::{Duration, Instant};

/// How long a session lasts. A page that is open then continues until it is loaded again.
pub(crate) const SESSION: Duration = Duration::from_secs(12 * 3600);

/// A client's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// See the pictures of streams, and nothing else.
    Watch,
    /// See all, and change nothing.
    View,
    /// See and change all.
    Control,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::View => "view",
            Self::Control => "control",
        }
    }
}

/// Seals and opens sessions.
#[derive(Debug)]
pub(crate) struct SessionKey(hmac::Key);

impl SessionKey {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// A session that begins `now`, in characters that a cookie may hold.
    pub(crate) fn issue(&self, role: Role, now: Instant) -> String {
        let what = format!("{}.{}", role.name(), (now + SESSION).0);
        let seal = hmac::sign(&self.0, what.as_bytes());
        seal.as_ref().iter().fold(what + ".", |text, byte| text + &format!("{byte:02x}"))
    }

    /// The role of the session, unless it is over or was not made here.
    pub(crate) fn role(&self, session: &[u8], now: Instant) -> Option<Role> {
        let (what, seal) = std::str::from_utf8(session).ok()?.rsplit_once('.')?;
        let digit = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        let seal: Vec<u8> = seal.as_bytes().chunks(2).map(digit).collect::<Option<_>>()?;
        // Compares in constant time.
        hmac::verify(&self.0, what.as_bytes(), &seal).ok()?;
        let (role, ends) = what.split_once('.')?;
        let is_over = now >= Instant(ends.parse().ok()?);
        [Role::Watch, Role::View, Role::Control]
            .into_iter()
            .find(|each| each.name() == role && !is_over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_and_can_not_be_made_elsewhere_or_changed() {
        let key = SessionKey::new(&[7; 32]);
        let began = Instant(5_000_000_000);
        let session = key.issue(Role::View, began);
        let role = |session: &str, now| key.role(session.as_bytes(), now);
        assert_eq!(role(&session, began), Some(Role::View));
        assert_eq!(role(&session, began + SESSION - Duration(1)), Some(Role::View));
        assert_eq!(role(&session, began + SESSION), None);
        assert_eq!(role(&session.replace("view", "control"), began), None);
        let ends = (began + SESSION).0;
        let longer = session.replace(&ends.to_string(), &(ends + 1).to_string());
        assert_eq!(role(&longer, began), None);
        assert_eq!(SessionKey::new(&[8; 32]).role(session.as_bytes(), began), None);
        for broken in ["", ".", "view", "..", "view.1.", "view.1.zz", &session[..session.len() - 2]]
        {
            assert_eq!(role(broken, began), None, "{broken}");
        }
        assert_eq!(key.role(b"\xff.\xff.\xff", began), None);
    }
}
