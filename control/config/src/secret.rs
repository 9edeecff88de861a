//! Keeps logins out of printed text: addresses and launch lines from node files pass here on their way
//! to logs, errors, the page, metrics and JSON.

/// Options whose values are secret, as they end before the `=`.
#[rustfmt::skip]
const SECRET: [&str; 11] = [
    "user", "user-id", "username", "password", "passwd", "passphrase", "streamid", "pwd", "pw", "token", "key",
];
/// Printed in their place.
const HIDDEN: &str = "***";

/// The text without logins: those between `://` and `@`, and the values of options such as `password=`
/// and `passphrase=`. A value that has been hidden once stays as it is. Linear in the text.
#[must_use]
pub fn redacted(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['=', ':']) {
        let (before, behind) = rest.split_at(at);
        let is_secret = behind.starts_with('=') && names_secret(before);
        let opening = if behind.starts_with("://") { 3 } else { 1 };
        shown.push_str(before);
        shown.push_str(&behind[..opening]);
        rest = &behind[opening..];
        let word = &rest[..rest.find(ends_word).unwrap_or(rest.len())];
        let hidden = match opening {
            3 => word.rfind('@'),
            _ if is_secret => Some(word.find('&').unwrap_or(word.len())),
            _ => None,
        };
        if let Some(hidden) = hidden {
            shown.push_str(HIDDEN);
            rest = &rest[hidden..];
        }
    }
    shown + rest
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || "\"'!<>".contains(c)
}

/// Whether the text ends in the name of an option with a secret value.
fn names_secret(text: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name = text.rsplit(|c: char| !is_name(c)).next().unwrap_or_default();
    SECRET.iter().any(|secret| {
        let end = name.len().checked_sub(secret.len()).and_then(|at| name.get(at..));
        end.is_some_and(|end| end.eq_ignore_ascii_case(secret))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn logins_are_hidden_and_the_rest_is_not() {
        for (text, shown) in [
            ("rtsp://cam.example/1?channel=2", "rtsp://cam.example/1?channel=2"),
            ("rtsp://me:word@cam.example/1", "rtsp://***@cam.example/1"),
            ("rtsp://me:w/o@r@d@10.0.0.1:554/1", "rtsp://***@10.0.0.1:554/1"),
            ("can't open rtsp://me:word@cam!", "can't open rtsp://***@cam!"),
            ("rtsp://cam/user=me&password=word&c=1", "rtsp://cam/user=***&password=***&c=1"),
            ("srt://a:1?passphrase=long&mode=caller", "srt://a:1?passphrase=***&mode=caller"),
            ("rtspsrc user-pw=word ! h264parse", "rtspsrc user-pw=*** ! h264parse"),
            ("Location=\"rtsp://a:b@c\" ! x", "Location=\"rtsp://***@c\" ! x"),
            ("x264enc key-int-max=30 pass=5", "x264enc key-int-max=30 pass=5"),
        ] {
            assert_eq!(redacted(text), shown);
        }
    }

    proptest! {
        #[test]
        fn what_is_hidden_stays_so(text in "([a-z]{0,4}|pw=|://|@|&| ){0,12}") {
            let once = redacted(&text);
            prop_assert_eq!(redacted(&once), once.clone());
        }

        #[test]
        fn no_login_is_left(login in "[a-z0-9:/@%.]{1,12}", rest in "[a-z0-9/.]{0,12}") {
            let shown = redacted(&format!("rtsp://LOGIN{login}@host/{rest}"));
            prop_assert_eq!(shown, format!("rtsp://***@host/{rest}"));
        }
    }
}
