//! `selvedge events pub`: events from lines of JSON, or one again and again.

use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Instant;

use clap::Args;
use selvedge_cli_terminal::{Failure, signals};
use selvedge_comm_event::{ChannelHandle, Participant};
use selvedge_control_event::{
    AttributeError, AttributesBuf, Event, Format, PublishError, Value as Attribute, View, Wake,
};
use selvedge_units::Duration;
use serde_json::Value;

use super::participant::{self, ParticipantArgs};
use crate::code::record::{self, RecordError};

/// The longest line.
const LINE_MAX: u64 = 1 << 20;
/// How long to wait until members have taken the events that were promised to them.
const TAKEN: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(crate) struct PubArgs {
    /// The channel
    channel: String,
    #[command(flatten)]
    participant: ParticipantArgs,
    /// The channel's format (default: as others have it)
    #[arg(long, value_name = "FILE")]
    format: Option<PathBuf>,
    /// Choose hosts for each event by this handler in E-code
    #[arg(long, value_name = "FILE")]
    filter: Option<PathBuf>,
    /// Send this event again and again, not what standard input has
    #[arg(long, value_name = "JSON")]
    event: Option<String>,
    /// So many events a second (default: as lines come; with --event, one)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// End after this number of events
    #[arg(long)]
    count: Option<u64>,
    /// End after this number of seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// How long an event is of use after it was sent
    #[arg(long, value_name = "TIME", value_parser = participant::span)]
    deadline: Option<Duration>,
    /// Keep events until each member has taken them
    #[arg(long)]
    reliable: bool,
    /// Wait for this number of subscribed hosts before the first event is sent
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=128))]
    members: u16,
    /// How long to wait for them
    #[arg(long, default_value = "3 s", value_parser = participant::span)]
    wait: Duration,
}

pub(super) fn command(args: &PubArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let host = args.participant.start()?;
    let wait = args.wait;
    let format =
        participant::format(&host, &args.channel, args.format.as_deref(), Some(wait), &stop)?;
    let Some(format) = format else { return Ok(()) };
    let joined = host.open(&args.channel, &format, Wake::All).map_err(Failure::input)?;
    if let Some(path) = &args.filter {
        joined.set_out_filter(Some(participant::filter(&joined, path)?));
    }
    let fixed = args.event.as_deref().map(|text| Parsed::new(&format, text)).transpose();
    let fixed = fixed.map_err(|why| Failure::input(format!("--event: {why}")))?;
    let (there, wanted) = wait_for_hosts(&joined, args.members.into(), wait, &stop);
    if there < wanted {
        let channel = &args.channel;
        eprintln!("selvedge: {there} of {wanted} hosts want events of \"{channel}\" so far");
    }
    let source = Source { host: &host, joined: &joined, args, stop: &stop, begin: Instant::now() };
    let sent = match fixed {
        Some(event) => source.repeat(&event),
        None => source.lines(&format),
    };
    let count = sent?;
    tracing::info!(count, "events sent");
    finish(&joined, &stop)
}

/// Waits for this number of hosts that want events; returns how many there are, and how many were
/// wanted.
fn wait_for_hosts(
    joined: &ChannelHandle,
    wanted: usize,
    wait: Duration,
    stop: &AtomicBool,
) -> (usize, usize) {
    let begin = Instant::now();
    loop {
        let there = joined.view(|view| view.members.iter().filter(|one| one.wants).count());
        let there = there.unwrap_or(0);
        if there >= wanted || begin.elapsed() >= wait.to_std() || stop.load(Ordering::SeqCst) {
            return (there, wanted);
        }
        std::thread::park_timeout(Duration::from_millis(5).into());
    }
}

/// Waits until members have taken the events that were promised to them, and sent ones are on their
/// way. Fails if a present member did not get all of them.
fn finish(joined: &ChannelHandle, stop: &AtomicBool) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < TAKEN.to_std() && !stop.load(Ordering::SeqCst) {
        if joined.view(|view| view.held) == Some(0) {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(5).into());
    }
    // The events that each present member did not get.
    let missing = |view: &View<'_>| -> Vec<u64> {
        let each = view.members.iter().map(|member| member.dropped + member.owed);
        each.filter(|missing| *missing > 0).collect()
    };
    let (missing, held) = joined.view(|view| (missing(view), view.held)).unwrap_or_default();
    if !missing.is_empty() {
        let (events, members) = (missing.iter().sum::<u64>(), missing.len());
        return Err(Failure::failed(format!(
            "{events} reliable events are lost: {members} members that are there acknowledged them too late"
        )));
    }
    if held > 0 {
        eprintln!("selvedge: {held} events were not taken by members that are gone");
    }
    Ok(())
}

/// Why a text is not an event of the channel.
#[derive(Debug, thiserror::Error)]
enum EventError {
    /// It is not JSON, or not a record of the channel's format.
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("attributes.{0} is no number and no text")]
    Attribute(String),
    #[error("attributes.{name}: {error}")]
    Attributes { name: String, error: AttributeError },
}

