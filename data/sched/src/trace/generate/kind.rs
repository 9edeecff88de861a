//! The feature that a generated trace is meant to show: its name and its properties.

macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident = $theme:expr;)*) => {
        /// The feature that a generated trace is meant to show.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Kind {
            $($(#[$meta])* $name,)*
        }

        impl Kind {
            /// All of them; the first ones are those of the vectors, in the order of their seeds.
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];

            pub(super) const fn theme(self) -> Theme {
                match self {
                    $(Self::$name => $theme,)*
                }
            }
        }
    };
}

kinds! {
    /// Queues are never empty.
    Backlogged = Theme { name: "backlogged", backlogged: true, ..Theme::PLAIN };
    /// Bursts and gaps.
    Arrivals = Theme { name: "arrivals", ..Theme::PLAIN };
    /// Late frames are kept.
    SendLate = Theme { name: "send-late", late: Some(true), ..Theme::PLAIN };
    /// Late frames are kept, and queues are never empty.
    SendLateBacklogged = Theme {
        name: "send-late-backlogged",
        late: Some(true),
        backlogged: true,
        ..Theme::PLAIN
    };
    /// Some streams are not work-conserving.
    Paced = Theme { name: "paced", paced: true, ..Theme::PLAIN };
    /// The same, and queues are never empty.
    PacedBacklogged =
        Theme { name: "paced-backlogged", paced: true, backlogged: true, ..Theme::PLAIN };
    /// All deadlines equal.
    Ties = Theme { name: "ties", ties: true, backlogged: true, ..Theme::PLAIN };
    /// The same with bursts and gaps.
    TiesArrivals = Theme { name: "ties-arrivals", ties: true, paced: true, ..Theme::PLAIN };
    /// Most streams have no window.
    NoWindow = Theme { name: "no-window", window: Some(WindowKind::None), ..Theme::PLAIN };
    /// No stream may lose a frame.
    Lossless = Theme {
        name: "lossless",
        window: Some(WindowKind::Lossless),
        backlogged: true,
        ..Theme::PLAIN
    };
    /// Many streams.
    Many = Theme { name: "many", streams: 32, ..Theme::PLAIN };
    /// Values at the ends of their ranges.
    Extreme = Theme { name: "extreme", extreme: true, ..Theme::PLAIN };
    /// No stream has a window, and queues are never empty.
    NoWindowBacklogged = Theme {
        name: "no-window-backlogged",
        streams: 6,
        window: Some(WindowKind::None),
        backlogged: true,
        ..Theme::PLAIN
    };
    /// All deadlines and all fractions equal, in different terms.
    TiesHalf = Theme {
        name: "ties-half",
        streams: 6,
        window: Some(WindowKind::Half),
        ties: true,
        backlogged: true,
        ..Theme::PLAIN
    };
    /// Weights and sizes of all kinds, for the disciplines that look at them.
    Weighted = Theme { name: "weighted", weighted: true, ..Theme::PLAIN };
    /// A set that needs little of the link, and whose windows fail all the same; after Mok and
    /// Wang, "Window-constrained real-time periodic task scheduling" (RTSS 2001).
    Adversarial = Theme { name: "adversarial", adversarial: true, backlogged: true, ..Theme::PLAIN };
}

impl Kind {
    /// The name on the command line and in the names of vectors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.theme().name
    }

    /// The kind of this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Theme {
    pub(super) name: &'static str,
    pub(super) streams: u64,
    pub(super) backlogged: bool,
    /// `None`: true for some streams, false for others.
    pub(super) late: Option<bool>,
    /// Some streams are not work-conserving.
    pub(super) paced: bool,
    /// Equal periods, few windows: the last rules decide.
    pub(super) ties: bool,
    pub(super) window: Option<WindowKind>,
    /// Values at the ends of their ranges.
    pub(super) extreme: bool,
    pub(super) weighted: bool,
    pub(super) adversarial: bool,
}

#[derive(Clone, Copy)]
pub(super) enum WindowKind {
    None,
    Lossless,
    /// One half, in different terms.
    Half,
}

impl Theme {
    const PLAIN: Self = Self {
        name: "plain",
        streams: 0,
        backlogged: false,
        late: None,
        paced: false,
        ties: false,
        window: None,
        extreme: false,
        weighted: false,
        adversarial: false,
    };
}
