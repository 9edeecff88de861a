//! The certificate that identifies a node's page: read from files, or made at the first start and kept
//! in the user's state folder. Clients recognise it by its fingerprint.

use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use ring::digest;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, crypto, version};
use selvedge_control_config::Tls;

/// Where it is kept, below the state folder: certificate and key, as PEM.
const FILE: &str = "selvedge/page.pem";

/// Why no certificate can be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// It can't be kept.
    #[error(
        "neither XDG_STATE_HOME nor HOME is set, so the page's certificate can't be kept; set one, or \
         set [node] tls to files of your own"
    )]
    NoFolder,
    /// A file can't be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, #[source] io::Error),
    /// A file has no certificate, or no key.
    #[error("{0}: {1}; write it as PEM")]
    Pem(PathBuf, #[source] pem::Error),
    /// The two do not belong together, or the key is of an unknown kind.
    #[error("{0}: can't be used as a certificate with its key: {1}")]
    Unusable(PathBuf, #[source] rustls::Error),
    /// It can't be made, for example without randomness.
    #[error("can't make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

/// The SHA-256 of a certificate, by which a client recognises it. Written as browsers and OpenSSL do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of a certificate as DER.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        let digest = digest::digest(&digest::SHA256, certificate);
        Self(std::array::from_fn(|at| digest.as_ref()[at]))
    }

    /// Of the certificate that nodes of this user on this machine make, if there is one.
    #[must_use]
    pub fn kept() -> Option<Self> {
        let certificate = CertificateDer::from_pem_file(kept_at()?).ok()?;
        Some(Self::of(&certificate))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = &self.0;
        write!(f, "{first:02X}")?;
        rest.iter().try_for_each(|byte| write!(f, ":{byte:02X}"))
    }
}

/// A text is not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a fingerprint; write the 64 hexadecimal digits that the node prints at its start")]
pub struct FingerprintError;

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    fn from_str(text: &str) -> Result<Self, FingerprintError> {
        let digits = text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16));
        let digits: Vec<u32> = digits.collect::<Option<_>>().ok_or(FingerprintError)?;
        let digits: [u32; 64] = digits.try_into().map_err(|_| FingerprintError)?;
        Ok(Self(std::array::from_fn(|at| (digits[2 * at] * 16 + digits[2 * at + 1]) as u8)))
    }
}

/// The node's part of TLS, and the fingerprint that clients check.
pub(crate) struct Identity {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) fingerprint: Fingerprint,
}

impl Identity {
    /// As configured in the node file; `None`: not encrypted.
    pub(crate) fn of(tls: &Tls) -> Result<Option<Self>, CertificateError> {
        match tls {
            Tls::Off => Ok(None),
            Tls::Auto => {
                let path = kept_at().ok_or(CertificateError::NoFolder)?;
                keep(&path)?;
                Self::read(&path, &path).map(Some)
            }
            Tls::Files { certificate, key } => Self::read(certificate, key).map(Some),
        }
    }

    fn read(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let unread = |path: &Path, error| match error {
            pem::Error::Io(error) => CertificateError::File(path.into(), error),
            error => CertificateError::Pem(path.into(), error),
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .and_then(
                |chain| if chain.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(chain) },
            )
            .map_err(|error| unread(certificate, error))?;
        let fingerprint = Fingerprint::of(&chain[0]);
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, error))?;
        let unusable = |error| CertificateError::Unusable(certificate.into(), error);
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&version::TLS13])
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), fingerprint })
    }
}

/// Where the certificate is that nodes of this user make, whether or not it is there.
pub(crate) fn kept_at() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join(FILE))
}

/// Makes the certificate and its key, unless they exist. Of two nodes that start at once, one makes
/// them.
fn keep(path: &Path) -> Result<(), CertificateError> {
    if path.exists() {
        return Ok(());
    }
    write_once(path, &made()?).map_err(|error| CertificateError::File(path.into(), error))
}

fn write_once(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    // Atomically, and never over another node's.
    let linked = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::hard_link(&new, path));
    fs::remove_file(&new)?;
    linked.or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Ok(()),
        _ => Err(error),
    })
}

/// A self-signed certificate for this machine's names, without an expiry: clients that trust it know its
/// fingerprint. Certificate and key (ECDSA, P-256) as PEM.
fn made() -> Result<String, rcgen::Error> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let names = ["localhost", "127.0.0.1", "::1", host.trim()];
    let names: Vec<String> =
        names.iter().filter(|name| !name.is_empty()).map(|name| (*name).into()).collect();
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name.push(DnType::CommonName, format!("Selvedge on {}", host.trim()));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(pem("CERTIFICATE", certificate.der()) + &pem("PRIVATE KEY", key.serialized_der()))
}

/// RFC 7468.
fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in der.chunks(48) {
        let _ = writeln!(text, "{}", BASE64_STANDARD.encode(line));
    }
    text + &format!("-----END {label}-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_written() {
        // Computed by sha256sum of "abc".
        let text = "BA:78:16:BF:8F:01:CF:EA:41:41:40:DE:5D:AE:22:23:B0:03:61:A3:96:17:7A:9C:B4:10:FF:61:F2:00:15:AD";
        let abc = Fingerprint::of(b"abc");
        assert_eq!(abc.to_string(), text);
        assert_eq!(text.parse(), Ok(abc));
        assert_eq!(text.replace(':', "").to_lowercase().parse(), Ok(abc));
        for wrong in ["", "BA:78", &text[1..], &format!("{text}:00"), &text.replace('B', "G")] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(FingerprintError), "{wrong}");
        }
    }
}
