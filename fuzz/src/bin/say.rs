//! What programs, services and members of a channel say to each other over their sockets: bytes are a
//! message, which comes back from its own bytes, or refused.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = selvedge_comm_call::is_message(bytes);
    let _ = selvedge_comm_local::is_message(bytes);
});
