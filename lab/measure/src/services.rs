//! What the kernel's services cost: learning which sockets are ready ([`readiness`]), and requests
//! that the kernel answers beside those that a process answers ([`round_trip`]).

pub mod readiness;
pub mod round_trip;
pub mod server;

use selvedge_units::Duration;

/// Sleeps so long, as programs sleep: the kernel may wake it a little late.
fn sleep_for(span: Duration) {
    let time = rustix::thread::Timespec {
        tv_sec: (span.0 / 1_000_000_000) as i64,
        tv_nsec: (span.0 % 1_000_000_000) as i64,
    };
    // Where a signal ends it early, the sample is a little different.
    let _ = rustix::thread::nanosleep(&time);
}
