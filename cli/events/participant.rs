//! How a command takes part: the common options, and a channel's format, from a file or from the
//! members that have the channel open.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use selvedge_cli_terminal::{Failure, input};
use selvedge_comm_event::{Address, ChannelHandle, Listing, Participant, Settings, StartError};
use selvedge_control_event::{CHANNEL_NAME_MAX, Filter, Format, OpenError};
use selvedge_units::Duration;

use crate::time::{self, TimeError};

/// The longest file that is read.
const FILE_MAX: u64 = 1 << 20;
/// How long present hosts take to answer.
const ANSWER: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(crate) struct ParticipantArgs {
    /// Connect to a host; again for more
    #[arg(long, value_name = "HOST:PORT")]
    connect: Vec<Address>,
    /// Listen here (default: the loopback, any free port); again for more
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<Address>,
    /// Look for other hosts by multicast
    #[arg(long)]
    scout: bool,
    /// A settings file: names, TLS, who may do what; see docs/events.md
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// This host's name (default: the settings', or the machine's)
    #[arg(long)]
    name: Option<String>,
}

impl ParticipantArgs {
    /// Starts.
    pub(crate) fn start(&self) -> Result<Participant, Failure> {
        let mut settings = match &self.config {
            Some(path) => Settings::read(path).map_err(Failure::input)?,
            None => Settings::default(),
        };
        settings.connect.extend(self.connect.iter().cloned());
        if !self.listen.is_empty() {
            settings.listen.clone_from(&self.listen);
        }
        settings.scout |= self.scout;
        if let Some(name) = &self.name {
            settings.name = Some(name.clone());
        }
        Participant::start(&settings).map_err(|error| match error {
            StartError::Name(_) => Failure::input(error),
            _ => Failure::failed(error),
        })
    }
}

/// Waits until the reachable hosts have been found: none appeared for a while, or the time is over.
pub(crate) fn settle(host: &Participant, wait: Duration, stop: &AtomicBool) {
    let begin = Instant::now();
    let (mut count, mut since) = (0, begin);
    while begin.elapsed() < wait.to_std() && !stop.load(Ordering::SeqCst) {
        let now = host.hosts().len();
        if now != count {
            (count, since) = (now, Instant::now());
        }
        if count > 0 && since.elapsed() > wait.to_std() / 4 {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10).into());
    }
}

/// A channel's format: from a file, or from other members, for which it waits.
pub(crate) fn format(
    host: &Participant,
    channel: &str,
    file: Option<&Path>,
    wait: Option<Duration>,
    stop: &AtomicBool,
) -> Result<Option<Format>, Failure> {
    if !(1..=CHANNEL_NAME_MAX).contains(&channel.len()) {
        return Err(Failure::input(OpenError::Name(channel.len())));
    }
    if let Some(path) = file {
        // Error messages name the file.
        let name = path.display().to_string();
        let format = Format::parse(&name, &text(path)?).map_err(Failure::input)?;
        return Ok(Some(Format::new(channel, format.layout()).map_err(Failure::input)?));
    }
    let begin = Instant::now();
    let mut is_told = false;
    while !stop.load(Ordering::SeqCst) {
        let all = host.list(ANSWER);
        let known =
            all.iter().find(|(_, one)| one.channel == channel && !one.format_text.is_empty());
        if let Some((_, Listing { format_text, .. })) = known {
            return Ok(Some(Format::parse(channel, format_text).map_err(Failure::failed)?));
        }
        if wait.is_some_and(|wait| begin.elapsed() > wait.to_std()) {
            return Err(Failure::input(format!(
                "nobody has \"{channel}\" open, so its format is not known; give --format FILE"
            )));
        }
        if !is_told && wait.is_none() && begin.elapsed() > ANSWER.to_std() {
            eprintln!(
                "selvedge: waiting until somebody opens \"{channel}\"; --format is another way"
            );
            is_told = true;
        }
        std::thread::park_timeout(Duration::from_millis(50).into());
    }
    Ok(None)
}

pub(crate) fn text(path: &Path) -> Result<String, Failure> {
    input::text(path, FILE_MAX).map_err(|why| Failure::input(format!("{}: {why}", path.display())))
}

/// A filter for an open channel. The file's name stands in its messages and for records that it shares.
pub(crate) fn filter(joined: &ChannelHandle, path: &Path) -> Result<Filter, Failure> {
    joined.filter(&path.display().to_string(), &text(path)?).map_err(Failure::input)
}

/// A time of at least a microsecond and at most a day.
pub(crate) fn span(text: &str) -> Result<Duration, TimeError> {
    time::within(Duration::from_micros(1)..=Duration::from_secs(86_400))(text)
}
