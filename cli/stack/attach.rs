//! `stack show`: inspects the stacks of running processes.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

use selvedge_cli_terminal::{Failure, signals};
use selvedge_node::control_server::{Process, StackRequest, processes, request};
use selvedge_units::Duration;

use super::ShowArgs;
use super::draw::DrawnBefore;
use super::tune::nobody;

/// How often `show` takes a snapshot.
const EVERY: Duration = Duration::from_secs(1);

fn query(pid: Option<u32>) -> Result<Vec<Process>, Failure> {
    let pids = match pid {
        Some(pid) => vec![pid],
        None => processes().map_err(Failure::failed)?,
    };
    let mut found = Vec::new();
    for pid in pids {
        let looked = request(pid, &StackRequest::Look).map_err(|error| {
            Failure::failed(format!("process {pid} does not say how its stacks do: {error}"))
        })?;
        found.extend(looked);
    }
    if found.is_empty() { Err(nobody(pid)) } else { Ok(found) }
}

/// `stack show`.
pub(super) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if args.json {
        let all = serde_json::to_string(&query(args.pid)?).map_err(Failure::failed)?;
        writeln!(out, "{all}")?;
        return Ok(out.flush()?);
    }
    let stop = signals::stop_flag()?;
    let (begun, mut drawn) = (Instant::now(), std::collections::BTreeMap::new());
    let over = || {
        let end = args.seconds.is_some_and(|seconds| begun.elapsed().as_secs() >= seconds);
        args.once || end || stop.load(Ordering::Relaxed)
    };
    let clear = if args.once || !out.is_terminal() { "" } else { "\x1b[H\x1b[2J" };
    loop {
        let all = query(args.pid)?;
        let mut text = String::from(clear);
        for Process { pid, command, endpoints, .. } in &all {
            let drawn: &mut DrawnBefore = drawn.entry(*pid).or_default();
            text += &format!("process {pid}: {}\n{}\n", plain(command), drawn.text(endpoints));
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        let next = Instant::now() + EVERY.to_std();
        while !over() && Instant::now() < next {
            std::thread::park_timeout(Duration::from_millis(20).into());
        }
        if over() {
            return Ok(());
        }
    }
}

/// A text from another process, made harmless for the terminal.
fn plain(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_debug).collect()
}
