//! What a datagram leaves for a message: for senders whose messages are small enough to be one
//! datagram each, such as a node's packets of media.

use selvedge_units::Bytes;

use super::{Composition, Step};
use crate::module::NET_HEADER;

/// What the endpoint appends to each message: of what sort it is.
const TAG: usize = 1;

/// How messages fit into datagrams of a given size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The largest message that goes as one datagram.
    pub message: Bytes,
    /// What the modules add to each such message; parities of `fec`, acknowledgements and what is
    /// sent again come on top.
    pub headers: Bytes,
}

impl Composition {
    /// How messages fit into datagrams of at most `datagram` bytes, headers of IP and UDP not
    /// counted; and into what `frag` allows, so that nothing is cut. O(modules).
    #[must_use]
    pub fn fit(&self, datagram: Bytes) -> Fit {
        let datagram = datagram.0 as usize;
        let size_of = |steps: &[Step]| steps.iter().map(|&s| s.overhead(datagram)).sum::<usize>();
        let headers = TAG + size_of(&self.steps) + NET_HEADER;
        let whole = datagram.saturating_sub(headers);
        let cut = self.steps.iter().enumerate().find_map(|(n, step)| match step {
            // The fragment's own header counts as part of it.
            Step::Frag(size) => Some(size.saturating_sub(TAG + size_of(&self.steps[..=n]))),
            _ => None,
        });
        let message = whole.min(cut.unwrap_or(usize::MAX)).min(self.largest().0 as usize);
        Fit { message: Bytes(message as u64), headers: Bytes(headers as u64) }
    }
}
