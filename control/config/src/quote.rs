//! Text from a node file as messages show it: without logins, cut short and escaped.

use super::redacted;

/// A text from the file in quotes, cut to 48 characters, controls and quotes escaped, so that a
/// message stays one line and cannot steer a terminal.
#[must_use]
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", cut(text))
}

/// The same without the quotes around it.
pub(super) fn cut(text: &str) -> String {
    const MOST: usize = 48;
    let text = redacted(text);
    let mut shown: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST).is_some() {
        shown.push_str("...");
    }
    shown
}
