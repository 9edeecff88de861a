//! `selvedge receive`: the far end of a bond from arguments alone. It writes the node file that a user would write, and
//! runs it.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_control_config::edit::{Change, EditError, edited};
use selvedge_units::Bitrate;

use crate::node_file::{NodeFileArgs, lines};
use crate::run::{self, RunArgs};

#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// A stream, by its name at the near end, and where it goes, such as lecture=rtp://127.0.0.1:5004
    #[arg(required = true, value_name = "NAME=rtp://HOST:PORT", value_parser = stream)]
    pub(crate) streams: Vec<ReceivedStream>,
    /// Where the paths of the bond arrive
    #[arg(long, default_value = "0.0.0.0:7800", value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// The file with the secret that both ends share
    #[arg(long, value_name = "FILE", required_unless_present = "key", conflicts_with = "key")]
    pub(crate) secret: Option<PathBuf>,
    /// The file with this end's key, which is paired with the near end's
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// The rate at which the streams are sent on
    #[arg(long, default_value = "100 Mbit/s", value_name = "RATE")]
    pub(crate) rate: Bitrate,
    /// Where the page is served
    #[arg(long, default_value = "127.0.0.1:7700", value_name = "ADDRESS")]
    pub(crate) page: SocketAddr,
    /// The node file to write; one that is there stays, and has to be the same
    #[arg(long, default_value = "receive.toml", value_name = "NODE.toml")]
    pub(crate) file: PathBuf,
    /// Only write the file
    #[arg(long)]
    pub(crate) no_run: bool,
    /// At the end print the node as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A stream that the far end takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedStream {
    name: String,
    to: String,
}

/// Why an argument names no stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    /// It has no destination.
    #[error("write the stream's name and where it goes, such as lecture=rtp://127.0.0.1:5004")]
    To,
    /// Its name is none.
    #[error("{0:?} is not a stream's name, which has letters, digits, - and _")]
    Name(String),
}

fn stream(text: &str) -> Result<ReceivedStream, StreamError> {
    let (name, to) = text.split_once('=').ok_or(StreamError::To)?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(StreamError::Name(name.chars().take(64).collect()));
    }
    Ok(ReceivedStream { name: name.to_owned(), to: to.to_owned() })
}

pub(crate) fn command(args: &ReceiveArgs) -> Result<(), Failure> {
    let text = text(args)?;
    let shown = args.file.display();
    match std::fs::read_to_string(&args.file) {
        Ok(present) if present == text => {}
        Ok(_) => {
            return Err(Failure::input(format!(
                "{shown} is there and says something else; run it by `selvedge run {shown}`, remove it, or \
                 name another by --file"
            )));
        }
        Err(why) if why.kind() == ErrorKind::NotFound => {
            std::fs::write(&args.file, &text)
                .map_err(|why| Failure::input(format!("{shown}: {why}")))?;
            eprintln!("wrote {shown}");
        }
        Err(why) => return Err(Failure::input(format!("{shown}: {why}"))),
    }
    if args.no_run {
        return Ok(());
    }
    let node = NodeFileArgs { file: args.file.clone(), json: args.json };
    run::command(&RunArgs { node, events: None, strict: false })
}

/// The node file.
fn text(args: &ReceiveArgs) -> Result<String, Failure> {
    let ReceiveArgs { listen, rate, page, .. } = args;
    let mut text = format!(
        "# The far end of a bond: {listen} is the `to` of the near end's link.\n[node]\nname = \"receive\"\n\
         listen = \"{page}\"\n\n[bond.near]\nlisten = \"{listen}\"\n\n[link.out]\nrate = \"{} bit/s\"\n",
        rate.0
    );
    for ReceivedStream { name, .. } in &args.streams {
        text += &format!("\n[stream.{name}]\nsource = \"bond:near\"\nsdp = \"{name}.sdp\"\n");
    }
    let of =
        |key, path: &PathBuf| Change::text("bond", "near", key, beside(&args.file, path).display());
    let secret = args.secret.iter().map(|path| of("secret", path));
    let sealing = secret.chain(args.key.iter().map(|path| of("key", path)));
    let to =
        args.streams.iter().map(|stream| Change::text("stream", &stream.name, "to", &stream.to));
    edited(&text, &args.file.display().to_string(), &sealing.chain(to).collect::<Vec<_>>()).map_err(
        |why| match why {
            EditError::Wrong(errors) => Failure::input(lines(&errors)),
            why => Failure::input(why),
        },
    )
}

/// A path as the node file has it: relative ones are relative to its folder.
fn beside(file: &Path, path: &Path) -> PathBuf {
    let is_here = file.parent().is_none_or(|folder| folder == Path::new(""));
    if is_here {
        path.to_owned()
    } else {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_a_name_and_a_destination() {
        let read = stream("car-park=rtp://127.0.0.1:5004").unwrap();
        assert_eq!((read.name.as_str(), read.to.as_str()), ("car-park", "rtp://127.0.0.1:5004"));
        assert_eq!(stream("lecture"), Err(StreamError::To));
        for text in ["=rtp://127.0.0.1:5004", "a.b=rtp://127.0.0.1:5004", "a]\n[b=x"] {
            assert!(matches!(stream(text), Err(StreamError::Name(_))), "{text}");
        }
    }
}
