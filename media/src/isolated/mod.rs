//! Sources that parse network data, each in a process of its own that may do nothing else.
//!
//! `node <- socket <- process: GStreamer, payloader, pictures <- network`. The node starts the same
//! program again ([`SourceProcess`]), which runs [`serve`] and nothing else: it loads its plug-ins,
//! gives up all rights ([`selvedge_os::sandbox`]), opens the source and sends frames. Frames are copied
//! through a socket; the two share no memory. Messages are checked ([`message`]) before they are used,
//! since malicious data may have taken over the process. When it dies, the socket ends, and its node
//! opens the source again.

mod message;
mod plugins;
mod process;
mod serving;

pub use plugins::comes_from_network;
pub use process::{SourceProcess, SourceRequest};
pub use serving::serve;
