//! System services in the kernel, by BPF: occurrences of sockets, processor time, packets and
//! memory, as events with process, data and deadline.
//!
//! In Q-Fabric's ECalls, kernel services raise events for applications, and applications put
//! handlers into the kernel that inspect, gather or block them (sections 3.2.2 to 3.2.5). Here:
//!
//! - [`Watch`]: a running [`Service`], started by [`WatchOptions`]. Each occurrence passes filters, then a
//!   threshold or a handler in E-code that runs in the kernel. Raised events come by a ring that is read
//!   without a system call, in the order of deadlines, and on request as a real-time signal.
//! - [`Provided`]: the same, registered by its name, for programs without the right to load programs.
//! - [`Readiness`]: the I/O event module of section 3.5.1: the set of ready sockets, in shared memory.
//! - [`ListenQueue`]: the listen-queue controller of Figure 21, for any server, unmodified.
//! - [`Answerer`]: datagrams that a handler in the kernel answers, before any process runs.
//!
//! Programs attach to the kernel's tracepoints, since stock machines may refuse other places.
//! Nothing is pinned: all that a process has loaded ends with it, however it ends.

mod answer;
mod catalog;
mod change_ring;
mod error;
mod handler;
mod layout;
mod listen;
mod load;
mod provided;
mod readiness;
mod readiness_board;
mod ring;
mod signal;
mod watch;

pub use answer::{AnswerError, Answered, Answerer};
pub use catalog::{Kind, Service, UnknownService};
pub use error::ServiceError;
pub use handler::{DECLARATIONS, environment, program};
pub use layout::{Event, Tally};
pub use listen::{ListenError, ListenQueue, Listener, Queue};
pub use provided::{EVENT_FORMAT, Provided, event};
pub use readiness::{AttachError, Readiness, Ready};
pub use readiness_board::DESCRIPTORS;
pub use selvedge_os_bpf::ProgramError;
pub use signal::Target;
pub use watch::{Change, ChangePath, Watch, WatchOptions, now};
