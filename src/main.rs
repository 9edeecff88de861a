//! Selvedge keeps live media on time.

mod table;
mod top;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use clap::Parser;

#[derive(Parser)]
enum Command {
    /// Watch a running node in the terminal
    Top(top::TopOptions),
}

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

extern "C" fn stop(_signal: libc::c_int) {
    if let Some(stop) = STOP.get() {
        stop.store(true, Ordering::Relaxed);
    }
}

fn main() -> ExitCode {
    let Command::Top(options) = Command::parse();
    STOP.get_or_init(|| options.stop.clone());
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: the handler only loads and stores atomics, which signals may interrupt anywhere.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
    match top::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("selvedge: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}
