//! What is requested from both hosts for a stream on its link: contracts that follow the link's rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selvedge_data_stack::contract::{Contract, Promise, Quality, Traffic};
use selvedge_data_stream::ReceiverReport;
use selvedge_units::{Bitrate, Bytes, Duration};

use crate::stack_spec::StackSpec;

/// The present rate of a link: the contracts of its stacks follow it.
#[derive(Clone, Debug)]
pub struct LinkRate(Arc<AtomicU64>);

impl LinkRate {
    /// A link of this rate.
    #[must_use]
    pub fn new(rate: Bitrate) -> Self {
        Self(Arc::new(AtomicU64::new(rate.0)))
    }

    /// Notes the present rate.
    pub fn set(&self, rate: Bitrate) {
        self.0.store(rate.0, Ordering::Relaxed);
    }
}

/// What is requested from hosts for a stream.
#[derive(Debug)]
pub(crate) struct ContractTerms {
    rate: LinkRate,
    /// The streams on the link.
    beside: u64,
    packet: Bytes,
    delay: Duration,
    promise: Promise,
}

impl ContractTerms {
    /// Those of a stream in packets of this size, on its link of this present rate.
    pub(crate) const fn new(spec: &StackSpec, packet: Bytes, rate: LinkRate) -> Self {
        let (delay, promise) = (Duration(spec.delay_ns), spec.promise());
        Self { rate, beside: spec.beside, packet, delay, promise }
    }

    /// The stream's even share of the link.
    pub(crate) fn share(&self) -> Bitrate {
        Bitrate((self.rate.0.load(Ordering::Relaxed) / self.beside).max(1))
    }

    /// The contracts for this share, in packets of full size, and for the receivers' reports. If the stream sends
    /// more, processing elements are assigned anew; nothing is refused unless hosts lack processing power.
    pub(crate) fn contracts(&self, share: Bitrate) -> [Contract; 2] {
        let every = (self.packet / share).clamp(Duration::from_micros(1), Duration::from_secs(10));
        let quality = |delay, promise| Quality { delay, loss_burst: 0, promise };
        let reports = Bytes(ReceiverReport::LEN as u64);
        [
            Contract {
                traffic: Traffic::steady(every, self.packet),
                quality: quality(self.delay, self.promise),
            },
            Contract {
                traffic: Traffic::steady(Duration::from_millis(100), reports),
                quality: quality(Duration::from_secs(1), Promise::Wanted),
            },
        ]
    }
}

/// A refusal of this share of a link in words: what is scarce is either the share, or what a host lacks.
pub(crate) fn refused(share: Bitrate, why: &dyn std::fmt::Display) -> String {
    format!("for {share} of the link: {why}")
}
