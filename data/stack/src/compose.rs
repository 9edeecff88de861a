//! Stacks as a line of text: `ui | encrypt(chacha20) | reliable | frag(1400) | net`.
//!
//! The modules stand from the application down to the network, separated by `|`. Both hosts must
//! use the same line; they agree on it when they connect.

mod parse;
#[cfg(test)]
mod tests;

use core::fmt;
use core::str::FromStr;
use std::sync::Arc;

use selvedge_units::Bytes;

use crate::concurrency::Concurrency;
use crate::contract::MESSAGE_MAX;
use crate::deliver::Order;
use crate::module::{
    AnyModule, CHUNK, Checksum, Cipher, Compress, Encrypt, FRAGMENT_MIN, Fec, Frag, Keys,
    NET_HEADER, NET_PAYLOAD_MAX, Net, Reliable, Ui, Unreliable, WorkerPool,
};

/// A module in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// `ui`
    Ui,
    /// `unreliable`, or `unreliable(ordered)`
    Unreliable {
        /// Whether messages that newer ones overtook are dropped.
        ordered: bool,
    },
    /// `reliable`
    Reliable,
    /// `frag(1400)`: datagrams of at most this number of bytes, without the 10 bytes of `net`
    Frag(usize),
    /// `checksum`
    Checksum,
    /// `fec(8,2)`: 2 parities after every 8 datagrams.
    Fec {
        /// Data datagrams of a group.
        data: u8,
        /// Parities of a group.
        parities: u8,
    },
    /// `compress`
    Compress,
    /// `encrypt(chacha20)`, `encrypt(aes256)`
    Encrypt(Cipher),
    /// `net`, `net(shm)` or `net(bond)`
    Net(Medium),
}

/// The medium below the network end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Datagrams of UDP.
    #[default]
    Udp,
    /// Shared memory of two processes of one machine.
    Memory,
    /// Datagrams of UDP to the port of a tunnel, which carries them over several paths.
    Bond,
}

impl Medium {
    /// What is below these steps: UDP unless their network end states another.
    fn below(steps: &[Step]) -> Self {
        match steps.last() {
            Some(Step::Net(medium)) => *medium,
            _ => Self::Udp,
        }
    }

    /// The largest message that it carries as one datagram.
    pub(crate) const fn payload_max(self) -> usize {
        match self {
            Self::Udp | Self::Memory => NET_PAYLOAD_MAX,
            Self::Bond => BOND_DATAGRAM_MAX - NET_HEADER,
        }
    }
}

/// The largest datagram that each bond carries, whatever its paths: of packets of 1280 bytes, which IPv6 asks of every network,
/// without the headers of IPv6, UDP, the bond and the tunnel, and with the secure layer twice, of the bond and of the stack.
pub const BOND_DATAGRAM_MAX: usize = 1_145;

impl Step {
    /// The module's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ui => "ui",
            Self::Unreliable { .. } => "unreliable",
            Self::Reliable => "reliable",
            Self::Frag(_) => "frag",
            Self::Checksum => "checksum",
            Self::Fec { .. } => "fec",
            Self::Compress => "compress",
            Self::Encrypt(_) => "encrypt",
            Self::Net(_) => "net",
        }
    }

    /// The number of bytes that the module adds to a message of at most this size.
    pub(crate) fn overhead(self, size: usize) -> usize {
        match self {
            Self::Ui | Self::Net(_) => 0,
            Self::Unreliable { .. } => 8,
            Self::Reliable => 9,
            Self::Frag(_) => 14,
            Self::Checksum | Self::Compress => 4,
            Self::Fec { .. } => 9,
            Self::Encrypt(_) => 8 + 16 * size.div_ceil(CHUNK).max(1),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreliable { ordered: true } => f.write_str("unreliable(ordered)"),
            Self::Frag(size) => write!(f, "frag({size})"),
            Self::Fec { data, parities } => write!(f, "fec({data},{parities})"),
            Self::Encrypt(cipher) => write!(f, "encrypt({})", cipher.name()),
            Self::Net(Medium::Memory) => f.write_str("net(shm)"),
            Self::Net(Medium::Bond) => f.write_str("net(bond)"),
            step => f.write_str(step.name()),
        }
    }
}

