//! `selvedge events sub`: a channel's events as lines of JSON.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::{Args, ValueEnum};
use selvedge_cli_terminal::{Failure, signals};
use selvedge_comm_event::{NamedNotice, Participant, ParticipantName, Received};
use selvedge_control_code::Type;
use selvedge_control_event::{
    Format, NoticeKind, Overflow, SinkCounts, Subscription, Value as Attribute, Wake,
};
use selvedge_units::Duration;
use serde_json::{Map, Value, json};

use super::participant::{self, ParticipantArgs};
use crate::code::record;

/// The most members for which a warning is printed.
const WARNED_MAX: usize = 64;

#[derive(Debug, Args)]
pub(crate) struct SubArgs {
    /// The channel
    channel: String,
    #[command(flatten)]
    participant: ParticipantArgs,
    /// The channel's format (default: as others have it)
    #[arg(long, value_name = "FILE")]
    format: Option<PathBuf>,
    /// Only events that this handler in E-code lets pass
    #[arg(long, value_name = "FILE")]
    filter: Option<PathBuf>,
    /// How many events may wait to be printed
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=4096))]
    bound: u16,
    /// What happens when that many wait
    #[arg(long, value_enum, default_value_t = Full::DropOldest)]
    full: Full,
    /// End after this number of events
    #[arg(long)]
    count: Option<u64>,
    /// End after this number of seconds; without --format, with status 2 if nobody opened the channel by then
    #[arg(long)]
    seconds: Option<u64>,
    /// Print what happens to members, too, as {"notice": ...}
    #[arg(long)]
    notices: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Full {
    /// The oldest is dropped
    DropOldest,
    /// The new one is dropped
    DropNewest,
    /// Only the newest waits
    Latest,
    /// Reliable events wait at their source; others are dropped
    Block,
}

impl From<Full> for Overflow {
    fn from(full: Full) -> Self {
        match full {
            Full::DropOldest => Self::DropOldest,
            Full::DropNewest => Self::DropNewest,
            Full::Latest => Self::Latest,
            Full::Block => Self::Block,
        }
    }
}

pub(super) fn command(args: &SubArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let host = args.participant.start()?;
    let begin = Instant::now();
    let wait = args.seconds.map(Duration::from_secs);
    let format = participant::format(&host, &args.channel, args.format.as_deref(), wait, &stop)?;
    let Some(format) = format else { return Ok(()) };
    let joined = host.open(&args.channel, &format, Wake::All).map_err(Failure::input)?;
    let filter = args.filter.as_deref().map(|path| participant::filter(&joined, path));
    let filter = filter.transpose()?;
    let wish = Subscription { bound: args.bound.into(), overflow: args.full.into(), filter };
    let notices = host.notices();
    let mut sink = joined.subscribe(wish).map_err(Failure::failed)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (mut event, mut count) = (Received::default(), 0);
    let is_over = |count: u64| {
        stop.load(Ordering::SeqCst)
            || args.count.is_some_and(|most| count >= most)
            || args
                .seconds
                .is_some_and(|most| begin.elapsed() >= Duration::from_secs(most).to_std())
    };
    let mut warned = HashSet::new();
    while !is_over(count) {
        while let Some(notice) = notices.take(Duration::ZERO) {
            if args.notices {
                writeln!(out, "{}", notice_json(&notice))?;
            } else {
                warn_once(&notice, &args.channel, &mut warned);
            }
        }
        let came = sink.try_take_into(&mut event) || {
            out.flush()?;
            sink.take_into(&mut event, Some(Duration::from_millis(100)))
        };
        if came {
            count += 1;
            writeln!(out, "{}", line(&host, &format, &event))?;
        }
    }
    out.flush()?;
    let SinkCounts { expired, overflowed, faulted, .. } = sink.sink_counts();
    let dropped = expired + overflowed + faulted;
    if dropped > 0 {
        eprintln!(
            "selvedge: {dropped} events were not printed: {expired} expired, {overflowed} found no \
             room, on {faulted} the filter failed"
        );
    }
    let missed = host.rings().missed + host.dropped().0;
    if missed > 0 {
        eprintln!(
            "selvedge: {missed} messages of others were lost before: this program was behind; have them \
             sent reliably"
        );
    }
    Ok(())
}

fn line(host: &Participant, format: &Format, event: &Received) -> Value {
    let attributes = event.attributes().iter().map(|(name, value)| {
        let value = match value {
            Attribute::Long(number) => json!(number),
            Attribute::Double(number) => json!(number),
            Attribute::Text(text) => json!(text),
        };
        (name.to_owned(), value)
    });
    let attributes: Map<String, Value> = attributes.collect();
    let record = record::read(&Type::Struct(format.layout().clone()), &event.record);
    let left = event.deadline.map(|deadline| deadline.since(host.now()).0);
    json!({
        "sequence": event.sequence,
        "left_ns": left,
        "attributes": attributes,
        "event": record,
    })
}

/// Warns, once for each member, that its events are not printed in the present situation.
fn warn_once(notice: &NamedNotice, channel: &str, warned: &mut HashSet<Option<ParticipantName>>) {
    let why = match &notice.kind {
        NoticeKind::Unreadable(why) => format!("its format does not fit: {why}; see --format"),
        NoticeKind::Refused(right) => {
            format!(
                "it may not {}; see [[member]] in the settings",
                format!("{right:?}").to_lowercase()
            )
        }
        _ => return,
    };
    let of_channel = notice.channel.is_empty() || notice.channel == channel;
    if of_channel && warned.len() < WARNED_MAX && warned.insert(notice.host.clone()) {
        let host = notice.host.as_ref().map_or_else(|| "a member".to_owned(), ToString::to_string);
        eprintln!("selvedge: events of {host} are not printed: {why}");
    }
}

fn notice_json(notice: &NamedNotice) -> Value {
    let (what, events) = match &notice.kind {
        NoticeKind::Joined => ("joined".to_owned(), None),
        NoticeKind::Left => ("left".to_owned(), None),
        NoticeKind::Lost => ("lost".to_owned(), None),
        NoticeKind::Unreadable(why) => (format!("unreadable: {why}"), None),
        NoticeKind::Refused(right) => (format!("refused: {right:?}").to_lowercase(), None),
        NoticeKind::Undelivered(events) => ("undelivered".to_owned(), Some(*events)),
        NoticeKind::Missed(events) => ("missed".to_owned(), Some(*events)),
    };
    let host = notice.host.as_ref().map(ToString::to_string);
    json!({ "notice": what, "host": host, "events": events })
}
