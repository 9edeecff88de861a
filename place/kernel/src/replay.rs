//! A trace through the kernel's program, without packets: `BPF_PROG_RUN` of the same functions that the qdisc
//! calls, on the same queues. The same events as `selvedge_data_sched::replay`, bit for bit.

use std::io;

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use selvedge_data_sched::replay::{
    Arrival, Arrivals, Event, FrameRef, Outcome, ReplayAction, Trace,
};
use selvedge_data_sched::{Discipline, StreamIndex, Tree};
use selvedge_data_stream::{Counters, Window};
use selvedge_os_bpf::io_error;
use selvedge_units::{Duration, Instant};

use crate::error::ReplayError;
use crate::object::{self, OBSERVED_MAP, Purpose, SETUP_MAP, SLOT, STATE, TABLE_MAP, map};
use crate::setup::{Header, STREAMS_MAX, StreamSetup};

/// The number of frames kept in a queue of a trace that never runs dry: at most two of a stream go in one
/// slot (one late, one sent).
pub(crate) const BACKLOG: u32 = 3;
/// The bytes of a frame for which a trace states none.
pub(crate) const SIZE: u64 = 1000;
/// The number of frames that one call adds.
const AT_ONCE: u32 = 64;
/// A packet's limit in a replay: never reached.
const NO_LIMIT: u32 = u32::MAX;

/// The program, loaded for replays under one discipline.
#[derive(Debug)]
pub struct Replay {
    object: Object,
    discipline: Discipline,
}

impl Replay {
    /// Loads the program. About 0.1 s.
    ///
    /// # Errors
    /// If the kernel has no such discipline, or refuses.
    pub fn load(discipline: Discipline) -> Result<Self, ReplayError> {
        let purpose = Purpose { discipline, replaying: true, reports_fates: false, kind: None };
        let object = object::load(purpose, &Header::default().bytes(&[], &Tree::default()))?;
        Ok(Self { object, discipline })
    }

    /// Replays a trace to its end. Two system calls a slot, and one for each burst of arrivals.
    ///
    /// # Errors
    /// If the trace does not fit the program, or a run of it fails.
    pub fn run(&self, trace: &Trace) -> Result<Outcome, ReplayError> {
        fits(trace, self.discipline)?;
        begin(&self.object, &setup_of(trace))?;
        let mut schedule = Schedule::new(trace);
        let mut outcome = Outcome { events: Vec::new(), totals: Vec::new() };
        for t in 0..trace.ticks {
            for ArrivalBatch { frame: Frame { at, stream, size }, count } in schedule.arrivals(t) {
                let mut left = count;
                while left > 0 {
                    let now = left.min(AT_ONCE);
                    let mut arrival = [0; 24];
                    arrival[..8].copy_from_slice(&at.to_ne_bytes());
                    arrival[8..16].copy_from_slice(&size.to_ne_bytes());
                    arrival[16..20].copy_from_slice(&stream.to_ne_bytes());
                    arrival[20..].copy_from_slice(&now.to_ne_bytes());
                    call(&self.object, "replay_arrive", &mut arrival)?;
                    left -= now;
                }
            }
            call(&self.object, "replay_slot", &mut [])?;
            let observed = map(&self.object, OBSERVED_MAP).ok_or_else(|| absent(OBSERVED_MAP))?;
            let observed = object::data(&observed).map_err(|why| run("the events", why))?;
            schedule.take(trace, t, &observed, &mut outcome.events)?;
        }
        outcome.totals = totals(&self.object, trace.streams.len())?;
        Ok(outcome)
    }
}

/// Gives the program this setup; it forgets all earlier replays.
pub(crate) fn begin(object: &Object, setup: &[u8]) -> Result<(), ReplayError> {
    map(object, SETUP_MAP)
        .ok_or_else(|| absent(SETUP_MAP))?
        .update(&0_u32.to_ne_bytes(), setup, MapFlags::ANY)
        .map_err(|error| failed("the setup", error))?;
    call(object, "replay_begin", &mut [])
}

