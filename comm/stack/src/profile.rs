//! What modules, pipes and hand-overs cost on this machine: Table 1 of the paper, ours.

mod call;
mod kept;
mod measured;
mod ring;
mod sharing;
mod whole;

pub use self::call::call;
pub use self::kept::{keep, kept};
pub use self::measured::{ModuleProfile, PipeProfile, modules, pipes};
pub use self::ring::ring;
pub use self::sharing::{Sharing, calling, sharing};
pub use self::whole::Profile;
