//! `[node]` without its name: where a node's page, API and metrics are served, which tokens admit
//! clients, and whether TLS is used.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::de::DeValue;

use super::section::{Reader, Section};
use super::{ConfigFault, Position, Token, quoted};

/// Keys of `[node]`.
pub(super) const KNOWN: &[&str] =
    &["name", "listen", "token", "view_token", "watch_token", "tls", "connections_per_address"];
/// Keys of `[node] tls`, where it is a table.
const TLS_KNOWN: &[&str] = &["certificate", "key"];
/// The most connections of one address: all that the server of the page accepts.
const CONNECTIONS_MAX: u16 = 128;

/// How the page, the API and the metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageConfig {
    /// `listen`, default `127.0.0.1:7700`.
    pub listen: SocketAddr,
    /// `token`: its holders may see and change all. Required when `listen` is not a loopback address.
    pub token: Option<Token>,
    /// `view_token`: its holders may see all and change nothing. Only beside `token`, and a different
    /// text.
    pub view_token: Option<Token>,
    /// `watch_token`: its holders may see the pictures of streams and nothing else. Only beside `token`,
    /// and a different text from both.
    pub watch_token: Option<Token>,
    /// `tls`, default `auto` when `listen` is not a loopback address, otherwise `off`.
    pub tls: Tls,
    /// `connections_per_address`, default 16, 1 to 128: how many connections one address may have.
    pub connections_per_address: u16,
}

impl Default for PageConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7700)),
            token: None,
            view_token: None,
            watch_token: None,
            tls: Tls::Off,
            connections_per_address: 16,
        }
    }
}

impl PageConfig {
    /// The same, with paths resolved from `base`, the folder of the node file.
    #[must_use]
    pub fn based_at(mut self, base: &Path) -> Self {
        if let Tls::Files { certificate, key } = &mut self.tls {
            *certificate = base.join(&certificate);
            *key = base.join(&key);
        }
        self
    }

    /// The address of the page, as a browser accepts it.
    #[must_use]
    pub fn url(&self, at: SocketAddr) -> String {
        let scheme = if self.tls == Tls::Off { "http" } else { "https" };
        format!("{scheme}://{at}/")
    }
}

/// How the page is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// Not at all.
    Off,
    /// With a certificate of the node's own, made at its first start and kept.
    Auto,
    /// With these, as PEM.
    Files {
        /// The certificate, then those that lead to its authority, if any.
        certificate: PathBuf,
        /// Its private key.
        key: PathBuf,
    },
}

/// `[node]` but for its name.
pub(super) fn read<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> PageConfig {
    let default = PageConfig::default();
    let entry = reader.entry(section, "listen");
    let listen = entry.and_then(|entry| {
        let text = reader.text(&entry, "listen = \"127.0.0.1:7700\"")?;
        let address = text.parse::<SocketAddr>().ok().filter(|a| !a.ip().is_multicast());
        if address.is_none() {
            reader.report_value(&entry, ConfigFault::Listen(quoted(text)));
        }
        address
    });
    let listen = listen.unwrap_or(default.listen);
    let token = token(reader, section, "token");
    let view_token = self::token(reader, section, "view_token");
    let watch_token = self::token(reader, section, "watch_token");
    let local = listen.ip().to_canonical().is_loopback();
    if !local && !section.has("token") {
        let at = reader.map.at("node.listen").unwrap_or(Position::START);
        reader.errors.push(at, &section.path_of("token"), ConfigFault::TokenNeeded(listen));
    }
    let lesser = [("view_token", &view_token), ("watch_token", &watch_token)];
    for (n, (key, given)) in lesser.into_iter().enumerate() {
        let is_alone = local && section.has(key) && !section.has("token");
        let greater = [("token", &token), lesser[0]].into_iter().take(n + 1);
        let same = greater.into_iter().find(|(_, other)| given.is_some() && *other == given);
        let fault = match same {
            _ if is_alone => ConfigFault::LesserTokenAlone,
            Some((other, _)) => ConfigFault::LesserTokenSame(other),
            None => continue,
        };
        reader.errors.push_key(&reader.map, &section.path_of(key), fault);
    }
    let usual = if local { Tls::Off } else { Tls::Auto };
    let tls = tls(reader, section).unwrap_or(usual);
    let most = reader.integer(section, "connections_per_address", 1..=CONNECTIONS_MAX);
    let connections_per_address = most.unwrap_or(default.connections_per_address);
    PageConfig { listen, token, view_token, watch_token, tls, connections_per_address }
}

pub(super) fn token<'t>(
    reader: &mut Reader<'t>,
    section: &Section<'t>,
    key: &str,
) -> Option<Token> {
    let entry = reader.entry(section, key)?;
    let text = reader.text(&entry, "what openssl rand -hex 16 prints, in quotes")?;
    let token = text.parse();
    token.map_err(|error| reader.report_value(&entry, ConfigFault::Token(error))).ok()
}

fn tls<'t>(reader: &mut Reader<'t>, section: &Section<'t>) -> Option<Tls> {
    let entry = reader.entry(section, "tls")?;
    if !matches!(entry.value, DeValue::Table(_)) {
        let choice = reader.choice(section, "tls", &["auto", "off"])?;
        return Some(if choice == "auto" { Tls::Auto } else { Tls::Off });
    }
    let table = reader.section(section, "tls", "tls = \"auto\"")?;
    reader.refuse_unknown(&table, TLS_KNOWN);
    let examples = [("certificate", "certificate = \"node.crt\""), ("key", "key = \"node.key\"")];
    let paths = examples.map(|(key, example)| {
        reader.required(&table, key, example);
        reader.path(&table, key, example).map(PathBuf::from)
    });
    let [Some(certificate), Some(key)] = paths else { return None };
    Some(Tls::Files { certificate, key })
}
