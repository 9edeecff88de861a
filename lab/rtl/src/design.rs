//! The parameters of the design: how many slots, what is routed, and what is computed ahead.

use core::fmt;

use serde::Serialize;

/// How many stream slots the hardware has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(into = "u8")]
pub enum Slots {
    /// 4, as in the paper's prototype.
    S4,
    /// 8.
    S8,
    /// 16.
    S16,
    /// 32, the most in the paper.
    S32,
    /// 64; ids are 6 bits wide then, not 5.
    S64,
}

impl Slots {
    /// All that there are.
    pub const ALL: [Self; 5] = [Self::S4, Self::S8, Self::S16, Self::S32, Self::S64];

    /// Their number.
    #[must_use]
    pub const fn count(self) -> usize {
        1 << self.log2()
    }

    /// The binary logarithm of their number, 2 ..= 6.
    #[must_use]
    pub const fn log2(self) -> u32 {
        match self {
            Self::S4 => 2,
            Self::S8 => 3,
            Self::S16 => 4,
            Self::S32 => 5,
            Self::S64 => 6,
        }
    }

    /// The fewest that hold so many streams; `None` above 64.
    #[must_use]
    pub fn for_streams(streams: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|slots| slots.count() >= streams)
    }
}

impl From<Slots> for u8 {
    fn from(slots: Slots) -> Self {
        1 << slots.log2()
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.count().fmt(f)
    }
}

selvedge_units::named! {
    /// What the decision blocks hand on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Routing {
        /// Winners only: the paper's max-finding configuration (WR).
        WinnerOnly = "winner only",
        /// Winners and losers in log2 N passes: the paper's block (BA), of which only the first and
        /// the last place are sure to be right.
        PartialBlock = "partial block",
        /// Winners and losers in `1 + log2 N (log2 N - 1)` passes: a block that is sorted.
        FullSort = "full sort",
        /// A tree of N - 1 decision blocks, one pass. Not in the paper.
        Tree = "winner tree",
    }
}

/// One design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Design {
    /// How many slots.
    pub slots: Slots,
    /// What is routed.
    pub routing: Routing,
    /// Whether the priority update is computed ahead, so that it takes no clock of its own.
    pub ahead: bool,
    /// Whether a compare takes two clocks, with a register after its products. A tree has none.
    pub piped: bool,
}

impl Design {
    /// Neither computed ahead nor piped: the paper's.
    #[must_use]
    pub const fn plain(slots: Slots, routing: Routing) -> Self {
        Self { slots, routing, ahead: false, piped: false }
    }

    /// The Verilog parameters of `ss_core` and `ss_top`, with their values.
    pub(crate) fn parameters(&self) -> [(&'static str, usize); 4] {
        let piped = self.piped && self.routing != Routing::Tree;
        [
            ("N", self.slots.count()),
            ("MODE", self.routing as usize),
            ("AHEAD", usize::from(self.ahead)),
            ("PIPE", usize::from(piped)),
        ]
    }
}

impl fmt::Display for Design {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots, {}", self.slots, self.routing.name())?;
        f.write_str(if self.ahead { ", compute-ahead" } else { "" })?;
        f.write_str(if self.piped { ", piped compare" } else { "" })
    }
}
