//! Sends and receives messages to try stacks, and prints a snapshot once a second.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use selvedge_cli_terminal::{Failure, signals};
use selvedge_comm_stack::endpoint::{BindError, ConnectError, Connection, Endpoint, RecvError};
use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stack::module::Direction;
use selvedge_data_stack::stack::SendError;
use selvedge_node::PeersWatch;
use selvedge_node::control_server::StackControlServer;
use selvedge_os::clock::Clock;
use selvedge_units::{Bytes, Duration};

use super::draw::DrawnBefore;
use super::{EndArgs, ListenArgs, SendArgs, parsed};

const SECOND: Duration = Duration::from_secs(1);

/// An endpoint that other processes can inspect.
fn bound(
    at: SocketAddr,
    end: &EndArgs,
    what: &str,
) -> Result<(Arc<Endpoint>, StackControlServer, PeersWatch), Failure> {
    let (options, watch) = end.identity.read(end.options())?;
    let bound = Endpoint::bind(at, options).map_err(|error| match error {
        BindError::Reservation(_) => Failure::input(error),
        _ => Failure::failed(error),
    });
    let endpoint = Arc::new(bound?);
    let seen = Arc::clone(&endpoint);
    Ok((endpoint, StackControlServer::open(what, move |each| each(&seen)), watch))
}

pub(super) fn listen(args: &ListenArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let (endpoint, _control_server, mut watch) = bound(args.at, &args.end, "stack listen")?;
    let at = endpoint.address();
    let mut out = std::io::stdout().lock();
    let sealed = if endpoint.view().encrypted { "encrypted" } else { "not encrypted" };
    writeln!(out, "listening on {at}, {} elements, {sealed}", args.end.elements)?;
    let clock = Clock::new();
    out.flush()?;
    let end = args.seconds.map(|seconds| Instant::now() + (SECOND * seconds).to_std());
    let (mut open, mut shown): (Vec<Connection>, _) = (Vec::new(), Instant::now());
    let (mut message, mut drawn) = (Vec::new(), DrawnBefore::default());
    while !stop.load(Ordering::Relaxed) && end.is_none_or(|end| Instant::now() < end) {
        let patience = if open.is_empty() { Duration::from_millis(50) } else { Duration::ZERO };
        if let Some(connection) = endpoint.accept(patience) {
            open.push(connection);
        }
        if let Some(peers) = watch.poll(clock.now()) {
            endpoint.allow(&peers);
        }
        let mut over = Vec::new();
        for (n, connection) in open.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            for (way, event) in connection.events() {
                writeln!(out, "{}  event: {} {event}", connection.peer(), side(way))?;
            }
            for turn in 0..256 {
                let patience = Duration::from_millis(u64::from(turn == 0));
                match connection.recv(&mut message, patience) {
                    Ok(()) => {}
                    Err(RecvError::Timeout) => break,
                    Err(why) => {
                        over.push((n, why));
                        break;
                    }
                }
            }
        }
        for (n, why) in over.into_iter().rev() {
            writeln!(out, "{}  {why}", open.remove(n).peer())?;
        }
        if shown.elapsed() >= SECOND.to_std() {
            shown = Instant::now();
            write!(out, "{}", drawn.text(&[endpoint.view()]))?;
            out.flush()?;
        }
    }
    Connection::close_all(open);
    Ok(())
}

/// Which stream of its connection an event is about.
const fn side(way: Direction) -> &'static str {
    match way {
        Direction::Down => "of what is sent:",
        Direction::Up => "of what is received:",
    }
}

/// The current sending schedule.
struct Schedule {
    every: Duration,
    size: Bytes,
    /// Messages sent since it began.
    sent: u64,
    started_at: Instant,
}

type ScheduleChange = (Duration, Option<Duration>, Option<Bytes>);

impl SendArgs {
    /// When sending departs from the contract, and how.
    fn schedule_change(&self) -> Result<Option<ScheduleChange>, Failure> {
        let Some(after) = self.then_after else { return Ok(None) };
        let (every, size) = (self.then_every, self.then_size);
        if every == Some(Duration::ZERO)
            || size.is_some_and(|Bytes(size)| size == 0 || size > 1 << 20)
        {
            return Err(Failure::input("--then-every above 0, and --then-size of 1 B to 1 MiB"));
        }
        Ok(Some((after, every, size)))
    }
}

