//! `selvedge events deploy`: handlers on other hosts, by their text.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use selvedge_cli_terminal::{Failure, signals};
use selvedge_comm_event::{Deployment, Place, RequestError, read_token};
use selvedge_units::Duration;
use serde_json::json;

use super::participant::{self, ParticipantArgs};

#[derive(Debug, Args)]
pub(crate) struct DeployArgs {
    /// The host: its name, or NAME/PID; see `selvedge events ls`
    target: String,
    /// The channel, which is open there
    channel: String,
    /// The handler in E-code
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "remove",
        conflicts_with = "remove"
    )]
    file: Option<PathBuf>,
    /// As the filter among the target's sinks, among the other hosts, or as a handler beside them
    #[arg(long, value_enum, default_value_t = Where::Handler)]
    place: Where,
    /// Its name on the target (default: the file's, without its ending)
    #[arg(long, value_name = "NAME")]
    called: Option<String>,
    /// For a handler: send what passes on to this channel
    #[arg(long, value_name = "CHANNEL")]
    to: Option<String>,
    /// Remove what is deployed under this name
    #[arg(long, value_name = "NAME")]
    remove: Option<String>,
    /// Authorize with this file's content, which the target must have, too
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
    #[command(flatten)]
    participant: ParticipantArgs,
    /// How long to look for the target, and to wait for its answer
    #[arg(long, default_value = "2 s", value_parser = participant::span)]
    wait: Duration,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    /// Chooses among the target's sinks
    In,
    /// Chooses among the other hosts
    Out,
    /// Called with each event
    Handler,
}

impl From<Where> for Place {
    fn from(place: Where) -> Self {
        match place {
            Where::In => Self::In,
            Where::Out => Self::Out,
            Where::Handler => Self::Handler,
        }
    }
}

pub(super) fn command(args: &DeployArgs) -> Result<(), Failure> {
    let stop = signals::stop_flag()?;
    let token = args.token.as_deref().map(read_token).transpose().map_err(Failure::input)?;
    let wait = args.wait;
    let deployment = match &args.file {
        Some(path) => Some(Deployment {
            channel: args.channel.clone(),
            place: args.place.into(),
            name: name(args, path)?,
            source: participant::text(path)?,
            to: args.to.clone(),
        }),
        None => None,
    };
    let host = args.participant.start()?;
    participant::settle(&host, wait, &stop);
    let done = match (&deployment, &args.remove) {
        (Some(deployment), _) => host.deploy(&args.target, deployment, token.as_deref(), wait),
        (None, Some(name)) => {
            host.remove(&args.target, &args.channel, name, token.as_deref(), wait)
        }
        (None, None) => return Err(Failure::input("give --file FILE or --remove NAME")),
    };
    let said = done.map_err(|error| match error {
        RequestError::Nobody(..) | RequestError::Several(..) => Failure::input(error),
        RequestError::Refused(..) | RequestError::Silent(..) => Failure::failed(error),
    })?;
    if args.json {
        println!("{}", json!({ "target": args.target, "channel": args.channel, "done": said }));
    } else {
        println!("{}: {said}", args.target);
    }
    Ok(())
}

fn name(args: &DeployArgs, path: &std::path::Path) -> Result<String, Failure> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).map(ToOwned::to_owned);
    args.called.clone().or(stem).ok_or_else(|| Failure::input("give it a name with --called"))
}
