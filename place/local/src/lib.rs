//! Event channels inside one host.
