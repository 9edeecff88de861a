//! Four queues that share a link 1:1:2:4, for Figures 8 and 9: how the scheduler is set up, and what
//! came out.
//!
//! The link carries 16,000 frames of 1000 bytes a second, so that the shares are the 2, 2, 4 and
//! 8 MB/s of the paper's Figure 10. A slot is one frame.

use selvedge_data_sched::replay::{Arrivals, Event, Replay, ReplayAction, Trace, TraceStream};
use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stream::{Contract, Late, Window};
use selvedge_units::Duration;

use crate::experiment::{Edit, Params};

/// The queues' shares, in eighths.
pub(crate) const SHARES: [u64; 4] = [1, 1, 2, 4];
pub(crate) const EIGHTHS: u64 = 8;
/// The edit under which all have the same share.
pub(crate) const EQUAL: Edit =
    Edit { name: "equal", what: "each stream is promised a quarter of the link" };

/// The shares that are promised: `SHARES`, unless they are edited to be equal.
pub(crate) fn promised(params: &Params) -> [u64; 4] {
    params.edited(EQUAL.name, SHARES, [2; 4])
}

/// Frames a second.
pub(crate) const RATE: f64 = 16_000.0;
/// Megabytes in a frame.
pub(crate) const MEGABYTES: f64 = 0.001;

/// A way of telling the scheduler to share 1:1:2:4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    pub(crate) name: &'static str,
    pub(crate) discipline: Discipline,
    terms: fn(u64) -> Contract,
}

/// By periods: a share of `n` eighths is a frame every `8/n` slots, none to be lost.
pub(crate) const BY_PERIODS: Sharing = Sharing {
    name: "dwcs, periods 8, 8, 4, 2",
    discipline: Discipline::Dwcs,
    terms: |share| Contract::new(Duration(EIGHTHS / share), Window { lose: 0, of: 1 }),
};

/// By windows: a frame is due in every slot, and `8 - n` of 8 may be late.
pub(crate) const BY_WINDOWS: Sharing = Sharing {
    name: "dwcs, windows 7/8, 7/8, 6/8, 4/8",
    discipline: Discipline::Dwcs,
    terms: |share| Contract {
        late: Late::Send,
        ..Contract::new(Duration(1), Window { lose: (EIGHTHS - share) as u16, of: EIGHTHS as u16 })
    },
};

impl Sharing {
    /// What a stream with a share of so many eighths is promised.
    pub(crate) fn contract(self, share: u64) -> Contract {
        (self.terms)(share)
    }

    /// Four streams with these shares; paced ones go no sooner than their period begins.
    pub(crate) fn trace(
        self,
        shares: [u64; 4],
        paced: bool,
        ticks: u64,
        arrivals: Arrivals,
    ) -> Trace {
        let streams = shares.iter().zip(1..).map(|(&share, n): (_, u32)| TraceStream {
            id: format!("stream {n}"),
            contract: Contract { work_conserving: !paced, ..self.contract(share) },
            first_deadline: None,
        });
        Trace {
            discipline: self.discipline,
            ticks,
            streams: streams.collect(),
            tree: Tree::default(),
            arrivals,
        }
    }
}

/// The stream and the number of each frame that is sent, with its slot.
pub(crate) fn sent(trace: &Trace) -> impl Iterator<Item = (u64, usize, u64)> {
    Replay::new(trace).filter_map(|Event { t, action: happening }| match happening {
        ReplayAction::Send { frame, .. } => Some((t.0, frame.stream.0 as usize, frame.seq)),
        _ => None,
    })
}
