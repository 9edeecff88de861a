//! Logs: from `tracing` to standard error.

use std::io::IsTerminal;

/// Logs go to standard error: warnings, or more with `-v`, or as `SELVEDGE_LOG` configures.
pub fn logging(verbose: u8) {
    // The library under events warns about problems that it repairs itself, such as a host that it
    // could not reach.
    let level = match verbose {
        0 => "warn,zenoh=error",
        1 => "info,zenoh=warn",
        _ => "debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_env("SELVEDGE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