/// A valid stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composition {
    steps: Vec<Step>,
}

/// The byte that the endpoint appends to each message: its kind.
const TAG: usize = 1;

/// The sizes of messages that fit into datagrams of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The largest message that is sent as one datagram.
    pub message: Bytes,
    /// The bytes that the modules add to each such message. Parities of `fec`, acknowledgements and
    /// retransmissions come on top.
    pub headers: Bytes,
}

/// Why a line is not a valid stack. Places are counted from 1, from the application down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// A module is missing between two `|`, or the line is empty.
    #[error(
        "module {at}: nothing there; write modules with one `|` between, such as \"ui | reliable | frag(1400) | net\""
    )]
    Empty {
        /// The place.
        at: usize,
    },
    /// There is no such module.
    #[error("module {at}: unknown module \"{name}\"{}; there are ui, unreliable, reliable, frag, checksum, fec, compress, encrypt, net", .nearest.map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default())]
    Unknown {
        /// The place.
        at: usize,
        /// The written name, at most 40 characters of it.
        name: String,
        /// The nearest name.
        nearest: Option<&'static str>,
    },
    /// The arguments are wrong.
    #[error("module {at}: \"{text}\" is not right; write {example}")]
    Argument {
        /// The place.
        at: usize,
        /// The written text, at most 40 characters of it.
        text: String,
        /// A correct example.
        example: &'static str,
    },
    /// The module occurs twice.
    #[error("module {at}: a second {name}; write each module once")]
    Twice {
        /// The place.
        at: usize,
        /// The module.
        name: &'static str,
    },
    /// The module can't stand at this place.
    #[error("module {at}: {name} must come {rule}")]
    Order {
        /// The place.
        at: usize,
        /// The module.
        name: &'static str,
        /// The places where it may stand.
        rule: &'static str,
    },
    /// The module would do again what the bond below does.
    #[error("module {at}: {name} above net(bond), which {does} by itself; {remedy}")]
    AboveBond {
        /// The place.
        at: usize,
        /// The module.
        name: &'static str,
        /// What the bond does.
        does: &'static str,
        /// What to write.
        remedy: &'static str,
    },
    /// A module that every stack needs is missing.
    #[error("no {what} in the stack; {remedy}")]
    Missing {
        /// The missing part.
        what: &'static str,
        /// The text to be added.
        remedy: &'static str,
    },
    /// The size of datagrams is impossible.
    #[error(
        "module {at}: frag({size}), but what is below carries {FRAGMENT_MIN} to {most} bytes; write a size within that"
    )]
    Fragment {
        /// The place.
        at: usize,
        /// The requested size.
        size: usize,
        /// The largest size.
        most: usize,
    },
}

/// Why modules can't be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The stack encrypts, but there are no keys.
    #[error(
        "the stack has encrypt and there are no keys; make the connection with a key exchange, or leave encrypt out"
    )]
    NoKeys,
}

