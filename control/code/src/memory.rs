//! A handler's memory: one block of bytes, the same in all back ends, little-endian.
//!
//! | byte | what |
//! |---|---|
//! | 0 | the budget, set by the host |
//! | 8 | the rest of it, set by a handler with loops |
//! | 16 | the result |
//! | 24 | the fault: 0 none, 1 out of fuel, 2 out of bounds; set by the handler |
//! | 28 | where it happened: a byte of the source |
//! | 32 | zero, always; the kernel's verifier does not know |
//! | 64 | the records, the static variables, the handler's arrays |

use crate::form::Program;
use crate::limits::{FUEL_DEFAULT, FUEL_MAX};
use crate::source::Position;
use crate::types::{Storage, Struct, Type};

pub(crate) const BUDGET: u32 = 0;
pub(crate) const LEFT: u32 = 8;
pub(crate) const RESULT: u32 = 16;
pub(crate) const FAULT: u32 = 24;
pub(crate) const FAULT_AT: u32 = 28;
pub(crate) const ZERO: u32 = 32;
/// Where the records begin.
pub(crate) const HEADER: u32 = 64;

pub(crate) const OUT_OF_FUEL: u32 = 1;
pub(crate) const OUT_OF_BOUNDS: u32 = 2;

/// Why a handler was ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Its loops used up the budget; the loop at this byte of the source would have continued.
    #[error("the loop used up the budget of {budget} operations; do less, or give more")]
    OutOfFuel {
        /// Where the loop begins.
        at: u32,
        /// The budget of a call.
        budget: u64,
    },
    /// An index was not below the length.
    #[error("the index is out of bounds; compare it with the length before")]
    OutOfBounds {
        /// The place of the index.
        at: u32,
    },
}

impl Fault {
    /// The byte of the source.
    pub fn at(self) -> u32 {
        match self {
            Self::OutOfFuel { at, .. } | Self::OutOfBounds { at } => at,
        }
    }

    /// Line and column in a program's source.
    pub fn position(self, program: &Program) -> Position {
        program.position(self.at())
    }
}

/// A handler's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    bytes: Vec<u8>,
}

/// An eight-byte number of a block.
pub(crate) fn word(bytes: &[u8], at: u32) -> u64 {
    load(bytes, at as usize, Storage::UnsignedLong).unwrap_or(0)
}

/// The value at a place; `None` outside of the block.
pub(crate) fn load(bytes: &[u8], at: usize, storage: Storage) -> Option<u64> {
    let stored = bytes.get(at..at.checked_add(storage.size() as usize)?)?;
    let mut word = [0; 8];
    word[..stored.len()].copy_from_slice(stored);
    Some(crate::arithmetic::narrow(storage, u64::from_le_bytes(word)))
}

/// Stores a value; `None` outside of the block, with nothing done.
pub(crate) fn store(bytes: &mut [u8], at: usize, storage: Storage, value: u64) -> Option<()> {
    let size = storage.size() as usize;
    let stored = bytes.get_mut(at..at.checked_add(size)?)?;
    stored.copy_from_slice(&value.to_le_bytes()[..size]);
    Some(())
}

impl Memory {
    /// A program's memory before its first call: zero except for declared values, and the default budget.
    pub fn new(program: &Program) -> Self {
        let mut bytes = vec![0; program.memory_size()];
        for (at, storage, value) in &program.initial {
            store(&mut bytes, *at as usize, *storage, *value).expect("the checker made the room");
        }
        let mut memory = Self { bytes };
        memory.set_budget(FUEL_DEFAULT);
        memory
    }

