//! The stack of a stream whose connection the coprocessor has: what is requested of each coprocessor that serves the
//! stream, and what that reports of the connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use selvedge_comm_carrier::{CarriedState, StackProgress, StackSpec, overhead};
use selvedge_data_stack::compose::Fit;
use selvedge_place_engine::frame_producer::FrameProducerParams;
use selvedge_units::Instant;

/// The stack of a stream.
#[derive(Clone, Debug)]
pub struct RemoteStack {
    spec: Arc<StackSpec>,
    fit: Fit,
    state: Arc<CarriedState>,
    /// The coprocessor's process; 0 while it is away.
    pid: Arc<AtomicU32>,
}

impl RemoteStack {
    /// A stack into whose datagrams packets fit so, with what is known of its connection.
    #[must_use]
    pub fn new(spec: StackSpec, fit: Fit, state: Arc<CarriedState>) -> Self {
        Self { spec: Arc::new(spec), fit, state, pid: Arc::default() }
    }

    /// The coprocessor's process, unless it is away.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid > 0)
    }

    /// The same parameters for packets that this stack carries to an address.
    #[must_use]
    pub fn params(&self, params: FrameProducerParams, to: SocketAddr) -> FrameProducerParams {
        params.carried(overhead(self.fit, to), self.fit.message)
    }

    pub(super) fn request(&self) -> Option<Box<StackSpec>> {
        Some(Box::new((*self.spec).clone()))
    }

    pub(super) fn follow(&self, now: Instant, pid: u32, progress: StackProgress) {
        self.pid.store(pid, Ordering::Relaxed);
        self.state.follow(now, progress);
    }

    /// The coprocessor is away.
    pub(super) fn lose(&self) {
        self.pid.store(0, Ordering::Relaxed);
        self.state.lose("the coprocessor is away");
    }
}
