//! Protocol stacks whose modules are spread over processors, and moved while a connection lives.
//!
//! After COMM-adapt (Ivan-Rosu and Schwan, 1996). [`model`] foretells what a spread of modules
//! gives, [`assign`] chooses one when a connection is made, [`auto`] goes on choosing while it
//! lives. Messages come from an application or from the wire and go to the other one. Nothing here
//! reads a clock, does I/O, starts a thread or takes a lock: time is an argument. Pipes and the
//! elements that serve them are in `selvedge-comm-stack`.

#![forbid(unsafe_code)]

pub mod assign;
pub mod auto;
pub mod compose;
pub mod concurrency;
pub mod contract;
pub mod deliver;
pub mod elements;
pub mod load;
pub mod message;
pub mod model;
pub mod module;
pub mod stack;
