//! Stacks as a line of text: `ui | encrypt(chacha20) | reliable | frag(1400) | net`.
//!
//! Modules from the application down to the network, with a stroke between. Both hosts must use
//! the same line; it is part of what they agree on when they connect.

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
        /// Messages that newer ones overtook are dropped.
        ordered: bool,
    },
    /// `reliable`
    Reliable,
    /// `frag(1400)`: datagrams of at most so many bytes, `net`'s own 10 not counted.
    Frag(usize),
    /// `checksum`
    Checksum,
    /// `fec(8,2)`: 2 parities after every 8 datagrams.
    Fec {
        /// Datagrams of a group.
        data: u8,
        /// Parities of a group.
        parities: u8,
    },
    /// `compress`
    Compress,
    /// `encrypt(chacha20)`, `encrypt(aes256)`
    Encrypt(Cipher),
    /// `net`, or `net(shm)`
    Net(Medium),
}

/// What is below the network end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Datagrams of UDP.
    #[default]
    Udp,
    /// Memory that two processes of one machine share.
    Memory,
}

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
}

impl Step {
    /// How many bytes the module adds to a message of at most this size.
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
            step => f.write_str(step.name()),
        }
    }
}

/// A stack that makes sense.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composition {
    steps: Vec<Step>,
}

/// What the endpoint appends to each message: of what sort it is.
const TAG: usize = 1;

/// How messages fit into datagrams of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The largest message that goes as one datagram.
    pub message: Bytes,
    /// What the modules add to each such message; parities of `fec`, acknowledgements and what is
    /// sent again come on top.
    pub headers: Bytes,
}

/// Why a line is no stack. Places are counted from 1, from the application down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// Nothing between two strokes, or nothing at all.
    #[error(
        "module {at}: nothing there; write modules with one `|` between, such as \"ui | reliable | frag(1400) | net\""
    )]
    Empty {
        /// Which place.
        at: usize,
    },
    /// No such module.
    #[error("module {at}: unknown module \"{name}\"{}; there are ui, unreliable, reliable, frag, checksum, fec, compress, encrypt, net", .nearest.map(|name| format!(", did you mean \"{name}\"?")).unwrap_or_default())]
    Unknown {
        /// Which place.
        at: usize,
        /// What was written, at most 40 characters of it.
        name: String,
        /// What may have been meant.
        nearest: Option<&'static str>,
    },
    /// Not the arguments that it takes.
    #[error("module {at}: \"{text}\" is not right; write {example}")]
    Argument {
        /// Which place.
        at: usize,
        /// What was written, at most 40 characters of it.
        text: String,
        /// What would be right.
        example: &'static str,
    },
    /// A module that is there already.
    #[error("module {at}: a second {name}; write each module once")]
    Twice {
        /// Which place.
        at: usize,
        /// Which module.
        name: &'static str,
    },
    /// It can't stand there.
    #[error("module {at}: {name} must come {rule}")]
    Order {
        /// Which place.
        at: usize,
        /// Which module.
        name: &'static str,
        /// Where it may stand.
        rule: &'static str,
    },
    /// A module that every stack needs.
    #[error("no {what} in the stack; {remedy}")]
    Missing {
        /// What is missing.
        what: &'static str,
        /// What to write.
        remedy: &'static str,
    },
    /// Datagrams that nothing can carry.
    #[error(
        "module {at}: frag({size}), but what is below carries {FRAGMENT_MIN} to {most} bytes; write a size within that"
    )]
    Fragment {
        /// Which place.
        at: usize,
        /// What was asked.
        size: usize,
        /// The most.
        most: usize,
    },
}

/// Why modules can't be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The stack encrypts and there are no keys.
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

    /// Whether it has this module.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.name() == name)
    }

    /// The cipher, if it encrypts.
    #[must_use]
    pub fn cipher(&self) -> Option<Cipher> {
        self.steps.iter().find_map(|step| match step {
            Step::Encrypt(cipher) => Some(*cipher),
            _ => None,
        })
    }

    /// The bytes of the headers that its modules put before a message, if they do nothing else.
    #[must_use]
    pub fn headers(&self) -> Option<usize> {
        let plain = |step: &Step| matches!(step, Step::Ui | Step::Unreliable { .. } | Step::Net(_));
        let of = |&step: &Step| {
            if matches!(step, Step::Net(_)) { NET_HEADER } else { step.overhead(0) }
        };
        self.steps.iter().all(plain).then(|| self.steps.iter().map(of).sum())
    }

    /// What is below it.
    #[must_use]
    pub fn medium(&self) -> Medium {
        match self.steps.last() {
            Some(Step::Net(medium)) => *medium,
            _ => Medium::Udp,
        }
    }

    /// In which order messages are delivered.
    #[must_use]
    pub fn order(&self) -> Order {
        self.steps.iter().fold(Order::Unordered, |order, step| match step {
            Step::Reliable => Order::InOrder,
            Step::Unreliable { ordered: true } => Order::NoOvertaking,
            _ => order,
        })
    }

    /// The largest message that it carries.
    #[must_use]
    pub fn largest(&self) -> Bytes {
        if self.has("frag") {
            return MESSAGE_MAX;
        }
        let headers: usize = self.steps.iter().map(|&step| step.overhead(NET_PAYLOAD_MAX)).sum();
        Bytes((NET_PAYLOAD_MAX - headers) as u64)
    }

    /// How messages fit into datagrams of at most `datagram` bytes, headers of IP and UDP not
    /// counted; and into what `frag` allows, so that nothing is cut. O(modules).
    #[must_use]
    pub fn fit(&self, datagram: Bytes) -> Fit {
        let datagram = datagram.0 as usize;
        let size_of = |steps: &[Step]| steps.iter().map(|&s| s.overhead(datagram)).sum::<usize>();
        let headers = TAG + size_of(&self.steps) + NET_HEADER;
        let whole = datagram.saturating_sub(headers);
        let cut = self.steps.iter().enumerate().find_map(|(n, step)| match step {
            // The fragment's own header counts as part of it.
            Step::Frag(size) => Some(size.saturating_sub(TAG + size_of(&self.steps[..=n]))),
            _ => None,
        });
        let message = whole.min(cut.unwrap_or(usize::MAX)).min(self.largest().0 as usize);
        Fit { message: Bytes(message as u64), headers: Bytes(headers as u64) }
    }

    /// The modules of one connection's end.
    pub fn build<C: Concurrency>(
        &self,
        keys: Option<&Keys>,
    ) -> Result<Vec<AnyModule<C>>, BuildError> {
        self.build_with(keys, None)
    }

    /// The same, where slaves share the encryption of large messages.
    pub fn build_with<C: Concurrency>(
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
    /// As `FromStr` reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.steps.iter().enumerate() {
            let before = if n == 0 { "" } else { " | " };
            write!(f, "{before}{step}")?;
        }
        Ok(())
    }
}
