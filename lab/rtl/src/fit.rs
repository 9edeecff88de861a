//! Whether a trace fits the registers of Fig. 4: 16-bit times, 8-bit windows, at most 64 slots.
//!
//! What can be known beforehand is checked here; what only shows in the run (a deadline that moves
//! too far ahead, a frame that waits too long, a `y'` that grows) the model watches.

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::{Arrivals, Trace, TraceStream};
use selvedge_data_stream::{Late, Window, Windows};
use selvedge_units::Instant;
use thiserror::Error;

use crate::protocol::{ACTIVE, BACKLOGGED, FIRST_STATED, SEND_LATE, SlotLoad, WORK_CONSERVING};

/// The furthest that one time may lie from another and still have an order: 32767 slots.
pub(crate) const SPAN_MAX: u64 = 0x7fff;

/// What of a trace does not fit the hardware.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unsupported {
    /// There are not so many slots.
    #[error("{found} streams, but the hardware has at most 64 slots; use the software engine")]
    Streams {
        /// How many there are.
        found: usize,
    },
    /// The decision blocks have Table 2 and nothing else.
    #[error("discipline {found}: the hardware has dwcs, and edf if no stream has a window")]
    Discipline {
        /// The trace's.
        found: Discipline,
    },
    /// Periods are positive 16-bit serial differences.
    #[error("stream {id}: period {found}; the hardware takes at most 32767 slots")]
    Period {
        /// Whose.
        id: String,
        /// In slots.
        found: u64,
    },
    /// Windows are 8 bits wide.
    #[error("stream {id}: window {found}; the hardware takes at most 255 frames")]
    Window {
        /// Whose.
        id: String,
        /// The window.
        found: Window,
    },
    /// A slot has one window for all kinds of frame.
    #[error("stream {id}: windows by kind; the hardware has one window a stream")]
    WindowsByKind {
        /// Whose.
        id: String,
    },
    /// A slot computes deadlines from periods alone.
    #[error("stream {id}: a delay; the hardware computes deadlines from the period alone")]
    Delay {
        /// Whose.
        id: String,
    },
    /// The stated first deadline is too late, or too long before its frame.
    #[error(
        "stream {id}: first deadline {}, first frame at {}; the hardware takes a deadline of at \
         most 32767, and at most 32767 slots before its frame",
        found.0,
        arrival.0
    )]
    FirstDeadline {
        /// Whose.
        id: String,
        /// The deadline.
        found: Instant,
        /// When its frame arrives.
        arrival: Instant,
    },
    /// In the run, a deadline moved out of the range that has an order.
    #[error("stream {id}: at {} a deadline lies more than 32767 slots ahead; times are 16 bits", at.0)]
    DeadlineAhead {
        /// Whose.
        id: String,
        /// In which slot, or in the update for the one after.
        at: Instant,
    },
    /// In the run, a frame waited so long that its arrival has no order any more.
    #[error("stream {id}: at {} a frame has waited 32767 slots or more; times are 16 bits", at.0)]
    Waited {
        /// Whose.
        id: String,
        /// In which slot, or in the update for the one after.
        at: Instant,
    },
    /// In the run, `y'` reached the end of its register.
    #[error("stream {id}: at {} y' grew beyond 255, the width of its register", at.0)]
    WindowGrown {
        /// Whose.
        id: String,
        /// In which slot, or in the update for the one after.
        at: Instant,
    },
}

impl Unsupported {
    /// As the model reports it.
    pub(crate) fn of_range(what: u8, id: &str, at: Instant) -> Self {
        let id = id.to_owned();
        match what {
            what if what & 1 != 0 => Self::DeadlineAhead { id, at },
            what if what & 2 != 0 => Self::Waited { id, at },
            _ => Self::WindowGrown { id, at },
        }
    }
}

/// A trace as the registers take it. O(A log A) for A arrivals.
pub(crate) fn slots(trace: &Trace) -> Result<Vec<SlotLoad>, Unsupported> {
    if trace.streams.len() > 64 {
        return Err(Unsupported::Streams { found: trace.streams.len() });
    }
    let windowless = |s: &TraceStream| s.contract.windows == Windows::Whole(Window::NONE);
    match trace.discipline {
        Discipline::Dwcs => {}
        // Without windows, Table 2 is earliest deadline first.
        Discipline::Edf if trace.streams.iter().all(windowless) => {}
        found => return Err(Unsupported::Discipline { found }),
    }
    let mut slots: Vec<SlotLoad> = trace.streams.iter().map(slot).collect::<Result<_, _>>()?;
    match &trace.arrivals {
        Arrivals::Backlogged => slots.iter_mut().for_each(|slot| slot.flags |= BACKLOGGED),
        Arrivals::Listed(listed) => {
            for arrival in listed.iter().filter(|arrival| arrival.at.0 < trace.ticks) {
                slots[arrival.stream.0 as usize].arrivals.push(arrival.at.0);
            }
            slots.iter_mut().for_each(|slot| slot.arrivals.sort());
        }
    }
    for (slot, stream) in slots.iter().zip(&trace.streams) {
        let Some(found) = stream.first_deadline else { continue };
        let arrival = slot.arrivals.first().copied().unwrap_or(0);
        if found.0 > SPAN_MAX || arrival.saturating_sub(found.0) > SPAN_MAX {
            let id = stream.id.clone();
            return Err(Unsupported::FirstDeadline { id, found, arrival: Instant(arrival) });
        }
    }
    Ok(slots)
}

fn slot(stream: &TraceStream) -> Result<SlotLoad, Unsupported> {
    let id = || stream.id.clone();
    let contract = &stream.contract;
    let period = u16::try_from(contract.period.0).ok().filter(|&p| u64::from(p) <= SPAN_MAX);
    let period =
        period.ok_or_else(|| Unsupported::Period { id: id(), found: contract.period.0 })?;
    let Windows::Whole(window) = contract.windows else {
        return Err(Unsupported::WindowsByKind { id: id() });
    };
    if contract.delay.is_some() {
        return Err(Unsupported::Delay { id: id() });
    }
    let (Ok(x), Ok(y)) = (u8::try_from(window.lose), u8::try_from(window.of)) else {
        return Err(Unsupported::Window { id: id(), found: window });
    };
    let mut flags = ACTIVE;
    if contract.late == Late::Send {
        flags |= SEND_LATE;
    }
    if contract.work_conserving {
        flags |= WORK_CONSERVING;
    }
    // Too late ones are refused by the caller, which knows the arrivals.
    let mut first_deadline = 0;
    if let Some(first) = stream.first_deadline {
        flags |= FIRST_STATED;
        first_deadline = u16::try_from(first.0).unwrap_or(u16::MAX);
    }
    Ok(SlotLoad { period, x, y, first_deadline, flags, arrivals: Vec::new() })
}
