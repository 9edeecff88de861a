//! Filters and handlers as machine code, with what they cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_control_code::native::Compiler;
use selvedge_control_code::{CodeError, Fault, Handler, Host, Program};
use selvedge_control_event::SharedMismatch;
use selvedge_os::clock::Clock;
use selvedge_os_jit::{Native, PrepareError};
use selvedge_units::Duration;

/// One in so many calls is timed, so that timing costs next to nothing.
const TIMED_OF: u64 = 16;
/// How long a share of a processor is reckoned over.
const WINDOW: Duration = Duration::from_secs(1);

/// Why a filter can't be had.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// Its source is wrong.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// It can't be made ready on this machine.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// It shares a record that another filter has differently.
    #[error(transparent)]
    Shared(#[from] SharedMismatch),
}

/// What a handler has cost.
#[derive(Debug, Default)]
pub struct Meter {
    calls: AtomicU64,
    timed: AtomicU64,
    nanos: AtomicU64,
    refused: AtomicU64,
}

impl Meter {
    /// How often it was called.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// What a call takes on average, by samples.
    pub fn cost(&self) -> Duration {
        let timed = self.timed.load(Ordering::Relaxed).max(1);
        Duration(self.nanos.load(Ordering::Relaxed) / timed)
    }

    /// How often it was not called because it had used up its share.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A handler that is measured, and kept to a share of a processor.
struct MeteredHandler {
    handler: Native,
    meter: Arc<Meter>,
    clock: Clock,
    /// Nanoseconds of each window that it may take; `None` for all.
    allowance: Option<u64>,
    window: u64,
    used: u64,
}

/// A program as machine code, with its meter.
///
/// # Errors
/// If this machine can't run it.
pub(crate) fn ready(
    program: Program,
) -> Result<(Box<dyn Handler + Send>, Arc<Meter>), PrepareError> {
    limited(program, None)
}

/// As [`ready`]; of each second it gets a share, 0 to 1, and is ended by a fault beyond.
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
        // Each call of a stranger's is timed: it is believed in nothing.
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
