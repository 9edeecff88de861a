//! Event channels between hosts.