impl Composition {
    /// The modules, from the application down.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Whether the stack has this module.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.name() == name)
    }

    /// The cipher, if the stack encrypts.
    #[must_use]
    pub fn cipher(&self) -> Option<Cipher> {
        self.steps.iter().find_map(|step| match step {
            Step::Encrypt(cipher) => Some(*cipher),
            _ => None,
        })
    }

    /// The number of header bytes that the modules prepend to a message, if they do nothing else.
    #[must_use]
    pub fn headers(&self) -> Option<usize> {
        let plain = |step: &Step| matches!(step, Step::Ui | Step::Unreliable { .. } | Step::Net(_));
        let of = |&step: &Step| {
            if matches!(step, Step::Net(_)) { NET_HEADER } else { step.overhead(0) }
        };
        self.steps.iter().all(plain).then(|| self.steps.iter().map(of).sum())
    }

    /// The medium below the stack.
    #[must_use]
    pub fn medium(&self) -> Medium {
        Medium::below(&self.steps)
    }

    /// The order in which messages are delivered.
    #[must_use]
    pub fn order(&self) -> Order {
        self.steps.iter().fold(Order::Unordered, |order, step| match step {
            Step::Reliable => Order::InOrder,
            Step::Unreliable { ordered: true } => Order::NoOvertaking,
            _ => order,
        })
    }

    /// The largest message that the stack carries.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        if self.has("frag") {
            return MESSAGE_MAX;
        }
        let most = self.medium().payload_max();
        let headers: usize = self.steps.iter().map(|&step| step.overhead(most)).sum();
        Bytes((most - headers) as u64)
    }

    /// The sizes of messages that fit into datagrams of at most `datagram` bytes, without the headers of IP
    /// and UDP, and into the size of `frag`, so that nothing is fragmented. O(modules).
    #[must_use]
    pub fn fit(&self, datagram: Bytes) -> Fit {
        let datagram = datagram.0 as usize;
        let size_of = |steps: &[Step]| steps.iter().map(|&s| s.overhead(datagram)).sum::<usize>();
        let headers = TAG + size_of(&self.steps) + NET_HEADER;
        let whole = datagram.saturating_sub(headers);
        let cut = self.steps.iter().enumerate().find_map(|(n, step)| match step {
            // The header of `frag` counts as part of a fragment.
            Step::Frag(size) => Some(size.saturating_sub(TAG + size_of(&self.steps[..=n]))),
            _ => None,
        });
        let message = whole.min(cut.unwrap_or(usize::MAX)).min(self.largest().0 as usize);
        Fit { message: Bytes(message as u64), headers: Bytes(headers as u64) }
    }

    /// The modules of one connection's end, with worker threads that share the encryption of large messages,
    /// if there are any.
    pub fn build<C: Concurrency>(
        &self,
        keys: Option<&Keys>,
        worker_pool: Option<&Arc<dyn WorkerPool>>,
    ) -> Result<Vec<AnyModule<C>>, BuildError> {
        let build = |step: &Step| -> Result<AnyModule<C>, BuildError> {
            Ok(match *step {
                Step::Ui => AnyModule::Ui(Ui::new(self.largest().0 as usize)),
                Step::Unreliable { .. } => AnyModule::Unreliable(Box::<Unreliable<C>>::default()),
                Step::Reliable => AnyModule::Reliable(Box::<Reliable<C>>::default()),
                Step::Frag(size) => AnyModule::Frag(Box::new(Frag::new(size))),
                Step::Checksum => AnyModule::Checksum(Checksum),
                Step::Fec { data, parities } => AnyModule::Fec(Box::new(Fec::new(data, parities))),
                Step::Compress => AnyModule::Compress(Compress),
                Step::Encrypt(cipher) => {
                    let encrypt = Encrypt::new(cipher, keys.ok_or(BuildError::NoKeys)?);
                    AnyModule::Encrypt(Box::new(encrypt.shared_with(worker_pool.cloned())))
                }
                Step::Net(_) => AnyModule::Net(Net),
            })
        };
        self.steps.iter().map(build).collect()
    }
}

impl FromStr for Composition {
    type Err = ComposeError;
    fn from_str(line: &str) -> Result<Self, ComposeError> {
        let steps = parse::steps(line)?;
        parse::check(&steps)?;
        Ok(Self { steps })
    }
}

impl fmt::Display for Composition {
    /// The form that `FromStr` parses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.steps.iter().enumerate() {
            let before = if n == 0 { "" } else { " | " };
            write!(f, "{before}{step}")?;
        }
        Ok(())
    }
}