pub(super) fn send(args: &SendArgs) -> Result<(), Failure> {
    let stack = parsed(&args.stack)?;
    let SendArgs { every, size, delay, .. } = *args;
    let promise = if args.firm { Promise::Firm } else { Promise::Wanted };
    let quality = Quality { delay, loss_burst: args.loss_burst, promise };
    let traffic = Traffic {
        average: every,
        minimum: args.minimum.unwrap_or(every),
        interval: args.interval.unwrap_or(every),
        largest: size,
    };
    let out_contract = Contract { traffic, quality };
    let contract = out_contract.check().map_err(Failure::input)?;
    let back = Contract {
        traffic: Traffic::steady(Duration::from_secs(1), Bytes(1000)),
        quality: Quality { delay: Duration::from_secs(1), loss_burst: 0, promise: Promise::Wanted },
    };
    let any: IpAddr = match args.peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let (endpoint, _control_server, _) = bound((any, 0).into(), &args.end, "stack send")?;
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
            "{} here: a message leaves each {} at worst, {} on this host and {} on the other and \
             in the network at worst{}",
            if endpoint.view().reservation.is_some() { "granted" } else { "estimated" },
            guarantee.departure_interval,
            guarantee.latency,
            granted.remote_delay,
            if guarantee.delay_kept { "" } else { "; the delay is not kept" }
        )?;
    }
    let stop = signals::stop_flag()?;
    let (start, mut shown, mut sent) = (Instant::now(), Instant::now(), 0_u64);
    let (mut drawn, mut message) = (DrawnBefore::default(), vec![0x5a; size.0 as usize]);
    let mut refused = 0_u64;
    let mut schedule = Schedule { every, size, sent: 0, started_at: start };
    let mut schedule_change = args.schedule_change()?;
    while start.elapsed() < (SECOND * args.seconds).to_std() && !stop.load(Ordering::Relaxed) {
        if let Some((_, every, size)) =
            schedule_change.take_if(|(after, ..)| start.elapsed() >= after.to_std())
        {
            let (every, size) = (every.unwrap_or(schedule.every), size.unwrap_or(schedule.size));
            let traffic = Traffic::steady(every, size);
            let agreed = match args.then_agreed {
                true => {
                    connection.renegotiate(Direction::Down, Contract { traffic, quality }).map(Some)
                }
                false => Ok(None),
            };
            match agreed {
                Ok(guarantee) => {
                    schedule = Schedule { every, size, sent: 0, started_at: Instant::now() };
                    message = vec![0x5a; size.0 as usize];
                    let agreed = guarantee.map(|guarantee| {
                        format!(", as agreed: {} on this host at worst", guarantee.latency)
                    });
                    writeln!(out, "from now on {size} each {every}{}", agreed.unwrap_or_default())?;
                }
                Err(why) => writeln!(out, "goes on as before: {why}")?,
            }
        }
        for (way, event) in connection.events() {
            writeln!(out, "event: {} {event}", side(way))?;
        }
        let due = Duration::from_nanos(schedule.every.0.saturating_mul(schedule.sent));
        let wait = due - schedule.started_at.elapsed().into();
        if wait > Duration::ZERO {
            std::thread::park_timeout(wait.min(Duration::from_millis(50)).into());
        } else {
            match connection.send(&message, SECOND) {
                Ok(()) => (sent, schedule.sent) = (sent + 1, schedule.sent + 1),
                Err(SendError::Full) => {}
                // Policed: the first refusal is printed, and the next message may conform.
                Err(error @ SendError::BeyondContract { .. }) => {
                    schedule.sent += 1;
                    refused += 1;
                    if refused == 1 {
                        writeln!(out, "{error}")?;
                    }
                }
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        if shown.elapsed() >= SECOND.to_std() {
            shown = Instant::now();
            write!(out, "{}", drawn.text(&[endpoint.view()]))?;
            out.flush()?;
        }
    }
    let flushed = connection.flush(SECOND * 5);
    writeln!(out, "sent {sent} messages")?;
    if refused > 0 {
        writeln!(out, "{refused} were not sent, being larger than the contract allows")?;
    }
    out.flush()?;
    if flushed {
        return Ok(());
    }
    let why = format!("not all are known to have arrived at {}; is it still there?", args.peer);
    Err(Failure::failed(why))
}