    /// Sets the budget of each call, in operations inside of loops; at most [`FUEL_MAX`].
    pub fn set_budget(&mut self, fuel: u64) {
        let fuel = fuel.min(FUEL_MAX);
        store(&mut self.bytes, BUDGET as usize, Storage::UnsignedLong, fuel).expect("a header");
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes, for back ends and for copies. Writing to the header or to padding can only spoil one
    /// result.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The bytes of a record.
    pub fn record(&self, program: &Program, name: &str) -> Option<&[u8]> {
        let placed = program.record(name)?;
        let start = placed.offset as usize;
        self.bytes.get(start..start + placed.record.layout.size as usize)
    }

    /// The bytes of a record, for writing.
    pub fn record_mut(&mut self, program: &Program, name: &str) -> Option<&mut [u8]> {
        let placed = program.record(name)?;
        let start = placed.offset as usize;
        self.bytes.get_mut(start..start + placed.record.layout.size as usize)
    }

    /// The result of the last call.
    ///
    /// # Errors
    /// The fault that ended it.
    pub fn outcome(&self) -> Result<i64, Fault> {
        outcome(&self.bytes)
    }

    /// How much of its budget a handler's last call used.
    pub fn used(&self, program: &Program) -> u64 {
        if !program.has_loops {
            return 0;
        }
        word(&self.bytes, BUDGET).saturating_sub(word(&self.bytes, LEFT))
    }
}

/// The result of the last call, read from a block.
///
/// # Errors
/// The fault that ended it.
pub fn outcome(bytes: &[u8]) -> Result<i64, Fault> {
    let fault = word(bytes, FAULT);
    let at = (fault >> 32) as u32;
    match fault as u32 {
        0 => Ok(word(bytes, RESULT) as i64),
        OUT_OF_FUEL => Err(Fault::OutOfFuel { at, budget: word(bytes, BUDGET) }),
        _ => Err(Fault::OutOfBounds { at }),
    }
}

/// A number inside of a record, for conversion from and to other forms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// Any signed integer.
    Signed(i64),
    /// Any unsigned integer.
    Unsigned(u64),
    /// A double.
    Double(f64),
}

impl Number {
    /// Reads the value at a byte of a block; `None` outside of the block.
    pub fn load(bytes: &[u8], at: usize, storage: Storage) -> Option<Self> {
        let bits = load(bytes, at, storage)?;
        Some(match storage {
            Storage::Double => Self::Double(f64::from_bits(bits)),
            Storage::Short | Storage::Int | Storage::Long => Self::Signed(bits as i64),
            _ => Self::Unsigned(bits),
        })
    }

    /// Stores it at a byte of a block, if the type holds it exactly; `None` if not, or outside of the block.
    /// Integers become doubles.
    pub fn store(self, bytes: &mut [u8], at: usize, storage: Storage) -> Option<()> {
        let bits = match (storage, self) {
            (Storage::Double, Self::Double(value)) => value.to_bits(),
            (Storage::Double, Self::Signed(value)) => (value as f64).to_bits(),
            (Storage::Double, Self::Unsigned(value)) => (value as f64).to_bits(),
            (_, Self::Double(_)) => return None,
            (_, Self::Signed(value)) => {
                let signed = matches!(storage, Storage::Short | Storage::Int | Storage::Long);
                let bits = value as u64;
                let fits = signed || value >= 0;
                (fits && crate::arithmetic::narrow(storage, bits) == bits).then_some(bits)?
            }
            (_, Self::Unsigned(bits)) => {
                let signed = matches!(storage, Storage::Short | Storage::Int | Storage::Long);
                let fits = !signed || i64::try_from(bits).is_ok();
                (fits && crate::arithmetic::narrow(storage, bits) == bits).then_some(bits)?
            }
        };
        store(bytes, at, storage, bits)
    }
}

/// Calls `each` with the path, offset and type of every number of a struct, in order.
pub fn numbers(layout: &Struct, each: &mut impl FnMut(&str, u32, Storage)) {
    fn walk(ty: &Type, path: &mut String, at: u32, each: &mut impl FnMut(&str, u32, Storage)) {
        let length = path.len();
        match ty {
            Type::Scalar(storage) => each(path, at, *storage),
            Type::Array(of, count) => {
                for index in 0..*count {
                    path.push_str(&format!("[{index}]"));
                    walk(of, path, at + index * of.size(), each);
                    path.truncate(length);
                }
            }
            Type::Struct(inner) => {
                for member in &inner.members {
                    if length > 0 {
                        path.push('.');
                    }
                    path.push_str(&member.name);
                    walk(&member.ty, path, at + member.offset, each);
                    path.truncate(length);
                }
            }
        }
    }
    for member in &layout.members {
        let mut path = member.name.clone();
        walk(&member.ty, &mut path, member.offset, each);
    }
}
