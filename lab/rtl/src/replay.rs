//! Traces replayed on the simulated hardware, in the unit-slot model: the same events as
//! [`selvedge_data_sched::Replay`](selvedge_data_sched::replay::Replay).

use selvedge_data_sched::StreamIndex;
use selvedge_data_sched::replay::{Event, FrameRef, ReplayAction, Trace};
use selvedge_data_stream::Counters;
use selvedge_data_stream::Window;
use selvedge_units::Instant;
use thiserror::Error;

use crate::design::Slots;
use crate::fit::{self, Unsupported};
use crate::protocol::{RECORD, ReplayMode, ReplayRecord, replay_request};
use crate::simulator::{Simulator, SimulatorError};

/// Why a trace was not replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The trace does not fit the hardware.
    #[error(transparent)]
    Misfit(#[from] Unsupported),
    /// The design has too few slots.
    #[error("{streams} streams, but this design has {slots} slots")]
    Slots {
        /// How many streams the trace has.
        streams: usize,
        /// The design's.
        slots: Slots,
    },
    /// There is no simulator, or it stopped.
    #[error(transparent)]
    Simulator(#[from] SimulatorError),
}

/// What has become of a stream, as its register block counted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamTotals {
    /// The counters.
    pub counters: Counters,
    /// The current window `x'/y'`.
    pub window: Window,
}

/// The events of a replay, in order of happening. Memory: four bytes an event.
#[derive(Clone, Debug)]
pub struct Replay {
    answer: Vec<u8>,
    at: usize,
    t: u64,
    /// The next frame's number, by stream.
    seq: Vec<u64>,
    totals: Vec<StreamTotals>,
    clocks: u64,
    advance: u64,
    whole_block: bool,
}

impl Simulator {
    /// Replays a trace to its end.
    ///
    /// # Errors
    /// [`ReplayError::Unsupported`] if the trace does not fit the registers, at once or in the run;
    /// [`ReplayError::Slots`] if this design has too few slots; [`ReplayError::Simulator`].
    pub fn replay(&self, trace: &Trace) -> Result<Replay, ReplayError> {
        let mode =
            ReplayMode { ticks: trace.ticks, min_first: false, whole_block: false, advance: 1 };
        self.replay_as(trace, mode)
    }

    /// Replays a trace with block decisions: one every `advance` slots, which serves every
    /// eligible stream at once, in the order of the block (or, `min_first`, of the block turned
    /// round). The sends of a decision all bear its slot; there is an idle event if it had none.
    ///
    /// # Errors
    /// As [`replay`](Self::replay).
    pub fn replay_blocks(
        &self,
        trace: &Trace,
        advance: u8,
        min_first: bool,
    ) -> Result<Replay, ReplayError> {
        let mode = ReplayMode {
            ticks: trace.ticks,
            min_first,
            whole_block: true,
            advance: advance.max(1),
        };
        self.replay_as(trace, mode)
    }

    fn replay_as(&self, trace: &Trace, mode: ReplayMode) -> Result<Replay, ReplayError> {
        let slots = fit::slots(trace)?;
        let streams = slots.len();
        if streams > self.design().slots.count() {
            return Err(ReplayError::Slots { streams, slots: self.design().slots });
        }
        let answer = self.ask(&replay_request(mode, &slots))?;
        let mut end = 0;
        loop {
            let record = answer.get(end..).and_then(ReplayRecord::read);
            match record.ok_or_else(|| self.garbled("its answer has no end"))? {
                ReplayRecord::Totals => break,
                ReplayRecord::Range { slot, what } => {
                    let at = number(&answer, end + RECORD + 1, 8)
                        .ok_or_else(|| self.garbled("its answer ends early"))?;
                    let id = &trace.streams[usize::from(slot)].id;
                    return Err(Unsupported::of_range(what, id, Instant(at)).into());
                }
                _ => end += RECORD,
            }
        }
        let mut from = end + RECORD;
        let mut next = |bytes: usize| {
            from += bytes;
            number(&answer, from - bytes, bytes)
        };
        let mut totals = Vec::with_capacity(streams);
        let mut read = || -> Option<u64> {
            for _ in 0..streams {
                let counters = Counters {
                    sent: next(4)?,
                    late: next(4)?,
                    missed: next(4)?,
                    dropped: next(4)?,
                    violations: next(4)?,
                };
                let word = next(4)?;
                let window = Window { lose: (word >> 8 & 0xff) as u16, of: (word & 0xff) as u16 };
                totals.push(StreamTotals { counters, window });
            }
            next(8)
        };
        let clocks = read().ok_or_else(|| self.garbled("its answer ends early"))?;
        Ok(Replay {
            at: 0,
            t: 0,
            seq: vec![0; streams],
            totals,
            clocks,
            advance: u64::from(mode.advance),
            whole_block: mode.whole_block,
            answer,
        })
    }
}

/// A little-endian number in an answer.
pub(crate) fn number(answer: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let digits = answer.get(at..at + bytes)?;
    Some(digits.iter().rev().fold(0, |number, &digit| number << 8 | u64::from(digit)))
}

impl Replay {
    /// The streams' counters and windows at the end, in the order of the trace.
    #[must_use]
    pub fn totals(&self) -> &[StreamTotals] {
        &self.totals
    }

    /// How many clocks the hardware took, loading included.
    #[must_use]
    pub const fn clocks(&self) -> u64 {
        self.clocks
    }

    fn frame(&mut self, slot: u8, ahead: i16, leaves: bool) -> FrameRef {
        let seq = &mut self.seq[usize::from(slot)];
        let deadline = Instant(self.t.saturating_add_signed(i64::from(ahead)));
        let frame = FrameRef { stream: StreamIndex(u32::from(slot)), seq: *seq, deadline };
        *seq += u64::from(leaves);
        frame
    }
}

impl Iterator for Replay {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut record = ReplayRecord::read(&self.answer[self.at..])?;
        self.at += RECORD;
        if record == ReplayRecord::BlockEnd {
            self.t += self.advance;
            record = ReplayRecord::read(&self.answer[self.at..])?;
            self.at += RECORD;
        }
        let t = Instant(self.t);
        let happening = match record {
            ReplayRecord::Drop { slot, ahead } => ReplayAction::Drop(self.frame(slot, ahead, true)),
            ReplayRecord::Miss { slot, ahead } => {
                ReplayAction::Miss(self.frame(slot, ahead, false))
            }
            ReplayRecord::Send { slot, ahead, late } => {
                ReplayAction::Send { frame: self.frame(slot, ahead, true), late }
            }
            ReplayRecord::Idle => ReplayAction::Idle,
            ReplayRecord::Totals | ReplayRecord::Range { .. } | ReplayRecord::BlockEnd => {
                self.at = self.answer.len();
                return None;
            }
        };
        // The last record of a slot is a send or idle; that of a block is its end.
        let ends = matches!(happening, ReplayAction::Send { .. } | ReplayAction::Idle);
        if ends && !self.whole_block {
            self.t += self.advance;
        }
        Some(Event { t, action: happening })
    }
}
