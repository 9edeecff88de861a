//! Filters and handlers as machine code, with their cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_control_code::native::Compiler;
use selvedge_control_code::{CodeError, Fault, Handler, Host, Program};
use selvedge_control_event::SharedMismatch;
use selvedge_os::clock::Clock;
use selvedge_os_jit::{Native, PrepareError};
use selvedge_units::Duration;

/// One call in this number is timed, so that timing costs next to nothing.
const TIMED_OF: u64 = 16;
/// The interval over which a share of a processor is measured.
const WINDOW: Duration = Duration::from_secs(1);

/// Why a filter can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The source has an error.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The filter can't be compiled on this machine.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The filter shares a record that another filter declares differently.
    #[error(transparent)]
    Shared(#[from] SharedMismatch),
}

/// The cost of a handler.
#[derive(Debug, Default)]
pub struct Meter {
    calls: AtomicU64,
    timed: AtomicU64,
    nanos: AtomicU64,
    refused: AtomicU64,
}

impl Meter {
    /// The number of calls.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The average time of a call, by samples.
    pub fn cost(&self) -> Duration {
        let timed = self.timed.load(Ordering::Relaxed).max(1);
        Duration(self.nanos.load(Ordering::Relaxed) / timed)
    }

    /// How often it was not called, since it had used up its share.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A handler that is measured, and limited to a share of a processor.
struct MeteredHandler {
    handler: Native,
    meter: Arc<Meter>,
    clock: Clock,
    /// Nanoseconds that it may take of each window; `None` for all.
    allowance: Option<u64>,
    window: u64,
    used: u64,
}

/// A program as machine code, with its meter.
///
/// # Errors
/// If this machine can't run the program.
pub(crate) fn ready(
    program: Program,
) -> Result<(Box<dyn Handler + Send>, Arc<Meter>), PrepareError> {
    limited(program, None)
}

/// As [`ready`], with a share (0 to 1) of each second; a fault ends the handler if it exceeds it.
pub(crate) fn limited(
    program: Program,
    share: Option<f64>,
) -> Result<(Box<dyn Handler + Send>, Arc<Meter>), PrepareError> {
    let mut compiler = Compiler::new()?;
    let handler = Native::new(program, &mut compiler)?;
    let meter = Arc::new(Meter::default());
    let allowance = share.map(|share| (share * WINDOW.0 as f64) as u64);
    let (clock, window, used) = (Clock::shared(), 0, 0);
    let metered =
        MeteredHandler { handler, meter: Arc::clone(&meter), clock, allowance, window, used };
    Ok((Box::new(metered), meter))
}

impl MeteredHandler {
    fn timed(&mut self, host: &mut dyn Host) -> Result<i64, Fault> {
        let begin = self.clock.now();
        let outcome = self.handler.call(host);
        let took = self.clock.now().since(begin).0;
        self.meter.timed.fetch_add(1, Ordering::Relaxed);
        self.meter.nanos.fetch_add(took, Ordering::Relaxed);
        self.used += took;
        outcome
    }
}

impl Handler for MeteredHandler {
    fn program(&self) -> &Program {
        self.handler.program()
    }

    fn memory(&self) -> &[u8] {
        self.handler.memory()
    }

    fn memory_mut(&mut self) -> &mut [u8] {
        self.handler.memory_mut()
    }

    fn call(&mut self, host: &mut dyn Host) -> Result<i64, Fault> {
        let calls = self.meter.calls.fetch_add(1, Ordering::Relaxed);
        let Some(allowance) = self.allowance else {
            return if calls.is_multiple_of(TIMED_OF) {
                self.timed(host)
            } else {
                self.handler.call(host)
            };
        };
        // Each call of a foreign handler is timed, since nothing about it is trusted.
        let window = self.clock.now().0 / WINDOW.0;
        if window != self.window {
            (self.window, self.used) = (window, 0);
        }
        if self.used >= allowance {
            self.meter.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Fault::OutOfFuel { at: 0, budget: allowance });
        }
        self.timed(host)
    }
}
