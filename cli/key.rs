//! `selvedge key`: static keys of ends of stacks, and the keys of the peers that an end accepts.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use selvedge_cli_terminal::Failure;
use selvedge_data_net_secure::PublicKey;
use selvedge_node::credentials::{is_name, key, new_key, peers, set_peers};

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make a key in a new file; print the public key, which others may know
    #[command(after_help = "Example:\n  selvedge key new studio.key")]
    New {
        /// The file
        file: PathBuf,
    },
    /// Print the public key of a key, and its peers
    #[command(after_help = "Example:\n  selvedge key show van.key\n  \
                            selvedge key show van.key --json | jq .public")]
    Show {
        /// The file
        file: PathBuf,
        /// Print the result as JSON
        #[arg(long)]
        json: bool,
    },
    /// Let the owner of a public key talk to the owner of this key, or no longer; running ends follow
    #[command(after_help = "Both ends pair with each other.\n\nExample:\n  \
                            selvedge key pair van.key lobby \
                            8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a\n  \
                            selvedge key pair van.key lobby --remove")]
    Pair {
        /// The file
        file: PathBuf,
        /// The peer's name
        name: String,
        /// Its public key: 64 hexadecimal digits
        #[arg(required_unless_present = "remove", conflicts_with = "remove")]
        public: Option<PublicKey>,
        /// Take it off the list: its connections end
        #[arg(long)]
        remove: bool,
    },
}

pub(crate) fn command(command: &KeyCommand) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match command {
        KeyCommand::New { file } => {
            let key = new_key(file).map_err(Failure::input)?;
            writeln!(out, "{}", key.public())?;
        }
        KeyCommand::Show { file, json } => {
            let public = key(file).map_err(Failure::input)?.public();
            let peers = peers(file).map_err(Failure::input)?;
            if *json {
                let peers: serde_json::Map<_, _> =
                    peers.into_iter().map(|(key, name)| (name, key.to_string().into())).collect();
                let all = serde_json::json!({ "public": public.to_string(), "peers": peers });
                writeln!(out, "{all}")?;
            } else {
                writeln!(out, "{public}")?;
                for (key, name) in peers {
                    writeln!(out, "peer {name}: {key}")?;
                }
            }
        }
        KeyCommand::Pair { file, name, public, remove } => {
            if !is_name(name) {
                return Err(Failure::input("a peer's name has 1 to 64 characters on one line"));
            }
            key(file).map_err(Failure::input)?;
            let mut all = peers(file).map_err(Failure::input)?;
            let known = all.iter().position(|(_, of)| of == name);
            match (known, public) {
                (None, _) if *remove => {
                    return Err(Failure::input(format!("{}: no peer \"{name}\"", file.display())));
                }
                (Some(at), None) => _ = all.remove(at),
                (Some(at), Some(public)) => all[at].0 = *public,
                (None, Some(public)) => all.push((*public, name.clone())),
                (None, None) => {}
            }
            set_peers(file, &all).map_err(Failure::failed)?;
        }
    }
    Ok(out.flush()?)
}
