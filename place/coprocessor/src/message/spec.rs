//! A stream as a producer asks for it on the control socket, and the contract that it stands for.

use std::net::SocketAddr;

use selvedge_data_stream::{Class, Contract, Kind, Late, Window, Windows};
use selvedge_units::{Bytes, Span};
use serde::{Deserialize, Serialize};

use super::NAME_MAX;

/// A stream: its contract, where it goes, how much may wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamSpec {
    /// Its name, for statistics.
    pub name: String,
    /// Where its packets go, `HOST:PORT`, numeric.
    pub to: SocketAddr,
    /// Nanoseconds between deadlines.
    pub period_ns: u64,
    /// Nanoseconds from arrival to deadline; without: DWCS's own rule.
    #[serde(default)]
    pub delay_ns: Option<u64>,
    /// What may be lost, `[x, y]`: one pair, or one for each kind.
    pub windows: Vec<(u16, u16)>,
    /// Whether what is late is sent all the same.
    #[serde(default)]
    pub send_late: bool,
    /// Whether a frame may go before its period begins.
    #[serde(default = "yes")]
    pub work_conserving: bool,
    /// 1 to 1000.
    #[serde(default = "one")]
    pub weight: u32,
    /// -1000 to 1000.
    #[serde(default)]
    pub priority: i32,
    /// `edf`, `priority` or `fair`.
    #[serde(default = "fair")]
    pub class: String,
    /// Where it hangs in the link's tree, 0 for the link itself.
    #[serde(default, skip_serializing_if = "is_link")]
    pub parent: u32,
    /// Frames that may wait, 2 to 65536.
    #[serde(default = "ring")]
    pub ring: u32,
    /// Bytes of payload that may wait, up to 1 GiB.
    #[serde(default = "pool")]
    pub pool: u64,
}

const fn yes() -> bool {
    true
}
/// Left out then, so that a coprocessor that knows no trees takes it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks by reference")]
const fn is_link(parent: &u32) -> bool {
    *parent == 0
}
const fn one() -> u32 {
    1
}
fn fair() -> String {
    Class::Fair.name().to_owned()
}
const fn ring() -> u32 {
    256
}
const fn pool() -> u64 {
    4_000_000
}

/// Why a stream can't be what it was asked to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A value out of its range.
    #[error("{what} is {value}; write {range}")]
    Range {
        /// Which.
        what: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        range: &'static str,
    },
}

fn range(what: &'static str, value: impl ToString, range: &'static str) -> SpecError {
    SpecError::Range { what, value: value.to_string(), range }
}

/// Windows as they are written in messages.
///
/// # Errors
/// [`SpecError`] if there are neither one nor one for each kind, or one loses more than it holds.
pub fn windows(pairs: &[(u16, u16)]) -> Result<Windows, SpecError> {
    let window = |&(lose, of): &(u16, u16)| {
        Window::new(lose, of)
            .map_err(|_| range("a window", format!("{lose}/{of}"), "x/y with x at most y"))
    };
    match pairs {
        [one] => Ok(Windows::Whole(window(one)?)),
        all if all.len() == Kind::COUNT => {
            let mut windows = [Window::NONE; Kind::COUNT];
            for (slot, pair) in windows.iter_mut().zip(all) {
                *slot = window(pair)?;
            }
            Ok(Windows::PerKind(windows))
        }
        other => Err(range("the number of windows", other.len(), "1, or 6: one for each kind")),
    }
}

/// The other way round.
#[must_use]
pub fn pairs(windows: &Windows) -> Vec<(u16, u16)> {
    match windows {
        Windows::Whole(window) => vec![(window.lose, window.of)],
        Windows::PerKind(all) => all.iter().map(|window| (window.lose, window.of)).collect(),
    }
}

impl StreamSpec {
    /// What a stream of the node file is on the control socket.
    #[must_use]
    pub fn new(name: &str, contract: &Contract, to: SocketAddr, ring: u32, pool: Bytes) -> Self {
        Self {
            name: name.to_owned(),
            to,
            period_ns: contract.period.0,
            delay_ns: contract.delay.map(|delay| delay.0),
            windows: pairs(&contract.windows),
            send_late: contract.late == Late::Send,
            work_conserving: contract.work_conserving,
            weight: contract.weight,
            priority: contract.priority,
            class: contract.class.name().to_owned(),
            parent: contract.parent,
            ring,
            pool: pool.0,
        }
    }

    /// Bytes that its segment takes, nearly.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        self.pool.saturating_add(self.ring as u64 * 64)
    }

    /// The contract.
    ///
    /// # Errors
    /// [`SpecError`] for the first value that is out of its range.
    pub fn contract(&self) -> Result<Contract, SpecError> {
        const HOUR: u64 = 3_600_000_000_000;
        if self.name.is_empty() || self.name.len() > NAME_MAX {
            return Err(range("the name's length", self.name.len(), "1 to 64 bytes"));
        }
        if self.to.port() == 0 || self.to.ip().is_unspecified() || self.to.ip().is_multicast() {
            return Err(range("to", self.to, "the address and port of one receiver"));
        }
        if !(100_000..=HOUR).contains(&self.period_ns) {
            return Err(range("period_ns", self.period_ns, "100000 to 3600000000000"));
        }
        if let Some(delay) = self.delay_ns.filter(|delay| !(1_000_000..=HOUR).contains(delay)) {
            return Err(range("delay_ns", delay, "1000000 to 3600000000000"));
        }
        if !(1..=1000).contains(&self.weight) {
            return Err(range("weight", self.weight, "1 to 1000"));
        }
        if !(-1000..=1000).contains(&self.priority) {
            return Err(range("priority", self.priority, "-1000 to 1000"));
        }
        if !(2..=65_536).contains(&self.ring) {
            return Err(range("ring", self.ring, "2 to 65536 frames"));
        }
        if !(1024..=1 << 30).contains(&self.pool) {
            return Err(range("pool", self.pool, "1024 to 1073741824 bytes"));
        }
        let class = Class::from_name(&self.class)
            .ok_or_else(|| range("class", &self.class, "edf, priority or fair"))?;
        Ok(Contract {
            period: Span(self.period_ns),
            windows: windows(&self.windows)?,
            late: if self.send_late { Late::Send } else { Late::Drop },
            work_conserving: self.work_conserving,
            weight: self.weight,
            priority: self.priority,
            class,
            parent: self.parent,
            delay: self.delay_ns.map(Span),
        })
    }
}
