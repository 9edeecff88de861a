//! A link in an engine, a thread of this process: sources write into its streams' rings and pools.

use std::sync::Arc;

use selvedge_control_config::{LinkConfig, Stage, StepConfig, StreamConfig};
use selvedge_data_link::PathEstimate;
use selvedge_data_stream::Contract;
use selvedge_os::clock::Clock;
use selvedge_place_engine::code::{Code, StepSource};
use selvedge_place_engine::engine::{Engine, Registrar};
use selvedge_place_engine::link_steps::LinkSteps;
use selvedge_place_engine::report::LinkReport;
use selvedge_place_engine::slot::{Slot, StreamletReport};
use selvedge_units::Bitrate;

use super::{Member, PlacedLink, PlacementError, Start, Started, StreamEnd};
use crate::source::slot;

/// Streams that may be added to a running link, beside those that it started with.
const ROOM: usize = 1024;

struct Inline {
    engine: Engine,
    registrar: Registrar,
    clock: Clock,
    room: usize,
}

pub(super) fn start(start: Start<'_>) -> Result<Started, PlacementError> {
    let streams = start.members.len();
    let slots: Vec<Option<Slot>> =
        start.members.iter().map(|one| slot(one.config, start.clock).map(Slot::new)).collect();
    let shared: Vec<bool> = start.members.iter().map(|one| shares_memory(one.config)).collect();
    let (params, carried): (Vec<_>, Vec<_>) =
        start.members.into_iter().map(|member| (member.params, member.carried)).unzip();
    let (engine, registrar, frame_producers) =
        Engine::start_open(start.clock, start.link, &params, (&carried, &shared), start.tap, ROOM)
            .map_err(PlacementError::refused)?;
    for (number, slot) in slots.into_iter().enumerate() {
        slot.map(|slot| engine.aggregate(number, slot));
    }
    let link = Inline { engine, registrar, clock: start.clock, room: streams + ROOM };
    Ok((Box::new(link), frame_producers.into_iter().map(StreamEnd::FrameProducer).collect()))
}

/// Whether its packets lie in memory that it shares with other receivers of its source.
fn shares_memory(stream: &StreamConfig) -> bool {
    stream.shares && stream.takes_rtp()
}

impl PlacedLink for Inline {
    fn report(&self) -> LinkReport {
        self.engine.report()
    }

    fn set_rate(&self, rate: Bitrate) -> bool {
        self.engine.set_rate(rate)
    }

    fn set_path(&self, path: PathEstimate) -> bool {
        self.engine.set_path(path)
    }

    fn set_terms(&self, stream: usize, terms: &Contract) -> bool {
        self.engine.set_terms(stream, terms)
    }

    fn reconfigure(&self, link: &LinkConfig) -> bool {
        self.engine.set_bounds(link.queue, link.catch_up) && self.engine.set_rate(link.rate)
    }

    fn streamlet(&self, stream: usize, streamlet: u32) -> Option<StreamletReport> {
        self.engine.streamlet(stream, streamlet)
    }

    fn remove(&self, stream: usize) {
        self.engine.remove(stream);
    }

    fn add(&self, member: Member<'_>) -> Result<(usize, StreamEnd), PlacementError> {
        let (params, carried) = (&member.params, member.carried);
        let added = match shares_memory(member.config) {
            true => self.engine.add_receiver(&self.registrar, self.room, params, carried),
            false => self.engine.add(&self.registrar, self.room, params, carried),
        };
        let (number, frame_producer) = added.ok_or(PlacementError::Full(self.room))?;
        let slot = slot(member.config, self.clock).map(Slot::new);
        slot.map(|slot| self.engine.aggregate(number, slot));
        Ok((number, StreamEnd::FrameProducer(frame_producer)))
    }

    fn steps(&self) -> &Arc<LinkSteps> {
        self.engine.steps()
    }

    fn load(&self, step: &StepConfig, source: &StepSource) -> bool {
        Code::new(source).is_ok_and(|code| match step.at {
            Stage::Arrival => self.engine.load_at_producers(&step.name, Box::new(code)),
            at => self.engine.load(&step.name, at, Box::new(code)),
        })
    }

    fn unload(&self, name: &str) {
        self.engine.unload(name);
    }

    fn stop(self: Box<Self>) -> LinkReport {
        self.engine.stop()
    }
}
