//! Whether the datagrams of a path's connection go as ECN-capable: queues may mark those instead of dropping them, and
//! some networks lose them all (RFC 9000, 13.4).
//!
//! A connection is made without. Once its path delivers, datagrams go with it. If the path falls silent before any of these
//! was reported, it goes on without, until it is connected anew.

use selvedge_data_net_bond::{PathState, PathStatus};
use selvedge_units::Instant;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ect {
    /// The path does not deliver yet.
    #[default]
    Untried,
    /// Datagrams go with it since then, and none of them was reported.
    Tried(Instant),
    /// One of them was reported.
    Delivered,
    /// The path fell silent before one was reported.
    Vanished,
}

impl Ect {
    pub(crate) fn handle_status(&mut self, now: Instant, status: &PathStatus) {
        *self = match (*self, status.state) {
            (Self::Untried, PathState::Active) => Self::Tried(now),
            (Self::Tried(_), PathState::Silent(_)) => Self::Vanished,
            // What went without before is reported by then.
            (Self::Tried(since), _) if status.heard > since + status.round_trip * 2 => {
                Self::Delivered
            }
            (same, _) => same,
        };
    }

    /// Whether datagrams go as ECN-capable now.
    pub(crate) const fn is_capable(self) -> bool {
        matches!(self, Self::Tried(_) | Self::Delivered)
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_net_bond::{PathId, PathParams, Sender};
    use selvedge_units::{Bytes, Duration};

    use super::*;

    fn status(state: PathState, heard: Instant) -> PathStatus {
        let mut bond = Sender::new(Bytes(0));
        bond.add_path(Instant::ZERO, PathId(0), PathParams::default());
        let (_, status) = bond.paths().next().expect("the path");
        PathStatus { state, heard, round_trip: Duration::from_millis(100), ..status }
    }

    /// What becomes of it, one after another, and whether datagrams go with it then.
    fn follow(steps: &[(u64, PathState, u64)]) -> Vec<bool> {
        let (mut ect, ms) = (Ect::default(), |ms| Instant::ZERO + Duration::from_millis(ms));
        let capable = steps.iter().map(|(now, state, heard)| {
            ect.handle_status(ms(*now), &status(*state, ms(*heard)));
            ect.is_capable()
        });
        capable.collect()
    }

    #[test]
    fn a_path_goes_on_without_if_it_falls_silent_before_one_is_reported() {
        use PathState::Active;
        let silent = PathState::Silent(Instant::ZERO);
        // The last report is of what went without.
        let vanished =
            [(0, silent, 0), (500, Active, 500), (900, silent, 600), (2_000, Active, 2_000)];
        assert_eq!(follow(&vanished), [false, true, false, false]);
        let delivered =
            [(0, Active, 0), (300, Active, 201), (900, silent, 600), (950, Active, 950)];
        assert_eq!(follow(&delivered), [true; 4]);
    }
}
