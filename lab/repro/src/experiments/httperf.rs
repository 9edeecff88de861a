//! `httperf`: an open load of requests, each on a connection of its own, with a time limit.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::web_server::printed;
use crate::experiment::RunError;
use crate::plot::{Axis, Plot, Series};

/// What came back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replies {
    /// A second.
    pub(super) rate: f64,
    /// From the connection's beginning to its end, of those that were answered, ms.
    pub(super) time_ms: f64,
    /// Of the requests, the part that was answered in time.
    pub(super) share: f64,
}

/// Asks `rate` times a second for so long; a request that takes longer than a second is given up.
pub(super) fn load(port: u16, path: &str, rate: u32, seconds: u32) -> Result<Replies, RunError> {
    let missing = |why| RunError::Program { program: "httperf", package: "httperf", why };
    // It uses select, and ends itself when it gets a descriptor beyond what that can hold; with no
    // more it counts the request as not answered.
    let mut command = Command::new("prlimit");
    command
        .args(["--nofile=1020", "httperf"])
        .args(["--hog", "--server", "127.0.0.1", "--timeout", "1", "--num-calls", "1"])
        .args(["--close-with-reset", "--http-version", "1.0"])
        .args(["--add-header", "Accept-Encoding: gzip\\n"])
        .arg(format!("--port={port}"))
        .arg(format!("--uri={path}"))
        .arg(format!("--rate={rate}"))
        .arg(format!("--num-conns={}", rate * seconds))
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let most = Duration::from_secs(u64::from(seconds) + 60);
    let text = printed(&mut command, most).map_err(missing)?;
    parse(&text, rate * seconds)
        .ok_or_else(|| missing(std::io::Error::other("what it prints is not understood")))
}

/// Replies and response times against requests, of the lines that `of` draws of a figure.
pub(super) fn plots(of: impl Fn(fn(&Replies) -> f64) -> Vec<Series>) -> [Plot; 2] {
    let plot = |title: &str, unit: &str, figure: fn(&Replies) -> f64| Plot {
        title: format!("{title} against requests"),
        x: Axis::linear("requests/s"),
        y: Axis::linear(unit),
        series: of(figure),
    };
    [plot("Replies", "replies/s", |one| one.rate), plot("Response time", "ms", |one| one.time_ms)]
}

/// Its report: total counts, duration, and the time of connections.
fn parse(text: &str, wanted: u32) -> Option<Replies> {
    let after = |line: &str, word: &str| -> Option<f64> {
        let rest = line.split_once(word)?.1.trim_start();
        rest.split_whitespace().next()?.parse().ok()
    };
    let total = text.lines().find(|line| line.starts_with("Total:"))?;
    let replies = after(total, "replies")?;
    let duration = after(total, "test-duration")?;
    let times = text.lines().find(|line| line.starts_with("Connection time [ms]: min"));
    let time_ms = times.and_then(|line| after(line, "avg")).unwrap_or(0.0);
    let rate = if duration > 0.0 { replies / duration } else { 0.0 };
    Some(Replies { rate, time_ms, share: replies / f64::from(wanted.max(1)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let text = "\
httperf --client=0/1
Maximum connect burst length: 1

Total: connections 900 requests 880 replies 600 test-duration 3.000 s

Connection rate: 300.0 conn/s (3.3 ms/conn, <=4 concurrent connections)
Connection time [ms]: min 1.1 avg 12.5 max 90.0 median 8.5 stddev 9.0
Connection time [ms]: connect 0.2
";
        let replies = parse(text, 900).unwrap();
        assert_eq!((replies.rate, replies.time_ms), (200.0, 12.5));
        assert!((replies.share - 2.0 / 3.0).abs() < 1e-9);
        assert!(parse("", 1).is_none());
        assert!(parse("Total: connections x", 1).is_none());
    }
}
