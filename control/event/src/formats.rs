//! The two ends of a link between members: one describes each format before its first event. The
//! other learns the formats and converts records to its own format.

use std::sync::Arc;

use crate::format::{Format, FormatError, FormatId};
use crate::message::{EncodeError, Message};
use crate::plan::{Mismatch, Plan};

/// The largest number of formats of one peer; a peer with more is broken or hostile.
pub(crate) const FORMATS_MAX: usize = 64;

/// The formats that were described to a peer. A new link needs a new one.
#[derive(Clone, Debug, Default)]
pub struct FormatSender {
    sent: Vec<FormatId>,
}

impl FormatSender {
    /// Appends a description if the peer has not had it; returns true if so.
    ///
    /// # Errors
    /// If the format is too large to be described.
    pub fn describe(&mut self, format: &Format, to: &mut Vec<u8>) -> Result<bool, EncodeError> {
        if self.sent.contains(&format.id()) {
            return Ok(false);
        }
        Message::describe(format).encode(to)?;
        if self.sent.len() >= FORMATS_MAX {
            self.sent.remove(0);
        }
        self.sent.push(format.id());
        Ok(true)
    }

    /// Forgets that a format was described: the peer requests it, or has restarted.
    pub fn forget_format(&mut self, format: FormatId) {
        self.sent.retain(|known| *known != format);
    }
}

/// Why a record can't be read, or a format can't be learnt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The format was never described, and must be requested.
    #[error("records of format {0} were not described; ask for it")]
    Unknown(FormatId),
    /// The record can't be converted as the receiver requires.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The record's length differs from that of its format.
    #[error("a record of format {format} has {size} bytes, and was said to have {stated}")]
    Size {
        /// The format.
        format: FormatId,
        /// The record's length.
        size: usize,
        /// The format's length.
        stated: usize,
    },
    /// The description is of another format than it states.
    #[error("a description says that it is of format {stated}, and is of {is}; it is passed over")]
    Lie {
        /// The stated format.
        stated: FormatId,
        /// The actual format.
        is: FormatId,
    },
    /// The description is not a format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A peer has too many formats.
    #[error("the peer describes more than {FORMATS_MAX} formats; it is broken")]
    TooMany,
}

/// The known formats of one peer, for one format of this host.
#[derive(Clone, Debug)]
pub struct FormatReceiver {
    wanted: Arc<Format>,
    known: Vec<(FormatId, usize, Result<Plan, Mismatch>)>,
}

impl FormatReceiver {
    /// A receiver of records that are converted to this format.
    pub fn new(wanted: Arc<Format>) -> Self {
        Self { wanted, known: Vec::new() }
    }

    /// Learns a format. A known format is not learnt again.
    ///
    /// # Errors
    /// If the description is invalid, states a wrong identity, is one too many, or is of records that can't
    /// be converted. The last error is kept, so that each such record is refused with the same reason.
    pub fn accept_description(
        &mut self,
        stated: FormatId,
        name: &str,
        text: &str,
    ) -> Result<(), ReadError> {
        if let Some((_, _, plan)) = self.known.iter().find(|(known, ..)| *known == stated) {
            return plan.as_ref().map(|_| ()).map_err(|mismatch| mismatch.clone().into());
        }
        if self.known.len() >= FORMATS_MAX {
            return Err(ReadError::TooMany);
        }
        let format = Format::parse(name, text)?;
        let is = format.id();
        if is != stated {
            return Err(ReadError::Lie { stated, is });
        }
        let plan = Plan::new(format.layout(), self.wanted.layout());
        let failed = plan.as_ref().err().cloned();
        self.known.push((stated, format.size(), plan));
        failed.map_or(Ok(()), |mismatch| Err(mismatch.into()))
    }

    /// Reads a record; `into` has the length of the wanted format. Allocates nothing.
    ///
    /// # Errors
    /// If it can't be read; then `into` is unchanged.
    pub fn read(&self, format: FormatId, record: &[u8], into: &mut [u8]) -> Result<(), ReadError> {
        let wrong = |stated| ReadError::Size { format, size: record.len(), stated };
        if format == self.wanted.id() {
            if record.len() != into.len() {
                return Err(wrong(into.len()));
            }
            into.copy_from_slice(record);
            return Ok(());
        }
        let known = self.known.iter().find(|(known, ..)| *known == format);
        let (_, stated, plan) = known.ok_or(ReadError::Unknown(format))?;
        let plan = plan.as_ref().map_err(Clone::clone)?;
        if !plan.apply(record, into) {
            return Err(wrong(*stated));
        }
        Ok(())
    }
}
