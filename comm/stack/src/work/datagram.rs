//! A datagram from the network: the place of its bytes decides whether they are copied.

/// A datagram from the network.
#[derive(Debug)]
pub(crate) enum Datagram<'a> {
    /// The bytes are in a buffer with others.
    SharedBuffer(&'a [u8]),
    /// The bytes have a buffer of their own, of the largest datagram's size; it may be swapped for another.
    OwnBuffer(&'a mut Vec<u8>),
    /// The payload has a buffer of its own, and the headers were read into another.
    SplitHeaders(&'a [u8], &'a mut Vec<u8>),
}

impl Datagram<'_> {
    /// The datagram's bytes, at least those of its headers.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::SharedBuffer(bytes) => bytes,
            Self::OwnBuffer(bytes) => bytes,
            Self::SplitHeaders(headers, _) => headers,
        }
    }

    /// The same datagram in one piece.
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
