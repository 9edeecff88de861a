//! Conversion from a sender's layout to a receiver's: planned once for each pair of formats,
//! applied to each event.
//!
//! Members are matched by name. Members that the sender lacks become 0, and those that the receiver
//! lacks are skipped; of arrays the common part is taken. A number may become a wider one that
//! holds all of its values. Anything else is a mismatch, reported before any event.

use selvedge_control_code::{Number, Storage, Struct, Type};

/// The conversion of records of one layout into records of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    from_size: usize,
    to_size: usize,
    /// Whether the steps write every byte, padding included.
    is_whole: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Copy { from: usize, to: usize, size: usize },
    Widen { from: usize, to: usize, was: Storage, is: Storage },
}

/// Two formats that do not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{path}\" is sent as {sent} and read as {read}; read it as {sent}, or under another name"
)]
pub struct Mismatch {
    /// The member.
    pub path: String,
    /// The member's type in the sender's format.
    pub sent: String,
    /// The member's type in the receiver's format.
    pub read: String,
}

impl Plan {
    /// Plans the conversion from a sender's struct to a receiver's. Work and memory are linear in
    /// the numbers that they have in common, which their size bounds.
    ///
    /// # Errors
    /// The first member that can't be converted.
    pub fn new(from: &Struct, to: &Struct) -> Result<Self, Mismatch> {
        let (from_size, to_size) = (from.size as usize, to.size as usize);
        let mut plan = Self { from_size, to_size, is_whole: false, steps: Vec::new() };
        if from.members == to.members && from.size == to.size {
            plan.steps.push(Step::Copy { from: 0, to: 0, size: to_size });
            plan.is_whole = true;
            return Ok(plan);
        }
        plan.members(from, to, 0, 0, "")?;
        Ok(plan)
    }

    /// Converts a record. Returns `false`, and does nothing, if a length differs from the format's.
    pub fn apply(&self, from: &[u8], to: &mut [u8]) -> bool {
        if from.len() != self.from_size || to.len() != self.to_size {
            return false;
        }
        if !self.is_whole {
            to.fill(0);
        }
        for step in &self.steps {
            match *step {
                Step::Copy { from: at, to: put, size } => {
                    to[put..put + size].copy_from_slice(&from[at..at + size]);
                }
                Step::Widen { from: at, to: put, was, is } => {
                    let stored = Number::load(from, at, was).and_then(|n| n.store(to, put, is));
                    debug_assert!(stored.is_some(), "a wider type holds all values");
                }
            }
        }
        true
    }

    fn members(
        &mut self,
        from: &Struct,
        to: &Struct,
        at: usize,
        put: usize,
        path: &str,
    ) -> Result<(), Mismatch> {
        for member in &to.members {
            let Some(sent) = from.member(&member.name) else { continue };
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{}", member.name);
            let (at, put) = (at + sent.offset as usize, put + member.offset as usize);
            self.one(&sent.ty, &member.ty, at, put, &path)?;
        }
        Ok(())
    }

    fn one(
        &mut self,
        from: &Type,
        to: &Type,
        at: usize,
        put: usize,
        path: &str,
    ) -> Result<(), Mismatch> {
        match (from, to) {
            (Type::Scalar(was), Type::Scalar(is)) if was == is => {
                self.copy(at, put, was.size() as usize);
                Ok(())
            }
            (Type::Scalar(was), Type::Scalar(is)) if holds(*was, *is) => {
                self.steps.push(Step::Widen { from: at, to: put, was: *was, is: *is });
                Ok(())
            }
            (Type::Array(sent, sent_length), Type::Array(read, read_length)) => {
                let common = *sent_length.min(read_length) as usize;
                if sent == read {
                    self.copy(at, put, common * sent.size() as usize);
                    return Ok(());
                }
                for index in 0..common {
                    let at = at + index * sent.size() as usize;
                    let put = put + index * read.size() as usize;
                    self.one(sent, read, at, put, path)?;
                }
                Ok(())
            }
            (Type::Struct(sent), Type::Struct(read)) => {
                if sent.members == read.members {
                    self.copy(at, put, read.size as usize);
                    return Ok(());
                }
                self.members(sent, read, at, put, path)
            }
            _ => Err(Mismatch {
                path: path.to_owned(),
                sent: from.to_string(),
                read: to.to_string(),
            }),
        }
    }

    /// Adds a copy, or extends the last one.
    fn copy(&mut self, at: usize, put: usize, more: usize) {
        if let Some(Step::Copy { from, to, size }) = self.steps.last_mut()
            && (*from + *size, *to + *size) == (at, put)
        {
            *size += more;
            return;
        }
        self.steps.push(Step::Copy { from: at, to: put, size: more });
    }
}

/// Whether a type holds all values of another exactly.
fn holds(was: Storage, is: Storage) -> bool {
    let range = |storage| match storage {
        Storage::Char => Some((0, 8)),
        Storage::Short => Some((15, 15)),
        Storage::UnsignedShort => Some((0, 16)),
        Storage::Int => Some((31, 31)),
        Storage::Unsigned => Some((0, 32)),
        Storage::Long => Some((63, 63)),
        Storage::UnsignedLong => Some((0, 64)),
        Storage::Double => None,
    };
    match (range(was), range(is)) {
        (Some((below, above)), Some((least, most))) => below <= least && above <= most,
        // Doubles hold integers of up to 53 bits.
        (Some((_, above)), None) => above <= 53,
        (None, _) => is == Storage::Double,
    }
}
