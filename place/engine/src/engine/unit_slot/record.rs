//! The events of an engine's turn in unit slots, observed as in every engine: a step before each choice sees
//! the heads' deadlines, an observer the frames' fates; the rest follows from the link's counters.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use selvedge_data_link::Link;
use selvedge_data_sched::StreamIndex;
use selvedge_data_sched::replay::{Event, FrameRef, ReplayAction, Trace};
use selvedge_data_stream::{Counters, DropReason, Fate, Frame};
use selvedge_units::Instant;

use super::UnitSlotError;
use crate::engine::{Action, Extension, FateTap, StepContext};

/// The observations of a turn.
#[derive(Debug, Default)]
struct TurnRecord {
    /// The heads' deadlines before the first choice.
    heads: Option<Vec<Option<Instant>>>,
    fates: Vec<(usize, Frame, Fate)>,
    /// Packets that left: the stream, and the deadline.
    left: Vec<(usize, Instant)>,
}

/// The engine's side of the record.
#[derive(Clone, Debug)]
pub(super) struct EngineRecorder {
    streams: u32,
    sights: Arc<Mutex<TurnRecord>>,
}

/// The replay's side.
pub(super) struct TurnComparer {
    seen: EngineRecorder,
    /// The streams' counters before the turn.
    before: Vec<Counters>,
    /// The numbers of their heads.
    seqs: Vec<u64>,
}

impl EngineRecorder {
    fn lock(&self) -> MutexGuard<'_, TurnRecord> {
        self.sights.lock()
    }

    pub(super) fn packet_left(&self, stream: usize, deadline: Instant) {
        self.lock().left.push((stream, deadline));
    }
}

impl Extension for EngineRecorder {
    fn step(&mut self, moment: &StepContext<'_>) -> Action {
        let Some(link) = moment.link else { return Action::Go };
        let scheduler = link.scheduler();
        let mut sights = self.lock();
        sights.heads.get_or_insert_with(|| {
            let streams = (0..self.streams).map(StreamIndex);
            streams.map(|stream| scheduler.head_deadline(stream)).collect()
        });
        Action::Go
    }
}

impl FateTap for EngineRecorder {
    fn settled(&mut self, stream: usize, frame: &Frame, fate: Fate, _now: Instant) {
        self.lock().fates.push((stream, *frame, fate));
    }
}

impl TurnComparer {
    pub(super) fn new(streams: usize) -> Self {
        let before = vec![Counters::default(); streams];
        let seen = EngineRecorder { streams: streams as u32, sights: Arc::default() };
        Self { seen, before, seqs: vec![0; streams] }
    }

    pub(super) fn seen(&self) -> EngineRecorder {
        self.seen.clone()
    }

    /// Records the events of the turn that was made at `now`.
    pub(super) fn read(
        &mut self,
        now: Instant,
        trace: &Trace,
        link: &Link,
        events: &mut Vec<Event>,
    ) -> Result<(), UnitSlotError> {
        let sights = std::mem::take(&mut *self.seen.lock());
        let heads = sights.heads.unwrap_or_default();
        for (n, before) in self.before.iter_mut().enumerate() {
            let stream = StreamIndex(n as u32);
            let counters = link.scheduler().counters(stream);
            let fates = sights.fates.iter().filter(|(whose, ..)| *whose == n);
            let left = sights.left.iter().filter(|(whose, _)| *whose == n);
            let was = std::mem::replace(before, counters);
            if counters == was && fates.clone().next().is_none() {
                continue;
            }
            let wrong = |what: String| UnitSlotError::Inconsistent { t: now.0, stream: n, what };
            let mut deadline = heads.get(n).copied().flatten();
            let mut seq = self.seqs[n];
            let period = trace.streams[n].contract.period;
            let dropped = counters.dropped - was.dropped;
            let (mut lost, mut sent) = (0, 0);
            let mut push_event = |happening| events.push(Event { t: now, action: happening });
            let due = |deadline: Option<Instant>| {
                deadline.ok_or_else(|| wrong("its head was not seen".into()))
            };
            // The events of one stream are reported in order: misses of kept frames come first, since a
            // stream keeps all of them or none.
            for _ in dropped..counters.missed - was.missed {
                let at = due(deadline)?;
                push_event(ReplayAction::Miss(FrameRef { stream, seq, deadline: at }));
                deadline = Some(at + period);
            }
            for (_, frame, fate) in fates {
                if u64::from(frame.seq) != seq {
                    return Err(wrong(format!("frame {} came in place of {seq}", frame.seq)));
                }
                match fate {
                    Fate::Dropped(DropReason::Expired) => {
                        let own = due(deadline)?;
                        // Where several go at once, the next one's deadline was not seen; a trace's own value
                        // follows from DWCS's rule.
                        let own = if lost > 0 { own.max(frame.arrival) + period } else { own };
                        push_event(ReplayAction::Drop(FrameRef { stream, seq, deadline: own }));
                        lost += 1;
                        deadline = Some(own);
                    }
                    Fate::Dropped(why) => return Err(wrong(format!("dropped: {why:?}"))),
                    Fate::Sent { .. } => {
                        let (_, deadline) = *left
                            .clone()
                            .next_back()
                            .ok_or_else(|| wrong("sent, and nothing left".into()))?;
                        let late = counters.late > was.late;
                        let frame = FrameRef { stream, seq, deadline };
                        push_event(ReplayAction::Send { frame, late });
                        sent += 1;
                    }
                }
                seq += 1;
            }
            self.seqs[n] = seq;
            if (lost, sent) != (dropped, counters.sent - was.sent) {
                return Err(wrong(format!("{lost} lost and {sent} sent are not {counters:?}")));
            }
        }
        Ok(())
    }
}
