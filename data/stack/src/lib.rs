//! Protocol stacks with modules that are spread over processors, and moved while a connection lives.
//!
//! After COMM-adapt (Ivan-Rosu and Schwan, 1996). [`model`] predicts the performance of a spread of
//! modules, [`assign`] chooses one when a connection is made, and [`auto`] keeps choosing while it
//! lives. Messages come from an application or from the network and go to the other side. This
//! crate reads no clock, does no I/O, starts no thread and takes no lock: time is an argument.
//! Pipes and the elements that serve them are in `selvedge-comm-stack`.

#![forbid(unsafe_code)]

pub mod assign;
pub mod auto;
pub mod compose;
pub mod concurrency;
pub mod contract;
pub mod deliver;
pub mod elements;
pub mod endpoint;
pub mod load;
pub mod message;
pub mod model;
pub mod module;
pub mod stack;