fn call(object: &Object, name: &'static str, context: &mut [u8]) -> Result<(), ReplayError> {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.ok_or_else(|| absent(name))?;
    let context_in = if context.is_empty() { None } else { Some(context) };
    let input = ProgramInput { context_in, ..ProgramInput::default() };
    let output = program.test_run(input).map_err(|error| failed(name, error))?;
    if output.return_value as i32 == 0 {
        Ok(())
    } else {
        Err(run(name, io::Error::other("refused")))
    }
}

pub(crate) fn run(what: &'static str, why: io::Error) -> ReplayError {
    ReplayError::Run { what, why }
}

pub(crate) fn failed(what: &'static str, error: libbpf_rs::Error) -> ReplayError {
    run(what, io_error(error))
}

pub(crate) fn absent(what: &'static str) -> ReplayError {
    run(what, io::ErrorKind::NotFound.into())
}

/// Whether the program can replay it.
pub(crate) fn fits(trace: &Trace, loaded: Discipline) -> Result<(), ReplayError> {
    if trace.discipline != loaded {
        return Err(ReplayError::Discipline { trace: trace.discipline, loaded });
    }
    if trace.streams.len() > STREAMS_MAX {
        return Err(ReplayError::Streams { found: trace.streams.len(), most: STREAMS_MAX });
    }
    Ok(())
}

/// The streams of the trace, in slots.
pub(crate) fn streams_of(trace: &Trace) -> Vec<StreamSetup> {
    let stream = |index: usize| {
        let stream = &trace.streams[index];
        StreamSetup {
            first_deadline: stream.first_deadline,
            limit: NO_LIMIT,
            by_txtime: false,
            ..StreamSetup::new(&index.to_string(), stream.contract)
        }
    };
    (0..trace.streams.len()).map(stream).collect()
}

fn setup_of(trace: &Trace) -> Vec<u8> {
    Header { rest: STREAMS_MAX as u32, ..Header::default() }.bytes(&streams_of(trace), &trace.tree)
}

/// A frame that will arrive: its slot, its stream and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) at: u64,
    pub(crate) stream: u32,
    pub(crate) size: u64,
}

/// A number of identical frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalBatch {
    pub(crate) frame: Frame,
    pub(crate) count: u32,
}

/// The future arrivals, and the events so far.
#[derive(Debug)]
pub(crate) struct Schedule<'a> {
    trace: &'a Trace,
    /// Arrivals by time.
    pub(crate) listed: Vec<Frame>,
    next: usize,
    /// The number of frames in each queue that never runs dry; empty if all its frames are listed.
    pub(crate) waiting: Vec<u32>,
}

