//! Opens the page in the user's browser, if there is a user and a screen. Errors do not matter to the
//! demo, which has printed the page's address.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

/// The program that opens an address with the user's preferred browser (freedesktop.org's xdg-utils).
const OPENER: &str = "xdg-open";

/// Opens the page if standard output is a terminal of a graphical session. Returns at once.
pub(super) fn open(page: &str) {
    let screen = ["DISPLAY", "WAYLAND_DISPLAY"].map(std::env::var_os);
    if !is_seen(std::io::stdout().is_terminal(), &screen) {
        return;
    }
    let mut command = Command::new(OPENER);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // A process group of its own: Ctrl-C ends the demo and not the browser.
    command.process_group(0);
    // Some openers last as long as the browser; a thread waits for it, so that no zombie remains.
    let waiter = thread::Builder::new().name("browser".into()).spawn(move || {
        if let Err(error) = command.status() {
            tracing::debug!(%error, "{OPENER} can't be started");
        }
    });
    if let Err(error) = waiter {
        tracing::debug!(%error, "no thread to open the page");
    }
}

/// Whether a browser would be seen: at a terminal, with the name of an X or Wayland display.
fn is_seen(terminal: bool, displays: &[Option<impl AsRef<OsStr>>]) -> bool {
    terminal && displays.iter().flatten().any(|name| !name.as_ref().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_needs_somebody_who_looks_and_a_screen() {
        assert!(is_seen(true, &[Some(":0"), None]));
        assert!(is_seen(true, &[Some(""), Some("wayland-0")]));
        assert!(!is_seen(false, &[Some(":0"), None]));
        assert!(!is_seen(true, &[None::<&str>, None]));
        assert!(!is_seen(true, &[Some(""), None]));
    }
}
