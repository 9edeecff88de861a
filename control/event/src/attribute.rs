//! Names with values that accompany an event: filters and monitors add them, and they are not part
//! of the event's format. They are encoded one after the other, so that adding one is appending.

use serde::{Deserialize, Serialize};

/// The largest number of attributes of an event.
pub(crate) const ATTRIBUTES_MAX: usize = 32;
/// The largest number of bytes that they take together.
pub(crate) const ATTRIBUTES_BYTES_MAX: usize = 4096;
/// The longest name, in bytes.
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

/// Why an attribute was not added, or attributes were not parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttributeError {
    /// There are too many attributes.
    #[error("an event has at most {ATTRIBUTES_MAX} attributes; send the rest as members")]
    TooMany,
    /// The attributes are too large.
    #[error("attributes take at most {ATTRIBUTES_BYTES_MAX} bytes; send long values as members")]
    TooLarge,
    /// A name is empty or too long.
    #[error("an attribute's name has 1 to {NAME_MAX} bytes, this one has {0}")]
    Name(usize),
    /// The event already has an attribute of this name.
    #[error("the attribute is there already; read it, or take another name")]
    Twice,
    /// The bytes are not attributes.
    #[error("the attributes end in the middle, or are none; the sender is broken")]
    Malformed,
}

/// Attributes in their encoded form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// Parses and checks all of them.
    ///
    /// # Errors
    /// The error in them.
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

    /// The encoded form.
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

    /// The value of the attribute of this name.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// Attributes that are being composed. The memory is reused after [`clear`](Self::clear).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttributesBuf {
    bytes: Vec<u8>,
    count: usize,
}

impl AttributesBuf {
    /// The attributes of a received event, to add more.
    pub fn from_received(attributes: Attributes<'_>) -> Self {
        Self { bytes: attributes.bytes.to_vec(), count: attributes.iter().count() }
    }

    /// Adds an attribute.
    ///
    /// # Errors
    /// If there is no room, or the name exists already; then nothing is changed.
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

    /// Removes all attributes.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// The attributes in the form in which they are sent.
    pub fn as_attributes(&self) -> Attributes<'_> {
        Attributes { bytes: &self.bytes }
    }
}
