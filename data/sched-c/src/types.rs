//! The structures and codes of the header, in the same order of fields.

use core::ffi::{CStr, c_int};

use selvedge_stream::{Late, Window};
use selvedge_units::Span;

/// `SELVEDGE_NONE`.
pub const NONE: u64 = u64::MAX;

/// `enum selvedge_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Error {
    /// A pointer is null.
    Null = -1,
    /// There is no discipline of that name.
    Discipline = -2,
    /// There is no stream at that index.
    Stream = -3,
    /// The stream has a head already, or has none.
    Head = -4,
    /// A window loses more than it holds.
    Window = -5,
    /// A period, delay, weight or flag is out of range.
    Value = -6,
    /// The library panicked, now or before.
    Panic = -7,
}

pub(crate) const fn text(code: c_int) -> &'static CStr {
    match code {
        0 | 1 => c"no error",
        -1 => c"a pointer is null",
        -2 => c"there is no discipline of that name",
        -3 => c"there is no stream at that index",
        -4 => c"the stream has a head already, or has none to serve",
        -5 => c"the window loses more frames than it holds; lose is at most of",
        -6 => c"period, delay and weight are at least 1, flags 0 or 1",
        -7 => c"a bug in the library; free the handle",
        _ => c"no code of this library",
    }
}

/// `selvedge_contract`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Contract {
    /// At least 1.
    pub period_ns: u64,
    /// Or [`NONE`].
    pub delay_ns: u64,
    /// At least 1.
    pub weight: u32,
    /// Higher goes first.
    pub priority: i32,
    /// At most `window_of`.
    pub window_lose: u16,
    /// 0: no window.
    pub window_of: u16,
    /// 0 or 1.
    pub late_send: u8,
    /// 0 or 1.
    pub work_conserving: u8,
}

impl Contract {
    pub(crate) fn checked(&self) -> Result<selvedge_stream::Contract, Error> {
        let window = Window::new(self.window_lose, self.window_of).map_err(|_| Error::Window)?;
        let flags = self.late_send <= 1 && self.work_conserving <= 1;
        if !flags || self.period_ns == 0 || self.delay_ns == 0 || self.weight == 0 {
            return Err(Error::Value);
        }
        Ok(selvedge_stream::Contract {
            late: if self.late_send == 1 { Late::Send } else { Late::Drop },
            work_conserving: self.work_conserving == 1,
            weight: self.weight,
            priority: self.priority,
            delay: (self.delay_ns != NONE).then_some(Span(self.delay_ns)),
            ..selvedge_stream::Contract::new(Span(self.period_ns), window)
        })
    }
}

/// `selvedge_head`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HeadFrame {
    /// When it came into its queue.
    pub arrival_ns: u64,
    /// Its own, or [`NONE`].
    pub deadline_ns: u64,
    /// Its size, for the disciplines that share a link by bytes.
    pub size_bytes: u64,
}

/// `selvedge_expiry`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Expiry {
    /// The first deadline missed.
    pub deadline_ns: u64,
    /// The next, of a frame that is kept.
    pub next_ns: u64,
    /// How many this stands for.
    pub misses: u64,
    /// Whose frame.
    pub stream: u32,
    /// 0 or 1.
    pub dropped: u8,
    /// 0 or 1.
    pub violation: u8,
}

/// `selvedge_served`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Served {
    /// The last one, of a frame that was kept.
    pub deadline_ns: u64,
    /// 0 or 1.
    pub late: u8,
}

/// `selvedge_counters`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Counters {
    /// Frames served.
    pub sent: u64,
    /// Of those, after a missed deadline.
    pub late: u64,
    /// Deadlines.
    pub missed: u64,
    /// Frames.
    pub dropped: u64,
    /// Misses that the window did not allow.
    pub violations: u64,
}

impl From<selvedge_sched::Counters> for Counters {
    fn from(counted: selvedge_sched::Counters) -> Self {
        let selvedge_sched::Counters { sent, late, missed, dropped, violations } = counted;
        Self { sent, late, missed, dropped, violations }
    }
}
