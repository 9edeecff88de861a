//! Connections with their modules and elements, once a second.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use selvedge_host_stack::endpoint::{ConnectError, Connection, Endpoint, Options, RecvError};
use selvedge_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_stack::stack::SendError;
use selvedge_units::{Bytes, Span};

use super::{ListenArgs, ShowArgs, parsed};
use crate::cli::Failure;
use crate::signals;
use crate::table::{Align, Table};

const SECOND: Duration = Duration::from_secs(1);

fn bound(at: SocketAddr, elements: u8) -> Result<Endpoint, Failure> {
    let options = Options { elements, ..Options::default() };
    Endpoint::bind(at, options).map_err(Failure::failed)
}

/// One connection: its modules, who serves them each way, what waits.
fn draw(out: &mut impl Write, connection: &Connection, line: &str) -> Result<(), Failure> {
    writeln!(out, "{}  {line}", connection.peer())?;
    let mut table = Table::new(&[
        ("  module", Align::Left),
        ("down", Align::Left),
        ("up", Align::Left),
        ("waiting", Align::Right),
    ]);
    for (module, down, up, (out, back)) in connection.show() {
        table.row([format!("  {module}"), down, up, format!("{out}/{back}")]);
    }
    write!(out, "{table}")?;
    Ok(out.flush()?)
}

pub(super) fn listen(args: &ListenArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let endpoint = bound(args.at, args.elements)?;
    let at = endpoint.address();
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on {at}, {} elements", args.elements)?;
    out.flush()?;
    let end = args.seconds.map(|seconds| Instant::now() + SECOND * seconds as u32);
    let (mut open, mut shown): (Vec<(Connection, u64, u64)>, _) = (Vec::new(), Instant::now());
    let mut message = Vec::new();
    while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        let patience = if open.is_empty() { Duration::from_millis(50) } else { Duration::ZERO };
        if let Some(connection) = endpoint.accept(patience) {
            open.push((connection, 0, 0));
        }
        let mut over = Vec::new();
        for (n, (connection, messages, bytes)) in open.iter_mut().enumerate() {
            for turn in 0..256 {
                let patience = Duration::from_millis(u64::from(turn == 0));
                match connection.recv(&mut message, patience) {
                    Ok(()) => (*messages, *bytes) = (*messages + 1, *bytes + message.len() as u64),
                    Err(RecvError::Timeout) => break,
                    Err(why) => {
                        over.push((n, why));
                        break;
                    }
                }
            }
        }
        for (n, why) in over.into_iter().rev() {
            writeln!(out, "{}  {why}", open.remove(n).0.peer())?;
        }
        let passed = shown.elapsed();
        if passed >= SECOND {
            shown = Instant::now();
            for (connection, messages, bytes) in &mut open {
                let rate = Bytes(std::mem::take(bytes)) / Span(passed.as_nanos() as u64);
                let count = std::mem::take(messages);
                draw(
                    &mut out,
                    connection,
                    &format!("{count} messages/s, {:.3} Mbit/s", rate.0 as f64 / 1e6),
                )?;
            }
        }
    }
    Ok(())
}

fn quantity<T: FromStr<Err: Display>>(option: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error| Failure::input(format!("{option} \"{text}\": {error}")))
}

pub(super) fn send(args: &ShowArgs) -> Result<(), Failure> {
    let stack = parsed(&args.stack)?;
    let (every, size): (Span, Bytes) =
        (quantity("--every", &args.every)?, quantity("--size", &args.size)?);
    let delay: Span = quantity("--delay", &args.delay)?;
    let promise = if args.firm { Promise::Firm } else { Promise::Wanted };
    let quality = Quality { delay, loss_burst: 0, promise };
    let out_contract = Contract { traffic: Traffic::steady(every, size), quality };
    let contract = out_contract.check().map_err(Failure::input)?;
    let back = Contract {
        traffic: Traffic::steady(Span::from_secs(1), Bytes(1000)),
        quality: Quality { delay: Span::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    };
    let any = if args.peer.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let endpoint = bound(quantity("address", any)?, args.elements)?;
    let connection = endpoint.connect(args.peer, &stack.to_string(), contract, back).map_err(
        |error| match error {
            ConnectError::Stack { .. } => Failure::input(error),
            _ => Failure::failed(error),
        },
    )?;
    let mut out = std::io::stdout().lock();
    if let [Some(granted), _] = connection.granted() {
        let guarantee = granted.guarantee;
        writeln!(
            out,
            "granted here: a message leaves each {} at worst, {} on this host at worst{}",
            guarantee.departures,
            guarantee.latency,
            if guarantee.delay_kept { "" } else { "; the delay is not kept" }
        )?;
    }
    let stop = signals::stop_flag()?;
    let (start, mut shown, mut sent) = (Instant::now(), Instant::now(), 0_u64);
    let (mut before, message) = (0, vec![0x5a; size.0 as usize]);
    while start.elapsed() < SECOND * args.seconds as u32 && !stop.load(Ordering::Relaxed) {
        let due = Duration::from_nanos(every.0.saturating_mul(sent));
        if let Some(wait) = due.checked_sub(start.elapsed()) {
            std::thread::park_timeout(wait.min(Duration::from_millis(50)));
        } else {
            match connection.send(&message, SECOND) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => {}
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        if shown.elapsed() >= SECOND {
            shown = Instant::now();
            draw(&mut out, &connection, &format!("{} messages/s sent", sent - before))?;
            before = sent;
        }
    }
    let flushed = connection.flush(SECOND * 5);
    writeln!(
        out,
        "sent {sent} messages{}",
        if flushed { "" } else { "; not all are known to have arrived" }
    )?;
    Ok(out.flush()?)
}
