//! A settings file: its tables as they are written, and the errors in them.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::{
    MemberRights, Role, Settings, SettingsError, Tls, TokenError, check_name, limited, read_token,
};
use crate::address::{Address, AddressError};

/// The longest settings file, in bytes.
const FILE_MAX: u64 = 256 << 10;
/// The largest number of members of a file.
const MEMBERS_MAX: usize = 1024;
/// Whether the engine in this build supports certificates.
const KNOWS_TLS: bool = cfg!(feature = "tls");
/// Why a build without TLS refuses the table.
const NO_TLS: &str = "this build has no TLS for events; leave the table out, or build with it: \
    cargo build --release --features events-tls";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    host: Option<Host>,
    tls: Option<Spanned<TlsTable>>,
    #[serde(default)]
    member: Vec<Member>,
    deploy: Option<Deploy>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    name: Option<Spanned<String>>,
    domain: Option<Spanned<String>>,
    #[serde(default)]
    listen: Vec<Spanned<String>>,
    #[serde(default)]
    connect: Vec<Spanned<String>>,
    #[serde(default)]
    scout: bool,
    gossip: Option<bool>,
    meet: Option<bool>,
    rings: Option<bool>,
    #[serde(default)]
    role: Role,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    certificate: Spanned<PathBuf>,
    key: Spanned<PathBuf>,
    authority: Spanned<PathBuf>,
    verify_address: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    name: Spanned<String>,
    publish: Option<Vec<Spanned<String>>>,
    subscribe: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deploy {
    #[serde(default)]
    members: Vec<Spanned<String>>,
    token: Option<Spanned<PathBuf>>,
    quota: Option<Spanned<usize>>,
    share: Option<Spanned<f64>>,
}

impl TlsTable {
    /// The files that the table names, after a check that each can be read.
    fn checked(self, folder: &Path, mistakes: &Mistakes<'_>) -> Result<Tls, SettingsError> {
        let file = |key: &str, path: Spanned<PathBuf>| {
            let (at, full) = (path.span().start, folder.join(path.get_ref()));
            let readable = std::fs::File::open(&full).map(drop);
            readable.map(|()| full.clone()).map_err(|error| {
                let what = format!("{}: {error}; name a file in PEM", full.display());
                mistakes.at(at, &format!("tls.{key}"), what)
            })
        };
        Ok(Tls {
            certificate: file("certificate", self.certificate)?,
            key: file("key", self.key)?,
            authority: file("authority", self.authority)?,
            verify_address: self.verify_address.unwrap_or(true),
        })
    }
}

