//! Streams over protocol stacks: the connections that carry the packets of a link's streams in place of plain UDP, in the
//! process that sends them. A node has them for its inline links, and a coprocessor for its own.
//!
//! [`StackSpec`] states what is requested; [`StackHost`] opens endpoints and connects; [`CarriedState`] is what is known of a
//! connection, also in a process that does not have it. Beside them are the files that prove an endpoint's identity
//! ([`credentials`]), and the socket through which `selvedge stack` inspects a process ([`control_server`]).

#![forbid(unsafe_code)]

mod acknowledged;
mod carried_state;
mod contract_terms;
pub mod control_server;
pub mod credentials;
mod rehearsal;
mod stack_host;
mod stack_spec;
mod stream_connection;

pub use acknowledged::Acknowledged;
pub use carried_state::{CarriedState, StackProgress};
pub use contract_terms::LinkRate;
pub use rehearsal::{StackRefusal, refused_stacks};
pub use stack_host::{CarriedStream, StackError, StackHost, Target, overhead};
pub use stack_spec::{EndSpec, StackSpec, StackSpecError};