impl<'a> Schedule<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        let frame = |a: &Arrival| Frame { at: a.at.0, stream: a.stream.0, size: a.size.0 };
        let mut listed: Vec<Frame> = match &trace.arrivals {
            Arrivals::Backlogged => Vec::new(),
            Arrivals::Listed(listed) => listed.iter().map(frame).collect(),
        };
        listed.sort_by_key(|frame| frame.at);
        Self { trace, listed, next: 0, waiting: vec![0; trace.streams.len()] }
    }

    /// The frames that arrive before the decision at `t`.
    pub(crate) fn arrivals(&mut self, t: u64) -> Vec<ArrivalBatch> {
        let mut found: Vec<ArrivalBatch> = Vec::new();
        if self.trace.arrivals == Arrivals::Backlogged && !self.waiting.is_empty() {
            for (stream, waiting) in (0..).zip(&mut self.waiting) {
                if *waiting < BACKLOG {
                    let frame = Frame { at: 0, stream, size: SIZE };
                    found.push(ArrivalBatch { frame, count: BACKLOG - *waiting });
                    *waiting = BACKLOG;
                }
            }
            return found;
        }
        while let Some(&frame) = self.listed.get(self.next).filter(|frame| frame.at <= t) {
            self.next += 1;
            match found.last_mut() {
                Some(coming) if coming.frame == frame => coming.count += 1,
                _ => found.push(ArrivalBatch { frame, count: 1 }),
            }
        }
        found
    }

    /// Takes over the program's events of a slot: misses in the order of streams, as traces are printed,
    /// since the scheduler goes by deadline.
    pub(crate) fn take(
        &mut self,
        trace: &Trace,
        t: u64,
        observed: &[u8],
        events: &mut Vec<Event>,
    ) -> Result<(), ReplayError> {
        let word = |at: usize| number::<4>(observed, at).map_or(0, u32::from_ne_bytes);
        let (count, lost) = (word(0), word(4));
        if count == 0 || lost > 0 {
            return Err(ReplayError::Counters { slot: t, events: count, lost });
        }
        let mut missed: Vec<(ReplayAction, u64)> = Vec::new();
        let mut decision = ReplayAction::Idle;
        for record in observed[8..].chunks_exact(32).take(count as usize) {
            let long = |at: usize| number::<8>(record, at).map_or(0, u64::from_ne_bytes);
            let short = |at: usize| number::<4>(record, at).map_or(0, u32::from_ne_bytes);
            let stream = StreamIndex(short(24));
            let frame = FrameRef { stream, seq: long(0), deadline: Instant(long(8)) };
            let leaves = match short(28) {
                1 => {
                    missed.push((ReplayAction::Drop(frame), 1));
                    true
                }
                2 => {
                    missed.push((ReplayAction::Miss(frame), long(16)));
                    false
                }
                kind @ (3 | 4) => {
                    decision = ReplayAction::Send { frame, late: kind == 4 };
                    true
                }
                _ => false,
            };
            if let Some(waiting) = self.waiting.get_mut(stream.0 as usize).filter(|_| leaves) {
                *waiting = waiting.saturating_sub(1);
            }
        }
        let whose = |happening: &ReplayAction| match happening {
            ReplayAction::Drop(frame) | ReplayAction::Miss(frame) => frame.stream,
            ReplayAction::Send { .. } | ReplayAction::Idle => StreamIndex(u32::MAX),
        };
        missed.sort_by_key(|(happening, _)| whose(happening));
        let t = Instant(t);
        for (happening, times) in missed {
            for n in 0..times {
                let happening = match happening {
                    ReplayAction::Miss(frame) => {
                        let period = trace.streams[frame.stream.0 as usize].contract.period;
                        let deadline = frame.deadline + Duration(period.0.saturating_mul(n));
                        ReplayAction::Miss(FrameRef { deadline, ..frame })
                    }
                    other => other,
                };
                events.push(Event { t, action: happening });
            }
        }
        events.push(Event { t, action: decision });
        Ok(())
    }
}

/// `N` bytes at an offset.
pub(crate) fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

/// Counters and windows from the table.
pub(crate) fn totals(
    object: &Object,
    streams: usize,
) -> Result<Vec<(Counters, Window)>, ReplayError> {
    let table = map(object, TABLE_MAP).ok_or_else(|| absent(TABLE_MAP))?;
    let table = object::data(&table).map_err(|why| run("the counters", why))?;
    let slots = table.get(STATE..).unwrap_or_default().chunks_exact(SLOT).take(streams);
    Ok(slots.map(|slot| (counters(slot), window(slot))).collect())
}

pub(crate) fn counters(slot: &[u8]) -> Counters {
    let long = |at: usize| number::<8>(slot, at).map_or(0, u64::from_ne_bytes);
    Counters::new([24, 32, 40, 48, 56].map(long))
}

pub(crate) fn window(slot: &[u8]) -> Window {
    let short = |at: usize| number::<2>(slot, at).map_or(0, u16::from_ne_bytes);
    Window { lose: short(84), of: short(86) }
}
