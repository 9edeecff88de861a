//! The disciplines: each is a key, made when a head frame comes up or its standing changes, so
//! that a decision is a comparison of integers and nothing else.
//!
//! One file each, one line in the table below. A discipline says only its own rank; what all have
//! in common (expiry, rules a and b, earlier arrival first, then the lower index) is elsewhere.

mod dwcs;
mod dwcs98;
mod edf;
mod fifo;
mod priority;

#[cfg(test)]
mod tests;

use core::fmt;

use selvedge_stream::Window;
use selvedge_units::Instant;

/// What a discipline may look at when it ranks a stream's head frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) deadline: Instant,
    /// The current window `x'/y'` that the frame is counted in, `x' <= y'`.
    pub(crate) window: Window,
    pub(crate) priority: i32,
}

/// A discipline. Whatever it must remember between decisions (a virtual time) lives in `self`.
pub(crate) trait Rule {
    /// The lower goes first; never all bits set. Equal ranks go by arrival, then by index.
    /// Called when a frame becomes head, and again when its deadline or its window changes.
    fn rank(&mut self, head: &Standing) -> u128;
}

macro_rules! disciplines {
    ($($(#[$meta:meta])* $name:ident = $text:literal => $rule:ty;)*) => {
        /// The order in which streams are served.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum Discipline {
            $($(#[$meta])* $name,)*
        }

        impl Discipline {
            /// All of them.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            /// The name in node files, traces and tables.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            pub(crate) fn rule(self) -> AnyRule {
                match self {
                    $(Self::$name => AnyRule::$name(<$rule>::default()),)*
                }
            }
        }

        /// Any one of the disciplines, without a call through a pointer.
        #[derive(Clone, Debug)]
        pub(crate) enum AnyRule {
            $($name($rule),)*
        }

        impl Rule for AnyRule {
            fn rank(&mut self, head: &Standing) -> u128 {
                match self {
                    $(Self::$name(rule) => rule.rank(head),)*
                }
            }
        }
    };
}

disciplines! {
    /// Earliest deadline first, then window (ShareStreams Table 2, Q-Fabric Table 1).
    #[default]
    Dwcs = "dwcs" => dwcs::Dwcs;
    /// Window first, then deadline: the original order (NI coprocessors).
    Dwcs98 = "dwcs98" => dwcs98::Dwcs98;
    /// Earliest deadline first.
    Edf = "edf" => edf::Edf;
    /// Highest priority first.
    Priority = "priority" => priority::Priority;
    /// First come, first served.
    Fifo = "fifo" => fifo::Fifo;
}

impl Discipline {
    /// The discipline of this name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|discipline| discipline.name() == name)
    }
}

impl fmt::Display for Discipline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
