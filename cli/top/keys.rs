//! Keys, from the bytes that a terminal in raw mode sends: ASCII, and the escape sequences of xterm and
//! the Linux console. Sequences that mean no key here are left out.

const ESCAPE: u8 = 0x1b;
/// A longer escape sequence is discarded.
const SEQUENCE_MAX: usize = 16;

/// A key that the view may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Character(char),
    ControlC,
    Escape,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Bytes that are not decoded yet.
#[derive(Debug, Default)]
pub(super) struct Keys {
    unread: Vec<u8>,
}

impl Keys {
    /// Takes bytes from the terminal.
    pub(super) fn handle_bytes(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// The next key. If the terminal `is_quiet`, an incomplete sequence will not be completed, and a
    /// lone escape is the key of that name.
    pub(super) fn poll_key(&mut self, is_quiet: bool) -> Option<Key> {
        while let Some((key, length)) = first_key(&self.unread) {
            self.unread.drain(..length);
            if key.is_some() {
                return key;
            }
        }
        if !is_quiet {
            return None;
        }
        let rest = std::mem::take(&mut self.unread);
        (rest == [ESCAPE]).then_some(Key::Escape)
    }
}

/// The key that bytes begin with, if they mean one, and its length; nothing if more must come.
fn first_key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes {
        [] | [ESCAPE] | [ESCAPE, b'O'] => None,
        [ESCAPE, b'O', last, ..] => Some((named(&[], *last), 3)),
        [ESCAPE, b'[', rest @ ..] => match rest.iter().position(|byte| (0x40..0x7f).contains(byte))
        {
            Some(end) => Some((named(&rest[..end], rest[end]), end + 3)),
            None if bytes.len() > SEQUENCE_MAX => Some((None, bytes.len())),
            None => None,
        },
        [ESCAPE, ESCAPE, ..] => Some((Some(Key::Escape), 1)),
        [3, ..] => Some((Some(Key::ControlC), 1)),
        [letter @ b' '..=b'~', ..] => Some((Some(Key::Character((*letter).into())), 1)),
        // An escape before a letter means that it was pressed together with Alt: it has the same
        // meaning.
        _ => Some((None, 1)),
    }
}

/// The key of a sequence with these parameters and this last byte.
fn named(parameters: &[u8], last: u8) -> Option<Key> {
    Some(match (parameters, last) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"5", b'~') => Key::PageUp,
        (b"6", b'~') => Key::PageDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys of successive reads, followed by an empty one.
    fn keys(reads: &[&[u8]]) -> Vec<Key> {
        let (mut keys, mut found) = (Keys::default(), Vec::new());
        for bytes in reads {
            keys.handle_bytes(bytes);
            found.extend(std::iter::from_fn(|| keys.poll_key(false)));
        }
        found.extend(std::iter::from_fn(|| keys.poll_key(true)));
        found
    }

    #[test]
    fn terminals_name_keys_in_several_ways() {
        for (bytes, key) in [
            (&b"q"[..], Key::Character('q')),
            (b"\x03", Key::ControlC),
            (b"\x1b", Key::Escape),
            (b"\x1b[A", Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[1;5B", Key::Down),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1b[H", Key::Home),
            (b"\x1b[1~", Key::Home),
            (b"\x1bOF", Key::End),
            (b"\x1b[8~", Key::End),
            (b"\x1bx", Key::Character('x')),
        ] {
            assert_eq!(keys(&[bytes]), [key], "{bytes:?}");
        }
    }

    #[test]
    fn a_sequence_may_come_in_pieces() {
        assert_eq!(keys(&[b"\x1b", b"[", b"5", b"~q"]), [Key::PageUp, Key::Character('q')]);
        assert_eq!(keys(&[b"\x1b\x1b[A"]), [Key::Escape, Key::Up]);
        assert_eq!(keys(&[b"jj\x1b"]), [Key::Character('j'), Key::Character('j'), Key::Escape]);
    }

    #[test]
    fn what_means_nothing_is_left_out_and_never_piles_up() {
        assert_eq!(keys(&["é\x1b[200~\x1b[3~\x00\x7f".as_bytes(), b"\x1b[1;"]), []);
        let mut keys = Keys::default();
        for _ in 0..1000 {
            keys.handle_bytes(b"\x1b[0000000000");
            while keys.poll_key(false).is_some() {}
            assert!(keys.unread.len() <= SEQUENCE_MAX, "{}", keys.unread.len());
        }
        for first in 0..=255 {
            for second in 0..=255 {
                keys.handle_bytes(&[ESCAPE, first, second]);
                while keys.poll_key(true).is_some() {}
                assert!(keys.unread.is_empty(), "{first} {second}");
            }
        }
    }
}