/// Why standard input delivered no line.
#[derive(Debug, thiserror::Error)]
enum LineError {
    #[error(transparent)]
    Input(#[from] std::io::Error),
    #[error("a line is longer than {LINE_MAX} bytes")]
    TooLong,
}

/// An event as it was written.
struct Parsed {
    record: Vec<u8>,
    attributes: AttributesBuf,
}

impl Parsed {
    fn new(format: &Format, text: &str) -> Result<Self, EventError> {
        let value: Value = serde_json::from_str(text).map_err(RecordError::from)?;
        let mut attributes = AttributesBuf::default();
        let is_wrapped = |value: &Value| {
            let keys = value.as_object().map(|all| all.keys().map(String::as_str).collect());
            let keys: Vec<&str> = keys.unwrap_or_default();
            keys.contains(&"event") && format.layout().member("event").is_none()
        };
        let event = if is_wrapped(&value) {
            let given = value["attributes"].as_object().cloned().unwrap_or_default();
            for (name, value) in &given {
                let value = match value {
                    Value::Number(number) => match number.as_i64() {
                        Some(number) => Attribute::Long(number),
                        None => Attribute::Double(number.as_f64().unwrap_or(0.0)),
                    },
                    Value::String(text) => Attribute::Text(text),
                    _ => return Err(EventError::Attribute(name.clone())),
                };
                attributes
                    .add(name, value)
                    .map_err(|error| EventError::Attributes { name: name.clone(), error })?;
            }
            &value["event"]
        } else {
            &value
        };
        let mut record = vec![0; format.size()];
        record::members(format.layout(), &mut record, event, "event")?;
        Ok(Self { record, attributes })
    }
}

struct Source<'a> {
    host: &'a Participant,
    joined: &'a ChannelHandle,
    args: &'a PubArgs,
    stop: &'a AtomicBool,
    begin: Instant,
}

impl Source<'_> {
    fn is_over(&self, count: u64) -> bool {
        self.stop.load(Ordering::SeqCst)
            || self.args.count.is_some_and(|most| count >= most)
            || self.args.seconds.is_some_and(|most| self.begin.elapsed().as_secs() >= most)
    }

    /// Sends an event; waits while a sink in this process has no room.
    fn send(&self, event: &Parsed) -> Result<(), Failure> {
        while !self.stop.load(Ordering::SeqCst) {
            let deadline = self.args.deadline.map(|span| self.host.now() + span);
            let attributes = event.attributes.as_attributes();
            let sent = Event { deadline, attributes, record: &event.record };
            let done = if self.args.reliable {
                // No member may miss any: waits for slow members, and checks for signals now and then.
                self.joined.publish_paced(sent, Some(Duration::from_millis(100)))
            } else {
                self.joined.publish(sent)
            };
            match done {
                Ok(_) => return Ok(()),
                Err(PublishError::Behind) => {}
                Err(PublishError::Blocked(_)) => {
                    std::thread::park_timeout(Duration::from_millis(1).into())
                }
                Err(error) => return Err(Failure::failed(error)),
            }
        }
        Ok(())
    }

    /// Waits until it is time for an event.
    fn pace(&self, count: u64) {
        let Some(rate) = self.args.rate.or_else(|| self.args.event.as_ref().map(|_| 1)) else {
            return;
        };
        let at =
            Duration::from_nanos((u128::from(count) * 1_000_000_000 / u128::from(rate)) as u64);
        while !self.stop.load(Ordering::SeqCst) {
            let left = at - self.begin.elapsed().into();
            if left == Duration::ZERO {
                return;
            }
            std::thread::park_timeout(left.min(Duration::from_millis(100)).into());
        }
    }

    fn repeat(&self, event: &Parsed) -> Result<u64, Failure> {
        let mut count = 0;
        while !self.is_over(count) {
            self.pace(count);
            if self.is_over(count) {
                break;
            }
            self.send(event)?;
            count += 1;
        }
        Ok(count)
    }

    fn lines(&self, format: &Format) -> Result<u64, Failure> {
        let lines = read_lines();
        let (mut count, mut number) = (0, 0);
        while !self.is_over(count) {
            let line = match lines.recv_timeout(Duration::from_millis(100).into()) {
                Ok(line) => line.map_err(|why| Failure::input(format!("standard input: {why}")))?,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            number += 1;
            if line.trim().is_empty() {
                continue;
            }
            let event = Parsed::new(format, &line);
            let event =
                event.map_err(|why| Failure::input(format!("standard input:{number}: {why}")))?;
            self.pace(count);
            self.send(&event)?;
            count += 1;
        }
        Ok(count)
    }
}

/// Lines of standard input, from a thread of their own, since reading can't be interrupted.
fn read_lines() -> Receiver<Result<String, LineError>> {
    let (sender, receiver) = sync_channel(64);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        loop {
            let mut line = String::new();
            let read = input.by_ref().take(LINE_MAX + 1).read_line(&mut line);
            let line = match read {
                Ok(0) => return,
                Ok(size) if size as u64 > LINE_MAX => Err(LineError::TooLong),
                Ok(_) => Ok(line),
                Err(error) => Err(error.into()),
            };
            let is_last = line.is_err();
            if sender.send(line).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}
