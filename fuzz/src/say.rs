//! Messages of control sockets (of the coprocessor, the processor daemon, services, members of a
//! channel): bytes are a message, which can be read back from its own text, or refused.

use selvedge_os::control;
use selvedge_place_coprocessor::message;
use selvedge_place_cpu::protocol;

pub fn fuzz(bytes: &[u8]) {
    let _ = selvedge_comm_call::is_message(bytes);
    let _ = selvedge_comm_local::is_message(bytes);
    let _ = control::is_message::<message::Request>(bytes);
    let _ = control::is_message::<message::Reply>(bytes);
    let _ = control::is_message::<protocol::Request>(bytes);
    let _ = control::is_message::<protocol::Response>(bytes);
}
