//! The contract of a stream: how often a frame is due, how many may be lost, and what happens to
//! late frames.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use selvedge_units::Duration;

use crate::Kind;

/// In every window of `of` frames at most `lose` may miss their deadlines. `0/0`: no window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Window {
    /// `x`: how many may be lost or late, 0 ..= `of`.
    pub lose: u16,
    /// `y`: of this number.
    pub of: u16,
}

/// Why a text or a pair is not a window.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    /// Not two whole numbers with a stroke between, each at most 65535.
    #[error(
        "\"{0}\" is not a window; write \"x/y\" with whole numbers up to 65535, such as \"1/5\""
    )]
    Malformed(String),
    /// More to lose than there are frames.
    #[error("window {0} would lose more frames than it holds; x must be at most y")]
    LosesTooMany(Window),
}

impl Window {
    /// No window: ordered by deadline alone.
    pub const NONE: Self = Self { lose: 0, of: 0 };

    /// `lose` out of `of`, refused where `lose > of`.
    ///
    /// # Errors
    /// [`WindowError::LosesTooMany`].
    pub const fn new(lose: u16, of: u16) -> Result<Self, WindowError> {
        let window = Self { lose, of };
        if lose > of { Err(WindowError::LosesTooMany(window)) } else { Ok(window) }
    }

    /// Whether there is a window at all.
    #[must_use]
    pub const fn is_some(self) -> bool {
        self.of != 0
    }
}

impl FromStr for Window {
    type Err = WindowError;
    fn from_str(text: &str) -> Result<Self, WindowError> {
        let malformed = || WindowError::Malformed(text.into());
        let (lose, of) = text.split_once('/').ok_or_else(malformed)?;
        let number = |part: &str| part.trim().parse::<u16>().map_err(|_| malformed());
        Self::new(number(lose)?, number(of)?)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lose, self.of)
    }
}

/// The windows of a stream: one for all its frames, or one for each kind of frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// One window that counts every frame.
    Whole(Window),
    /// A window for each kind, by [`Kind`] number; each counts only frames of that kind.
    PerKind([Window; Kind::COUNT]),
}

impl Windows {
    /// The window that a frame of this kind is counted in.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> Window {
        match self {
            Self::Whole(window) => *window,
            Self::PerKind(windows) => windows[kind as usize],
        }
    }
}

selvedge_units::named! {
    /// The treatment of a frame that missed its deadline.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Late {
        /// It is dropped.
        #[default]
        Drop = "drop",
        /// It is sent late.
        Send = "send",
    }
}

selvedge_units::named! {
    /// How a stream is ordered where streams of several kinds share one scheduler.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Class {
        /// By deadline, before the others.
        Edf = "edf",
        /// By priority, after those by deadline.
        Priority = "priority",
        /// By weight, from the remaining capacity.
        #[default]
        Fair = "fair",
    }
}

/// The obligations and rights of a stream. The fields that every frame needs come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Contract {
    /// Distance between the deadlines of successive frames, more than zero.
    pub period: Duration,
    /// Time from a frame's arrival to its deadline, for frames that state none;
    /// `None`: one period (the rule of `max(previous deadline, arrival) + period`).
    pub delay: Option<Duration>,
    /// The treatment of late frames.
    pub late: Late,
    /// Whether a frame may go before its period begins.
    pub work_conserving: bool,
    /// The losses that are allowed.
    pub windows: Windows,
    /// Share against other streams, for disciplines that use it and for the value of a frame.
    pub weight: u32,
    /// Higher goes first under `priority`, and is given up last by frame selection.
    pub priority: i32,
    /// How it is ordered under `mixed`.
    pub class: Class,
    /// Where it hangs in the tree of `hwfq`: 0 for the link itself, `n` for the `n`-th node.
    pub parent: u32,
}

impl Contract {
    /// A contract with this period and window, dropping late frames.
    #[must_use]
    pub const fn new(period: Duration, window: Window) -> Self {
        Self {
            period,
            windows: Windows::Whole(window),
            late: Late::Drop,
            work_conserving: true,
            weight: 1,
            priority: 0,
            class: Class::Fair,
            parent: 0,
            delay: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_reads_and_prints() {
        assert_eq!("1/5".parse(), Ok(Window { lose: 1, of: 5 }));
        assert_eq!("0/0".parse::<Window>().map(Window::is_some), Ok(false));
        assert_eq!("65535/65535".parse::<Window>().unwrap().to_string(), "65535/65535");
    }

    #[test]
    fn a_bad_window_says_why() {
        let say = |text: &str| text.parse::<Window>().unwrap_err().to_string();
        assert!(say("3/2").contains("x must be at most y"));
        for text in ["", "1", "1/", "a/b", "-1/2", "1/65536", "1/2/3"] {
            assert!(say(text).contains("is not a window"), "{text}");
        }
    }
}
