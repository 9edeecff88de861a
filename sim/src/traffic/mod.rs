//! Traffic beside the product's own: transfers and requests by models of TCP.

mod tcp;

pub use tcp::{Connection, Control, Load, TcpParams};