impl Settings {
    /// Reads a file; paths in it are relative to it.
    ///
    /// # Errors
    /// The first error.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let file = path.display().to_string();
        let whole = |what: String| SettingsError { file: file.clone(), place: String::new(), what };
        let text = limited(path, FILE_MAX).map_err(|why| whole(why.to_string()))?;
        let text = String::from_utf8(text).map_err(|_| whole("is not UTF-8".to_owned()))?;
        Self::parse(&file, &text, path.parent().unwrap_or_else(|| Path::new(".")))
    }

    /// Parses a file's text; its paths are relative to `folder`.
    ///
    /// # Errors
    /// The first error.
    pub fn parse(file: &str, text: &str, folder: &Path) -> Result<Self, SettingsError> {
        Self::parse_for_build(file, text, folder, KNOWS_TLS)
    }

    fn parse_for_build(
        file: &str,
        text: &str,
        folder: &Path,
        knows_tls: bool,
    ) -> Result<Self, SettingsError> {
        let mistakes = Mistakes { file, text };
        let read: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let what = error.message().replace('`', "\"");
            mistakes.at(
                at,
                "",
                format!("{}; see docs/events.md for what may stand here", what.trim()),
            )
        })?;
        let mut settings = Self::default();
        settings.host(read.host.unwrap_or_default(), &mistakes)?;
        if let Some(tls) = read.tls {
            if !knows_tls {
                return Err(mistakes.at(tls.span().start, "tls", NO_TLS.to_owned()));
            }
            settings.tls = Some(tls.into_inner().checked(folder, &mistakes)?);
        }
        settings.member(read.member, &mistakes)?;
        if let Some(deploy) = read.deploy {
            settings.deploy(deploy, folder, &mistakes)?;
        }
        Ok(settings)
    }

    fn host(&mut self, host: Host, mistakes: &Mistakes<'_>) -> Result<(), SettingsError> {
        let named = |key: &str, name: Spanned<String>| {
            let at = name.span().start;
            let name = name.into_inner();
            check_name(&name).map_err(|why| mistakes.at(at, key, why.to_string()))?;
            Ok::<_, SettingsError>(name)
        };
        self.name = host.name.map(|name| named("host.name", name)).transpose()?;
        if let Some(domain) = host.domain {
            self.domain = named("host.domain", domain)?;
        }
        let addresses = |key: &str, all: Vec<Spanned<String>>| {
            let parsed = all.into_iter().map(|one| {
                let at = one.span().start;
                let failed = |error: AddressError| mistakes.at(at, key, error.to_string());
                one.get_ref().parse().map_err(failed)
            });
            parsed.collect::<Result<Vec<Address>, _>>()
        };
        self.listen = addresses("host.listen", host.listen)?;
        self.connect = addresses("host.connect", host.connect)?;
        self.scout = host.scout;
        self.gossip = host.gossip.unwrap_or(true);
        self.meet = host.meet.unwrap_or(true);
        self.rings = host.rings.unwrap_or(true);
        self.role = host.role;
        Ok(())
    }

    fn member(&mut self, all: Vec<Member>, mistakes: &Mistakes<'_>) -> Result<(), SettingsError> {
        for (number, member) in all.into_iter().enumerate() {
            let at = member.name.span().start;
            if self.tls.is_none() {
                let what = "names can't be trusted without certificates; add a table [tls]";
                return Err(mistakes.at(at, "member.name", what.to_owned()));
            }
            if number >= MEMBERS_MAX {
                let what = format!("more than {MEMBERS_MAX} members; use domains");
                return Err(mistakes.at(at, "member.name", what));
            }
            let name = member.name.into_inner();
            check_name(&name).map_err(|why| mistakes.at(at, "member.name", why.to_string()))?;
            if self.members.iter().any(|known| known.name == name) {
                let what = format!("\"{name}\" stands here twice; give it one table");
                return Err(mistakes.at(at, "member.name", what));
            }
            let channels = |key: &str, all: Option<Vec<Spanned<String>>>| {
                let Some(all) = all else { return Ok(vec!["*".to_owned()]) };
                let checked = all.into_iter().map(|one| {
                    let (at, one) = (one.span().start, one.into_inner());
                    let inner = one.strip_suffix('*').unwrap_or(&one);
                    if one.is_empty() || inner.contains('*') {
                        let what =
                            format!("\"{one}\" is no channel; a star stands at the end only");
                        return Err(mistakes.at(at, key, what));
                    }
                    Ok(one)
                });
                checked.collect()
            };
            let publish = channels("member.publish", member.publish)?;
            let subscribe = channels("member.subscribe", member.subscribe)?;
            self.members.push(MemberRights { name, publish, subscribe });
        }
        Ok(())
    }

    fn deploy(
        &mut self,
        deploy: Deploy,
        folder: &Path,
        mistakes: &Mistakes<'_>,
    ) -> Result<(), SettingsError> {
        for name in deploy.members {
            let (at, name) = (name.span().start, name.into_inner());
            if !self.members.iter().any(|member| member.name == name) {
                let what = format!("\"{name}\" is no member; give it a table [[member]]");
                return Err(mistakes.at(at, "deploy.members", what));
            }
            self.deploy.members.push(name);
        }
        if let Some(token) = deploy.token {
            let (at, path) = (token.span().start, folder.join(token.get_ref()));
            let token = read_token(&path);
            let failed = |why: TokenError| mistakes.at(at, "deploy.token", why.to_string());
            self.deploy.token = Some(token.map_err(failed)?);
        }
        if let Some(quota) = deploy.quota {
            if !(1..=256).contains(quota.get_ref()) {
                let what = format!("{} is out of range; 1 to 256", quota.get_ref());
                return Err(mistakes.at(quota.span().start, "deploy.quota", what));
            }
            self.deploy.quota = quota.into_inner();
        }
        if let Some(share) = deploy.share {
            if !(0.001..=1.0).contains(share.get_ref()) {
                let what = format!("{} is out of range; 0.001 to 1", share.get_ref());
                return Err(mistakes.at(share.span().start, "deploy.share", what));
            }
            self.deploy.share = share.into_inner();
        }
        Ok(())
    }
}

struct Mistakes<'a> {
    file: &'a str,
    text: &'a str,
}

impl Mistakes<'_> {
    fn at(&self, at: usize, key: &str, what: String) -> SettingsError {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let column = 1 + before.iter().rev().take_while(|byte| **byte != b'\n').count();
        let key = if key.is_empty() { String::new() } else { format!(": {key}") };
        SettingsError { file: self.file.to_owned(), place: format!(":{line}:{column}{key}"), what }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_tls_refuses_the_table_and_names_the_remedy() {
        let text =
            "[host]\nname = \"desk\"\n[tls]\ncertificate = \"a\"\nkey = \"b\"\nauthority = \"c\"\n";
        let parsed = Settings::parse_for_build("s.toml", text, Path::new("/"), false);
        assert_eq!(parsed.unwrap_err().to_string(), format!("s.toml:3:1: tls: {NO_TLS}"));
        let plain = Settings::parse_for_build("s.toml", "[host]\n", Path::new("/"), false);
        assert_eq!(plain, Ok(Settings::default()));
    }
}
