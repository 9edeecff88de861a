//! The structures and codes of the header, in the same order of fields.

use core::ffi::{CStr, c_int};

use selvedge_data_sched::{Tree, TreeNode};
use selvedge_data_stream::{Class, Late, Window};
use selvedge_units::Duration;

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
    /// A window allows more losses than it has frames.
    Window = -5,
    /// A period, delay, weight or flag is out of range.
    Value = -6,
    /// The library panicked, now or before.
    Panic = -7,
    /// A node is not below an earlier one, or a stream is below no node.
    Tree = -8,
    /// There is no set at that index, it still has streamlets or none, or no more sets fit.
    Set = -9,
}

pub(crate) const fn text(code: c_int) -> &'static CStr {
    match code {
        0 | 1 => c"no error",
        -1 => c"a pointer is null",
        -2 => c"there is no discipline of that name",
        -3 => c"there is no stream at that index",
        -4 => c"the stream has a head already, or has none to serve",
        -5 => c"the window loses more frames than it holds; lose is at most of",
        -6 => c"period, delay, weight and remap are at least 1, flags 0 or 1, the class 0 to 2",
        -7 => c"a bug in the library; free the handle",
        -8 => {
            c"list parents before children; a parent is 0, the link, or the number of a node from 1"
        }
        -9 => {
            c"there is no such set, or it has streamlets, or none; 16 sets fit, whose weights have a common multiple up to 2^48"
        }
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
    /// `enum selvedge_class`.
    pub class: u8,
    /// 0: the link itself; `n`: the `n`-th node of the tree.
    pub parent: u32,
}

/// `selvedge_node`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Node {
    /// 0: the link itself; `n`: the `n`-th node, which stands before this one.
    pub parent: u32,
    /// At least 1.
    pub weight: u32,
}

/// The tree of these nodes.
pub(crate) fn tree(nodes: &[Node], remap_ns: u64) -> Result<Tree, Error> {
    if remap_ns == 0 || nodes.iter().any(|node| node.weight == 0) {
        return Err(Error::Value);
    }
    let nodes = nodes.iter().map(|node| TreeNode { parent: node.parent, weight: node.weight });
    let update = (remap_ns != NONE).then_some(Duration(remap_ns));
    Tree::new(nodes.collect(), update).map_err(|_| Error::Tree)
}

impl Contract {
    /// The contract, checked for a scheduler whose tree has `nodes` nodes.
    pub(crate) fn checked(&self, nodes: u32) -> Result<selvedge_data_stream::Contract, Error> {
        let class = match self.class {
            0 => Class::Fair,
            1 => Class::Edf,
            2 => Class::Priority,
            _ => return Err(Error::Value),
        };
        if self.parent > nodes {
            return Err(Error::Tree);
        }
        let window = Window::new(self.window_lose, self.window_of).map_err(|_| Error::Window)?;
        let flags = self.late_send <= 1 && self.work_conserving <= 1;
        if !flags || self.period_ns == 0 || self.delay_ns == 0 || self.weight == 0 {
            return Err(Error::Value);
        }
        Ok(selvedge_data_stream::Contract {
            late: if self.late_send == 1 { Late::Send } else { Late::Drop },
            work_conserving: self.work_conserving == 1,
            weight: self.weight,
            priority: self.priority,
            class,
            parent: self.parent,
            delay: (self.delay_ns != NONE).then_some(Duration(self.delay_ns)),
            ..selvedge_data_stream::Contract::new(Duration(self.period_ns), window)
        })
    }
}

/// `selvedge_head`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HeadFrame {
    /// When it was enqueued.
    pub arrival_ns: u64,
    /// Its own deadline, or [`NONE`].
    pub deadline_ns: u64,
    /// Its size, for the disciplines that share a link by bytes.
    pub size_bytes: u64,
}

/// `selvedge_expiry`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Expiry {
    /// The first deadline that was missed.
    pub deadline_ns: u64,
    /// The next deadline of a frame that is kept.
    pub next_ns: u64,
    /// How many missed deadlines this stands for.
    pub misses: u64,
    /// The stream of the frame.
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
    /// The last missed deadline of a frame that was kept.
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
    /// Of those, the frames served after a missed deadline.
    pub late: u64,
    /// Missed deadlines.
    pub missed: u64,
    /// Dropped frames.
    pub dropped: u64,
    /// Misses that the window did not allow.
    pub violations: u64,
}

impl From<selvedge_data_stream::Counters> for Counters {
    fn from(counted: selvedge_data_stream::Counters) -> Self {
        let selvedge_data_stream::Counters { sent, late, missed, dropped, violations } = counted;
        Self { sent, late, missed, dropped, violations }
    }
}

/// `selvedge_streamlet_counts`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct StreamletCounts {
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames dropped.
    pub dropped: u64,
}

impl From<selvedge_data_sched::aggregate::StreamletCounts> for StreamletCounts {
    fn from(counted: selvedge_data_sched::aggregate::StreamletCounts) -> Self {
        Self { sent: counted.sent, sent_bytes: counted.bytes.0, dropped: counted.dropped }
    }
}
