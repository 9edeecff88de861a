//! The words of an RTCP datagram, and why bytes are none.

/// Parts of a datagram, at most.
pub(crate) const PARTS_MAX: usize = 64;

/// Why a datagram is no RTCP. Nothing of it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RtcpError {
    /// A part is shorter than its own head or kind says.
    #[error("{0} bytes are too few for this part of an RTCP datagram")]
    Truncated(usize),
    /// Not version 2.
    #[error("RTCP version {0} is not 2")]
    Version(u8),
    /// The padding is longer than its part.
    #[error("padding of {0} bytes is longer than its part")]
    Padding(u8),
    /// More parts than any receiver sends.
    #[error("more than {PARTS_MAX} parts in one datagram")]
    Parts,
    /// It names more packets than can be under way.
    #[error("feedback of {0} packets is of more than can be under way")]
    Count(usize),
    /// A symbol of transport feedback that has no meaning.
    #[error("packet status {0} of transport feedback is reserved")]
    Status(u8),
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Result<u32, RtcpError> {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map(|word| u32::from_be_bytes(*word)).ok_or(RtcpError::Truncated(bytes.len()))
}

/// Two bytes of a slice that has them.
pub(crate) fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}
