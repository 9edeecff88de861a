//! Keys of SRTP as an SDP states them: `a=crypto:` lines (RFC 4568), with the ciphers of RFC 3711 and RFC 6188.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Crypto suites by the names of SDP: cipher and authentication as GStreamer names them, bytes of key and salt.
const SUITES: [(&str, &str, &str, usize); 4] = [
    ("AES_CM_128_HMAC_SHA1_80", "aes-128-icm", "hmac-sha1-80", 30),
    ("AES_CM_128_HMAC_SHA1_32", "aes-128-icm", "hmac-sha1-32", 30),
    ("AES_256_CM_HMAC_SHA1_80", "aes-256-icm", "hmac-sha1-80", 46),
    ("AES_256_CM_HMAC_SHA1_32", "aes-256-icm", "hmac-sha1-32", 46),
];

/// The key of a sender, and how it seals packets. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SrtpKey {
    /// The cipher, as GStreamer names it.
    pub cipher: &'static str,
    /// The authentication, as GStreamer names it.
    pub auth: &'static str,
    /// Master key and master salt.
    pub bytes: Vec<u8>,
}

impl SrtpKey {
    /// Reads the text after `a=crypto:`; `None` for a suite or parameters that are not supported.
    pub(crate) fn parse(value: &str) -> Option<Self> {
        let mut words = value.split_ascii_whitespace().skip(1);
        let (name, key) = (words.next()?, words.next()?);
        let (_, cipher, auth, length) = SUITES.into_iter().find(|suite| suite.0 == name)?;
        let mut parts = key.strip_prefix("inline:")?.split('|');
        let bytes = BASE64_STANDARD.decode(parts.next()?).ok()?;
        // A part with a colon means that packets name their key. Other parameters change how packets
        // are sealed.
        let is_plain = parts.all(|part| !part.contains(':'));
        let is_alone = words.all(|parameter| parameter.starts_with("WSH="));
        (bytes.len() == length && is_plain && is_alone).then_some(Self { cipher, auth, bytes })
    }
}

impl fmt::Debug for SrtpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SrtpKey({} {})", self.cipher, self.auth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_known_suites_are_read_and_not_shown() {
        // RFC 4568, 6.1.
        let line =
            "1 AES_CM_128_HMAC_SHA1_80 inline:d0RmdmcmVCspeEc3QGZiNWpVLFJhQX1cfHAwJSoj|2^20 WSH=64";
        let key = SrtpKey::parse(line).unwrap();
        assert_eq!((key.cipher, key.auth, key.bytes.len()), ("aes-128-icm", "hmac-sha1-80", 30));
        assert_eq!(key.bytes[..3], *b"wDf");
        assert_eq!(format!("{key:?}"), "SrtpKey(aes-128-icm hmac-sha1-80)");
        let long = format!("1 AES_256_CM_HMAC_SHA1_80 inline:{}", BASE64_STANDARD.encode([7; 46]));
        assert_eq!(SrtpKey::parse(&long).unwrap().bytes, [7; 46]);
    }

    #[test]
    fn what_is_not_understood_is_no_key() {
        let key = "d0RmdmcmVCspeEc3QGZiNWpVLFJhQX1cfHAwJSoj";
        for line in [
            String::new(),
            format!("1 F8_128_HMAC_SHA1_80 inline:{key}"),
            format!("1 AES_256_CM_HMAC_SHA1_80 inline:{key}"),
            format!("1 AES_CM_128_HMAC_SHA1_80 inline:{key}|2^20|1:4"),
            format!("1 AES_CM_128_HMAC_SHA1_80 inline:{key};inline:{key}"),
            format!("1 AES_CM_128_HMAC_SHA1_80 inline:{key} UNAUTHENTICATED_SRTP"),
            "1 AES_CM_128_HMAC_SHA1_80 inline:!!!".to_owned(),
            format!("1 AES_CM_128_HMAC_SHA1_80 {key}"),
        ] {
            assert_eq!(SrtpKey::parse(&line), None, "{line}");
        }
    }
}
