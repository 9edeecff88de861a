//! The measured cost of modules, pipes and hand-overs on this machine, as in Table 1 of the paper.

mod cached;
mod call;
mod measured;
mod ring;
mod sharing;
mod whole;

pub use self::cached::{cached, keep};
pub use self::call::call;
pub use self::measured::{ModuleProfile, PipeProfile, modules, pipes};
pub use self::ring::ring;
pub use self::sharing::{Sharing, calling, sharing};
pub use self::whole::Profile;
