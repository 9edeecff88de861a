//! The settings of a process: its addresses, its peers and the rights of others. They are set in
//! code, or read from a small TOML file; errors state the file, line, key and remedy.
//!
//! ```toml
//! [host]
//! name = "studio"                       # default: the machine's name
//! domain = "default"                    # hosts of other domains are not seen
//! listen = ["192.168.1.5:7451"]         # default: the loopback, any free port
//! connect = ["192.168.1.6:7451"]
//! scout = false                         # look for other hosts by multicast
//! gossip = true                         # connect to hosts that peers report, too
//! meet = true                           # find the programs of this user and machine
//! rings = true                          # send events to them through shared memory
//! role = "peer"                         # or "client", of a "router"
//!
//! [tls]                                 # admits members with a certificate of this authority; only in builds
//!                                       # with the feature `tls`
//! certificate = "studio.pem"
//! key = "studio.key"
//! authority = "ca.pem"
//! verify_address = true                 # a certificate must hold for the address connected to
//!
//! [[member]]                            # if there are any, only these are admitted
//! name = "camera"                       # the certificate's common name, and the host's
//! publish = ["load", "frames*"]         # channels; "*", the default, stands for all
//! subscribe = ["*"]
//!
//! [deploy]                              # who may deploy handlers here; without it, nobody
//! members = ["desk"]                    # by certificate
//! token = "deploy.token"                # or any process that has this file's content
//! quota = 16                            # handlers at a time
//! share = 0.1                           # of a processor, for each
//! ```

mod file;

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::address::Address;

/// The longest name of a host or domain.
const NAME_MAX: usize = 64;
/// The fewest characters of a token, and the most bytes of its file.
const TOKEN_MIN: usize = 16;
const TOKEN_FILE_MAX: u64 = 4096;

/// The role of a process among the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Connects to all others directly.
    #[default]
    Peer,
    /// Connects to one router.
    Client,
    /// Also forwards messages of others: for more than about fifty hosts, and where they can't all
    /// reach each other.
    Router,
}

/// Certificates, as files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// This host's certificate.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The authority that signed all members' certificates.
    pub authority: PathBuf,
    /// Whether a certificate must be valid for the address that this host connects to.
    pub verify_address: bool,
}

/// The rights of a member, by its certificate's common name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRights {
    /// The name.
    pub name: String,
    /// The channels on which it may send events; `*` at the end stands for any text.
    pub publish: Vec<String>,
    /// The channels whose events it may receive.
    pub subscribe: Vec<String>,
}

/// The parties that may deploy handlers here, and how many handlers.
#[derive(Clone, Debug, PartialEq)]
pub struct DeployRights {
    /// The members that may deploy by certificate; names of [`Settings::members`].
    pub members: Vec<String>,
    /// A secret with which any process may deploy.
    pub token: Option<Vec<u8>>,
    /// The largest number of handlers at a time, of all deployers.
    pub quota: usize,
    /// The largest share of a processor that each handler may take, 0 to 1.
    pub share: f64,
}

impl Default for DeployRights {
    fn default() -> Self {
        Self { members: Vec::new(), token: None, quota: 16, share: 0.1 }
    }
}

/// How a process takes part.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The host's name; the machine's name if `None`.
    pub name: Option<String>,
    /// Hosts of other domains are not seen.
    pub domain: String,
    /// The addresses where it listens.
    pub listen: Vec<Address>,
    /// The addresses that it connects to.
    pub connect: Vec<Address>,
    /// Whether it looks for others by multicast.
    pub scout: bool,
    /// Whether it connects to hosts that its peers report.
    pub gossip: bool,
    /// Whether it finds the programs of this user and machine by itself.
    pub meet: bool,
    /// Whether events to processes of this user and machine go through shared memory; the engine
    /// carries them where that is impossible.
    pub rings: bool,
    /// Its role among the others.
    pub role: Role,
    /// Its certificates; without the feature `tls` the engine refuses to start with them.
    pub tls: Option<Tls>,
    /// The members that are admitted; if empty, all are.
    pub members: Vec<MemberRights>,
    /// The parties that may deploy handlers here.
    pub deploy: DeployRights,
}

impl Default for Settings {
    /// Meets only the programs of this user and machine.
    fn default() -> Self {
        Self {
            name: None,
            domain: "default".to_owned(),
            listen: Vec::new(),
            connect: Vec::new(),
            scout: false,
            gossip: true,
            meet: true,
            rings: true,
            role: Role::Peer,
            tls: None,
            members: Vec::new(),
            deploy: DeployRights::default(),
        }
    }
}

/// An error in a settings file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{place}: {what}")]
pub struct SettingsError {
    file: String,
    place: String,
    what: String,
}

/// Why a name of a host, a domain or a handler is invalid: names are parts of addresses within the engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no name; 1 to {NAME_MAX} letters, digits, '-', '_' and '.'")]
pub struct NameError(pub String);

/// Why a file can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system's error.
    #[error("{0}")]
    System(#[from] std::io::Error),
    /// The file is too long.
    #[error("is too long; at most {0} bytes are read")]
    Long(u64),
}

/// Why a token's file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file can't be read.
    #[error("{file}: {why}")]
    File {
        /// The file.
        file: String,
        /// The error.
        why: ReadError,
    },
    /// The token is too short.
    #[error(
        "{file}: a token has at least {TOKEN_MIN} characters, this one has {size}; try: head -c 32 /dev/urandom | base64"
    )]
    Short {
        /// The file.
        file: String,
        /// Its size.
        size: usize,
    },
}

/// The content of a token's file, without white space around it.
///
/// # Errors
/// The error in the file.
pub fn read_token(path: &Path) -> Result<Vec<u8>, TokenError> {
    let file = path.display().to_string();
    match limited(path, TOKEN_FILE_MAX).map(|bytes| bytes.trim_ascii().to_vec()) {
        Ok(token) if token.len() >= TOKEN_MIN => Ok(token),
        Ok(token) => Err(TokenError::Short { file, size: token.len() }),
        Err(why) => Err(TokenError::File { file, why }),
    }
}

fn limited(path: &Path, most: u64) -> Result<Vec<u8>, ReadError> {
    use std::io::Read;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(ReadError::Long(most));
    }
    Ok(bytes)
}

/// Checks a name.
pub(crate) fn check_name(name: &str) -> Result<(), NameError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
        return Err(NameError(name.to_owned()));
    }
    Ok(())
}
