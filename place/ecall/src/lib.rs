//! ECalls: calls from programs to system services and events back, over memory that both share,
//! after Q-Fabric's chapter 3.

mod service;

pub use service::{Call, CallError, DATA_MAX, Kind, NAME_MAX, Raise, Raised, Service, Target};
