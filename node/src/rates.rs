//! What was measured of a link's paths, kept in a file beside the node file, `LINK.rates`: a path whose rate is known need
//! not find it anew when the node is started again.
//!
//! A line is `BITS-PER-SECOND SECONDS PATH`, with the seconds since 1970 at which that was measured. The file is only of
//! use for a faster start, so what can't be read or written is left out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use selvedge_comm_bond::PathView;
use selvedge_os::clock::wall_time;
use selvedge_units::Bitrate;

use crate::path_events::is_up;
use selvedge_comm_carrier::credentials::replace;

/// So long a rate counts as known, in seconds.
const FRESH: u64 = 86_400;
/// After so long, in seconds, a rate that stays is written again.
const AGAIN: u64 = 3_600;

/// The rates of a link's paths.
#[derive(Debug)]
pub(crate) struct Rates {
    /// `None`: nothing is kept.
    file: Option<PathBuf>,
    /// By path: the rate, and when it was measured.
    kept: BTreeMap<String, (Bitrate, u64)>,
}

/// The seconds since 1970.
pub(crate) fn seconds() -> u64 {
    wall_time().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Rates {
    pub(crate) fn open(file: Option<PathBuf>) -> Self {
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        let text = text.unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let [rate, at] = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
            Some((words.next()?.to_owned(), (Bitrate(rate), at)))
        };
        Self { file, kept: text.lines().filter_map(line).collect() }
    }

    /// What was measured of a path within a day before.
    pub(crate) fn known(&self, path: &str, now: u64) -> Option<Bitrate> {
        let (rate, at) = *self.kept.get(path)?;
        (at <= now && now - at < FRESH).then_some(rate)
    }

    /// Writes what is known of the paths that carry packets, if it is other than what is kept by a quarter, or that is old.
    pub(crate) fn keep(&mut self, views: &[PathView], now: u64) {
        let mut is_kept = true;
        for view in views.iter().filter(|view| is_up(view)) {
            let Some(rate) = view.status.and_then(|status| status.capacity) else { continue };
            let is_known = self.kept.get(&view.name).is_some_and(|(kept, at)| {
                rate.0.abs_diff(kept.0) <= kept.0 / 4 && (*at..*at + AGAIN).contains(&now)
            });
            if !is_known {
                self.kept.insert(view.name.clone(), (rate, now));
                is_kept = false;
            }
        }
        let Some(file) = self.file.as_ref().filter(|_| !is_kept) else { return };
        let line =
            |(path, (rate, at)): (&String, &(Bitrate, u64))| format!("{} {at} {path}\n", rate.0);
        let text: String = self.kept.iter().map(line).collect();
        if let Err(why) = replace(file, &text) {
            tracing::warn!(file = %file.display(), %why, "a restart would find the paths' rates anew");
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use selvedge_data_net_bond::{PathId, PathParams, Sender};
    use selvedge_units::{Bytes, Instant};

    use super::*;

    fn view(name: &str, kbps: u64) -> PathView {
        let mut bond = Sender::new(Bytes(0));
        bond.add_path(Instant::ZERO, PathId(0), PathParams::default());
        let status = bond.paths().next().map(|(_, mut status)| {
            status.capacity = (kbps > 0).then_some(Bitrate::from_kbps(kbps));
            status
        });
        PathView { name: name.to_owned(), problem: None, left: None, status }
    }

    #[test]
    fn a_rate_is_known_for_a_day_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("uplink.rates");
        let mut rates = Rates::open(Some(file.clone()));
        assert_eq!(rates.known("lte", 1_000), None);
        // One is not connected, and of another nothing was seen.
        let unconnected = PathView { status: None, ..view("dsl", 9) };
        rates.keep(&[view("lte", 4_000), unconnected, view("fibre", 0)], 1_000);
        // Too little has changed, and then enough.
        rates.keep(&[view("lte", 4_900)], 1_100);
        let kept = || std::fs::read_to_string(&file).unwrap();
        assert_eq!(kept(), "4000000 1000 lte\n");
        rates.keep(&[view("lte", 6_000)], 1_200);
        rates.keep(&[view("lte", 6_000)], 1_200 + AGAIN);
        assert_eq!(kept(), "6000000 4800 lte\n");

        let rates = Rates::open(Some(file.clone()));
        let known = |now| rates.known("lte", now).map(|rate| rate.0 / 1_000);
        assert_eq!([4_800, 4_799 + FRESH].map(known), [Some(6_000); 2]);
        assert_eq!([4_799, 4_800 + FRESH].map(known), [None; 2]);
        assert_eq!(rates.known("dsl", 4_800), None);
    }

    #[test]
    fn what_is_no_rate_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("uplink.rates");
        std::fs::write(&file, "x 1 one\n5 two\n\n-1 1 three\n7 1 four five\n").unwrap();
        let mut rates = Rates::open(Some(file));
        assert_eq!(rates.kept.keys().collect::<Vec<_>>(), ["four five"]);
        // A folder that is gone costs nothing but the next start's time.
        drop(folder);
        rates.keep(&[view("one", 1)], 2);
        assert_eq!(rates.known("one", 2), Some(Bitrate::from_kbps(1)));
    }
}
