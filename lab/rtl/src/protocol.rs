//! What the model program is asked, and the records that it answers. `sim/model.cpp` is the other
//! end. All numbers are little-endian.

/// The first four bytes of a request.
const MAGIC: &[u8; 4] = b"SSR1";

/// Flags of a slot, as the register block has them.
pub(crate) const SEND_LATE: u16 = 1;
pub(crate) const WORK_CONSERVING: u16 = 2;
pub(crate) const FIRST_STATED: u16 = 4;
pub(crate) const BACKLOGGED: u16 = 8;
pub(crate) const ACTIVE: u16 = 16;

/// A stream as the registers take it, and its frames' arrivals in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotLoad {
    pub(crate) period: u16,
    pub(crate) x: u8,
    pub(crate) y: u8,
    pub(crate) first_deadline: u16,
    pub(crate) flags: u16,
    pub(crate) arrivals: Vec<u64>,
}

/// A replay's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplayMode {
    pub(crate) ticks: u64,
    pub(crate) min_first: bool,
    /// A decision serves the whole block.
    pub(crate) whole_block: bool,
    /// Slots of time from a decision to the next.
    pub(crate) advance: u8,
}

pub(crate) fn replay_request(mode: ReplayMode, slots: &[SlotLoad]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(b'R');
    out.extend(mode.ticks.to_le_bytes());
    out.extend([u8::from(mode.min_first), u8::from(mode.whole_block), mode.advance]);
    out.push(u8::try_from(slots.len()).expect("at most 64 slots"));
    for slot in slots {
        out.extend(slot.period.to_le_bytes());
        out.extend([slot.x, slot.y]);
        out.extend(slot.first_deadline.to_le_bytes());
        out.extend(slot.flags.to_le_bytes());
        let count = u32::try_from(slot.arrivals.len()).expect("fewer than 2^32 arrivals");
        out.extend(count.to_le_bytes());
        slot.arrivals.iter().for_each(|at| out.extend(at.to_le_bytes()));
    }
    out
}

/// Blocks of the heads given: deadline, x', y' of each slot, one list a block.
pub(crate) fn order_request(min_first: bool, blocks: &[Vec<(u16, u8, u8)>]) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(b'O');
    out.extend(u32::try_from(blocks.len()).expect("fewer than 2^32 blocks").to_le_bytes());
    out.push(u8::from(min_first));
    for &(deadline, x, y) in blocks.iter().flatten() {
        out.extend(deadline.to_le_bytes());
        out.extend([x, y]);
    }
    out
}

pub(crate) fn count_request(decisions: u32) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.push(b'C');
    out.extend(decisions.to_le_bytes());
    out
}

/// One record of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayRecord {
    /// A frame was lost; its deadline as a distance from the present slot.
    Drop {
        slot: u8,
        ahead: i16,
    },
    Miss {
        slot: u8,
        ahead: i16,
    },
    Send {
        slot: u8,
        ahead: i16,
        late: bool,
    },
    Idle,
    /// The end of a decision that serves a block.
    BlockEnd,
    /// The end: counters follow.
    Totals,
    /// The end: a register of a slot went out of its range. Bit 0: a deadline too far ahead, bit 1:
    /// a frame that waited too long, bit 2: y' above 255. The slot of time follows.
    Range {
        slot: u8,
        what: u8,
    },
}

/// Bytes of a record.
pub(crate) const RECORD: usize = 4;

impl ReplayRecord {
    /// The record in these bytes; `Range` takes its fifth byte from what follows.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [kind, slot, low, high, ..] = *bytes else { return None };
        let ahead = i16::from_le_bytes([low, high]);
        Some(match kind {
            1 => Self::Drop { slot, ahead },
            2 => Self::Miss { slot, ahead },
            3 => Self::Send { slot, ahead, late: false },
            4 => Self::Send { slot, ahead, late: true },
            5 => Self::Idle,
            6 => Self::Totals,
            7 => Self::Range { slot, what: *bytes.get(RECORD)? },
            8 => Self::BlockEnd,
            _ => return None,
        })
    }
}
