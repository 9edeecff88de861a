//! The two ends of a link between members: one tells each format before its first event, the other
//! learns them and reads records as its own format has them.

use std::sync::Arc;

use crate::format::{Format, FormatError, FormatId};
use crate::message::{EncodeError, Message};
use crate::plan::{Mismatch, Plan};

/// The most formats of one peer; one that has more is broken, or means harm.
pub(crate) const FORMATS_MAX: usize = 64;

/// What a peer has been told. Forget it when the link is made anew.
#[derive(Clone, Debug, Default)]
pub struct FormatSender {
    sent: Vec<FormatId>,
}

impl FormatSender {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a description if the peer has not had it: true if so.
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

    /// The peer asks for a format, or has begun anew.
    pub fn forget_format(&mut self, format: FormatId) {
        self.sent.retain(|known| *known != format);
    }
}

/// Why a record can't be read, or a format not be learnt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The format was never described: ask for it.
    #[error("records of format {0} were not described; ask for it")]
    Unknown(FormatId),
    /// It can't be read as the receiver wants.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// The record is not as long as its format says.
    #[error("a record of format {format} has {size} bytes, and was said to have {stated}")]
    Size {
        /// The format.
        format: FormatId,
        /// How long it is.
        size: usize,
        /// How long it should be.
        stated: usize,
    },
    /// The description is of another format than it says.
    #[error("a description says that it is of format {stated}, and is of {is}; it is passed over")]
    Lie {
        /// What was said.
        stated: FormatId,
        /// What it is.
        is: FormatId,
    },
    /// The description is none.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// A peer has too many formats.
    #[error("the peer describes more than {FORMATS_MAX} formats; it is broken")]
    TooMany,
}

/// What is known of one peer's formats, for one format of our own.
#[derive(Clone, Debug)]
pub struct FormatReceiver {
    wanted: Arc<Format>,
    known: Vec<(FormatId, usize, Result<Plan, Mismatch>)>,
}

impl FormatReceiver {
    /// For records that are to be read in this format.
    pub fn new(wanted: Arc<Format>) -> Self {
        Self { wanted, known: Vec::new() }
    }

    /// Learns a format. One that is known is not learnt again.
    ///
    /// # Errors
    /// If the description is none, lies, is one too many, or is of records that can't be read as
    /// wanted - which is kept, so that each of them is refused with the same reason.
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

    /// Reads a record; `into` is as long as the wanted format. Allocates nothing.
    ///
    /// # Errors
    /// If it can't be read; `into` is as before then.
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
