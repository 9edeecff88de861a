//! The steps of a link that run on other threads than an engine's. Producers run those at arrival, before they
//! write a frame's payload: a frame that a step discards is not copied (NI coprocessors, sections 1.4 and 2.2.5,
//! traffic elimination). A link in the kernel runs those at a miss when it learns of that.
//!
//! A step sees the link as its engine published it last, and what receivers report (section 2.2.1). The engine
//! never waits for a step: it shares only these facts with the producers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use selvedge_data_link::Link;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{Contract, Counters, Frame};
use selvedge_os::clock::Clock;
use selvedge_units::{Bitrate, Bytes, Instant};

use crate::extension::{
    AllHeard, Extension, ExtensionReport, Extensions, Heard, Stage, StepContext, StepStream,
    StreamFacts,
};
use crate::report::LinkReport;

/// Steps of one link, and what all its steps know of its streams.
#[derive(Default)]
pub struct LinkSteps {
    /// Whether there is any step, so that a link without any costs its producers one comparison.
    is_used: AtomicBool,
    steps: Mutex<Option<Box<Extensions>>>,
    facts: Mutex<Facts>,
    pub(crate) heard: Arc<AllHeard>,
}

#[derive(Default)]
struct Facts {
    rate: Bitrate,
    backlog: Bytes,
    /// By number.
    streams: Vec<Option<StreamFacts>>,
    /// Contracts that steps changed, for the link to take over.
    changes: Vec<(usize, Contract)>,
}

impl LinkSteps {
    /// Loads a step, in place of one of the same name, whose state it takes over; false if there are 32.
    pub fn load(&self, name: &str, at: Stage, step: Box<dyn Extension>) -> bool {
        let mut steps = self.steps.lock();
        let steps = steps.get_or_insert_default();
        let loaded = steps.load(name.to_owned(), at, step);
        self.is_used.store(!steps.is_empty(), Ordering::Release);
        loaded
    }

    /// Removes a step; returns whether it was there.
    pub fn unload(&self, name: &str) -> bool {
        let mut steps = self.steps.lock();
        let Some(steps) = &mut *steps else { return false };
        let was_there = steps.unload(name);
        self.is_used.store(!steps.is_empty(), Ordering::Release);
        was_there
    }

    /// The counts and costs of the steps.
    #[must_use]
    pub fn reports(&self) -> Vec<ExtensionReport> {
        self.steps.lock().as_ref().map(|steps| steps.reports()).unwrap_or_default()
    }

    /// Whether there is any of these steps.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Acquire)
    }

    /// A stream begins with this contract.
    pub(crate) fn add(&self, stream: usize, contract: Contract) {
        let counters = Counters::default();
        self.facts.lock().set(stream, StreamFacts { contract, counters, queued: 0 });
        self.handle_report(stream, Heard::default());
    }

    /// What the receiver of a stream reports now.
    pub fn handle_report(&self, stream: usize, heard: Heard) {
        self.heard.set(stream, heard);
    }

    /// Runs the steps at a point on a frame of a stream. True if the frame, which arrives, must be discarded.
    pub fn run(&self, point: Stage, clock: Clock, stream: usize, frame: &Frame) -> bool {
        let (rate, backlog, facts) = {
            let all = self.facts.lock();
            let Some(&Some(facts)) = all.streams.get(stream) else { return false };
            (all.rate, all.backlog, facts)
        };
        let (index, heard) = (StreamIndex(stream as u32), self.heard.of(stream));
        let mut moment = StepContext {
            point,
            now: Instant::ZERO,
            link: None,
            rate,
            backlog,
            stream: Some(StepStream { index, frame, facts, heard }),
        };
        let discards =
            self.steps.lock().as_mut().is_some_and(|steps| steps.run_in(clock, &mut moment));
        if let Some(StepStream { facts: after, .. }) = moment.stream
            && after.contract != facts.contract
        {
            self.facts.lock().change(stream, after.contract);
        }
        discards
    }

    /// The engine's state of its link, and the changes that steps made since, which it takes over.
    pub(crate) fn publish(&self, link: &mut Link, streams: impl Iterator<Item = StreamIndex>) {
        let facts = &mut *self.facts.lock();
        for (n, contract) in facts.changes.drain(..) {
            let index = StreamIndex(n as u32);
            if link.contract(index).is_some() {
                link.set_priority(index, contract.priority);
                link.set_windows(index, contract.windows);
            }
        }
        (facts.rate, facts.backlog) = (link.params().rate, link.backlog());
        for index in streams {
            let Some(&contract) = link.contract(index) else { continue };
            let (counters, queued) = (link.scheduler().counters(index), link.queued(index));
            facts.set(index.0 as usize, StreamFacts { contract, counters, queued });
        }
    }

    /// The same for a link that is sent elsewhere; returns the changes.
    pub fn publish_report(&self, report: &LinkReport) -> Vec<(usize, Contract)> {
        let facts = &mut *self.facts.lock();
        (facts.rate, facts.backlog) = (report.rate, report.backlog);
        for stream in &report.streams {
            let seen = StreamFacts {
                contract: stream.contract,
                counters: stream.counts.counters,
                queued: stream.queued,
            };
            facts.set(stream.number, seen);
        }
        std::mem::take(&mut facts.changes)
    }
}

impl Facts {
    fn set(&mut self, stream: usize, facts: StreamFacts) {
        self.streams.resize(self.streams.len().max(stream + 1), None);
        self.streams[stream] = Some(facts);
    }

    fn change(&mut self, stream: usize, contract: Contract) {
        if let Some(Some(facts)) = self.streams.get_mut(stream) {
            facts.contract = contract;
        }
        self.changes.retain(|(n, _)| *n != stream);
        self.changes.push((stream, contract));
    }
}
