//! Packets of a tunnel that leave by other devices get this host's address there: rules of nftables in a table of their
//! own, and forwarding in the kernel. Dropped, all is as it was before.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use selvedge_control_config::{Nat, TunnelConfig};
use selvedge_units::Bytes;

/// The mark of connections that come out of a tunnel: `selv`.
const MARK: u32 = 0x7365_6c76;
/// The headers of IPv6 and TCP.
const HEADERS: Bytes = Bytes(60);

/// Why addresses can't be translated.
#[derive(Debug, thiserror::Error)]
pub enum NatError {
    /// The command is absent.
    #[error(
        "nat needs the command nft; install the package nftables, or leave nat out and translate addresses by other means"
    )]
    NoNft,
    /// It refused the rules.
    #[error("nft refuses the rules: {0}")]
    Refused(String),
    /// The kernel forwards nothing.
    #[error("can't make the kernel forward packets by {path}: {why}")]
    Forward {
        /// The setting.
        path: &'static str,
        /// The reason.
        why: io::Error,
    },
}

/// The rules of one tunnel.
#[derive(Debug)]
pub(crate) struct NatRules {
    table: String,
    /// Settings that were off before.
    forwards: Vec<&'static str>,
}

impl NatRules {
    /// Adds the rules. Those that a node left behind when it was killed are replaced.
    pub(crate) fn new(config: &TunnelConfig, nat: &Nat) -> Result<Self, NatError> {
        let table = format!("selvedge_{}", config.device);
        nft(&rules(&table, config, nat))?;
        let mut own = Self { table, forwards: Vec::new() };
        let has = |is_v6| config.addresses.iter().any(|(address, _)| address.is_ipv6() == is_v6);
        let v4 = has(false).then_some("/proc/sys/net/ipv4/ip_forward");
        let v6 = has(true).then_some("/proc/sys/net/ipv6/conf/all/forwarding");
        for path in v4.into_iter().chain(v6) {
            let failed = |why| NatError::Forward { path, why };
            if std::fs::read_to_string(path).map_err(failed)?.trim() == "0" {
                std::fs::write(path, "1").map_err(failed)?;
                own.forwards.push(path);
            }
        }
        Ok(own)
    }
}

impl Drop for NatRules {
    fn drop(&mut self) {
        for path in &self.forwards {
            let _ = std::fs::write(path, "0");
        }
        if let Err(why) = nft(&format!("delete table inet {}\n", self.table)) {
            tracing::warn!(table = self.table, %why, "rules of a tunnel stay");
        }
    }
}

/// The rules: connections out of the tunnel are marked and leave with another address, and no TCP segment exceeds what
/// the tunnel carries, whatever becomes of ICMP.
fn rules(table: &str, config: &TunnelConfig, nat: &Nat) -> String {
    let tunnel = &config.device;
    let leaves = match nat {
        Nat::Any => format!("oifname != \"{tunnel}\""),
        Nat::Device(device) => format!("oifname \"{device}\""),
    };
    let most = (config.mtu - HEADERS).0;
    let clamp =
        format!("tcp flags syn tcp option maxseg size > {most} tcp option maxseg size set {most}");
    format!(
        "table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n\
         chain forward {{\n  type filter hook forward priority mangle;\n\
         iifname \"{tunnel}\" ct mark set {MARK}\n\
         iifname \"{tunnel}\" {clamp}\n  oifname \"{tunnel}\" {clamp}\n}}\n\
         chain leave {{\n  type nat hook postrouting priority srcnat;\n\
         ct mark {MARK} {leaves} masquerade\n}}\n}}\n"
    )
}

/// Gives a script to nft.
fn nft(script: &str) -> Result<(), NatError> {
    let refused = |why: io::Error| NatError::Refused(why.to_string());
    let mut command = Command::new("nft");
    command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => NatError::NoNft,
        _ => refused(why),
    })?;
    if let Some(mut input) = child.stdin.take() {
        // What it does not read, it refuses.
        let _ = input.write_all(script.as_bytes());
    }
    let done = child.wait_with_output().map_err(refused)?;
    match done.status.success() {
        true => Ok(()),
        false => Err(NatError::Refused(String::from_utf8_lossy(&done.stderr).trim().to_owned())),
    }
}
