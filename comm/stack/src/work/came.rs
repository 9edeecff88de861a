//! A datagram as the network brought it: where its bytes lie decides whether they are copied.

/// A datagram that the network brought.
#[derive(Debug)]
pub(crate) enum Came<'a> {
    /// In a buffer with others.
    Shared(&'a [u8]),
    /// In a buffer of its own, of the largest datagram's size: it may be had for another.
    Alone(&'a mut Vec<u8>),
    /// Such a one without its headers, which were read into another.
    Apart(&'a [u8], &'a mut Vec<u8>),
}

impl Came<'_> {
    /// Its bytes, at least those of its headers.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Alone(bytes) => bytes,
            Self::Apart(headers, _) => headers,
        }
    }

    /// The same in one piece.
    pub(crate) fn joined(self) -> Self {
        match self {
            Self::Apart(headers, bytes) => {
                bytes.splice(0..0, headers.iter().copied());
                Self::Alone(bytes)
            }
            came => came,
        }
    }
}
