//! Claims that a connection is not known, changed in transit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use selvedge_fuzz::secure::{Kind, run};

fuzz_target!(|bytes: &[u8]| run(bytes, Kind::Unknown));
