//! Names with values that ride on an event: what filters and monitors add, without being part of the
//! event's format. Encoded one after the other, so that adding one is appending.

use serde::{Deserialize, Serialize};

/// The most attributes of an event.
pub(crate) const ATTRIBUTES_MAX: usize = 32;
/// The most bytes that they take together.
pub(crate) const ATTRIBUTES_BYTES_MAX: usize = 4096;
/// The longest name.
pub(crate) const NAME_MAX: usize = 64;

/// An attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value<'a> {
    /// An integer.
    Long(i64),
    /// A number.
    Double(f64),
    /// A text.
    Text(&'a str),
}

/// Why an attribute was not added, or attributes not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// Too many.
    #[error("an event has at most {ATTRIBUTES_MAX} attributes; send the rest as members")]
    TooMany,
    /// Too large.
    #[error("attributes take at most {ATTRIBUTES_BYTES_MAX} bytes; send long values as members")]
    TooLarge,
    /// A name that is empty or long.
    #[error("an attribute's name has 1 to {NAME_MAX} bytes, this one has {0}")]
    Name(usize),
    /// The name is there already.
    #[error("the attribute is there already; read it, or take another name")]
    Twice,
    /// The bytes are no attributes.
    #[error("the attributes end in the middle, or are none; the sender is broken")]
    Malformed,
}

/// Attributes as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Checks all of them.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AttributeError> {
        if bytes.len() > ATTRIBUTES_BYTES_MAX {
            return Err(AttributeError::TooLarge);
        }
        let mut names = [""; ATTRIBUTES_MAX];
        let (mut rest, mut count) = (bytes, 0);
        while !rest.is_empty() {
            let ((name, _), after) = postcard::take_from_bytes::<(&str, Value<'_>)>(rest)
                .map_err(|_| AttributeError::Malformed)?;
            if !(1..=NAME_MAX).contains(&name.len()) {
                return Err(AttributeError::Name(name.len()));
            }
            if names[..count].contains(&name) {
                return Err(AttributeError::Twice);
            }
            *names.get_mut(count).ok_or(AttributeError::TooMany)? = name;
            count += 1;
            rest = after;
        }
        Ok(Self { bytes })
    }

    /// As they travel.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// All of them, in the order in which they were added.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (one, after) = postcard::take_from_bytes(rest).ok()?;
            rest = after;
            Some(one)
        })
    }

    /// The value of a name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// Attributes that are being put together. Its memory is reused after [`clear`](Self::clear).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributesBuf {
    bytes: Vec<u8>,
    count: usize,
}

impl AttributesBuf {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Those that came with an event, to add more.
    pub fn from_received(attributes: Attributes<'_>) -> Self {
        Self { bytes: attributes.bytes.to_vec(), count: attributes.iter().count() }
    }

    /// Adds one.
    ///
    /// # Errors
    /// If there is no room, or the name is there already; nothing is changed then.
    pub fn add(&mut self, name: &str, value: Value<'_>) -> Result<&mut Self, AttributeError> {
        if !(1..=NAME_MAX).contains(&name.len()) {
            return Err(AttributeError::Name(name.len()));
        }
        if self.count >= ATTRIBUTES_MAX {
            return Err(AttributeError::TooMany);
        }
        if self.as_attributes().get(name).is_some() {
            return Err(AttributeError::Twice);
        }
        let start = self.bytes.len();
        self.bytes.resize(ATTRIBUTES_BYTES_MAX, 0);
        let room = &mut self.bytes[start..];
        let size = postcard::to_slice(&(name, value), room).map(|one| one.len()).ok();
        self.bytes.truncate(start + size.unwrap_or(0));
        size.ok_or(AttributeError::TooLarge)?;
        self.count += 1;
        Ok(self)
    }

    /// Takes all of them away.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// To be sent.
    pub fn as_attributes(&self) -> Attributes<'_> {
        Attributes { bytes: &self.bytes }
    }
}
