//! A datagram as the network brought it: where its bytes lie decides whether they are copied.

/// A datagram that the network brought.
#[derive(Debug)]
pub(crate) enum Datagram<'a> {
    /// In a buffer with others.
    SharedBuffer(&'a [u8]),
    /// In a buffer of its own, of the largest datagram's size: it may be had for another.
    OwnBuffer(&'a mut Vec<u8>),
    /// Such a one without its headers, which were read into another.
    SplitHeaders(&'a [u8], &'a mut Vec<u8>),
}

impl Datagram<'_> {
    /// Its bytes, at least those of its headers.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::SharedBuffer(bytes) => bytes,
            Self::OwnBuffer(bytes) => bytes,
            Self::SplitHeaders(headers, _) => headers,
        }
    }

    /// The same in one piece.
    pub(crate) fn contiguous(self) -> Self {
        match self {
            Self::SplitHeaders(headers, bytes) => {
                bytes.splice(0..0, headers.iter().copied());
                Self::OwnBuffer(bytes)
            }
            datagram => datagram,
        }
    }
}
