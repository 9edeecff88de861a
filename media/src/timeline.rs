//! One unbroken timeline from the timestamps of media.
//!
//! Clips begin anywhere, lack timestamps, jump where they were cut, and begin again when they loop;
//! decoding may begin before zero. The result begins at zero, never goes back in decoding order, and
//! keeps the distance between decoding and display.

use selvedge_units::Duration;

/// A step of more than this between successive frames is a break, not a pause.
const BREAK_NS: u64 = 10_000_000_000;
/// The largest distance of display from decoding.
const LAG_MAX_NS: i64 = 2_000_000_000;
/// How far decoding times that are only counted may drift from display times.
const DRIFT_MAX_NS: u64 = 1_000_000_000;

/// The two times of a frame, since the start of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameTimes {
    /// When it is to be decoded; never goes back.
    pub decode: Duration,
    /// When it is to be shown; not before it is decoded.
    pub present: Duration,
}

/// Places frames. Input times are nanoseconds on the medium's own clock, of any sign.
#[derive(Clone, Debug)]
pub struct Timeline {
    period: i64,
    /// The offset of the medium's clock from ours, and the last decoding time on the medium's.
    pass: Option<(i64, i64)>,
    /// When the next frame would be decoded if all frames were evenly spaced.
    next: i64,
    last: i64,
    /// The place of our zero on the medium's clock in the next pass, if that is set.
    aligned: Option<i64>,
}

impl Timeline {
    /// A timeline whose frames come at this period, where nothing else is known.
    #[must_use]
    pub fn new(period: Duration) -> Self {
        Self { period: nanos(period).max(1), pass: None, next: 0, last: 0, aligned: None }
    }

    /// Sets another period, from the next frame on.
    pub fn set_period(&mut self, period: Duration) {
        self.period = nanos(period).max(1);
    }

    /// The medium begins again: its next frame follows the last by one period.
    pub fn restart(&mut self) {
        self.pass = None;
    }

    /// The medium begins, or begins again, with our zero at this moment of its clock: streams that are
    /// aligned equally stay synchronous. Such a pass begins at its first frame, not where the last pass
    /// ended.
    pub fn align(&mut self, zero: i64) {
        self.pass = None;
        self.aligned = Some(zero);
    }

    /// When the frame after the last would be decoded if all frames were evenly spaced.
    #[must_use]
    pub fn next_decode(&self) -> Duration {
        span(self.next)
    }

    /// The times of the next frame in decoding order. `lag` replaces the distance from decoding to
    /// display where there is no `pts`.
    pub fn place(&mut self, pts: Option<i64>, dts: Option<i64>, lag: Duration) -> FrameTimes {
        let counted = self.pass.map(|(_, last)| last.saturating_add(self.period));
        let raw = match (dts, counted, pts) {
            (Some(dts), ..) => dts,
            // Display times go back and forth; decoding times are counted beside them.
            (None, Some(counted), Some(pts)) if pts.abs_diff(counted) > DRIFT_MAX_NS => pts,
            (None, Some(counted), _) => counted,
            (None, None, pts) => pts.unwrap_or(0),
        };
        let step = self.pass.map(|(_, last)| raw.saturating_sub(last));
        let origin = match (self.pass, step) {
            (Some((origin, _)), Some(step)) if step.unsigned_abs() <= BREAK_NS => origin,
            (None, _) if self.aligned.is_some() => {
                // The time for reordering is added to display times below.
                let reorder = if dts.is_none() && pts.is_some() { self.period } else { 0 };
                self.aligned.take().unwrap_or_default().saturating_add(reorder)
            }
            _ => raw.saturating_sub(self.next),
        };
        self.pass = Some((origin, raw));
        let decode = raw.saturating_sub(origin).max(self.last);
        let reorder = match (pts, dts) {
            (Some(pts), Some(dts)) => pts.saturating_sub(dts),
            // Without decoding times, reordering takes one period.
            (Some(pts), None) => pts.saturating_sub(raw).saturating_add(self.period),
            (None, _) => nanos(lag),
        };
        self.last = decode;
        self.next = decode.saturating_add(self.period);
        let present = decode.saturating_add(reorder.clamp(0, LAG_MAX_NS));
        FrameTimes { decode: span(decode), present: span(present) }
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}

fn span(ns: i64) -> Duration {
    Duration(u64::try_from(ns).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000_000;

    fn place(line: &mut Timeline, pts: Option<i64>, dts: Option<i64>) -> (u64, u64) {
        let ms = |t: i64| t * MS;
        let moments = line.place(pts.map(ms), dts.map(ms), Duration::ZERO);
        (moments.decode.0 / MS as u64, moments.present.0 / MS as u64)
    }

    fn line() -> Timeline {
        Timeline::new(Duration::from_millis(40))
    }

    #[test]
    fn begins_at_zero_wherever_the_clip_begins() {
        for start in [-80i64, 0, 1400, 3_600_000] {
            let mut line = line();
            let mut next =
                |pts: i64, dts: i64| place(&mut line, Some(start + pts), Some(start + dts));
            assert_eq!(next(80, 0), (0, 80));
            assert_eq!(next(200, 40), (40, 200));
            assert_eq!(next(120, 80), (80, 120));
            assert_eq!(next(160, 120), (120, 160));
        }
    }

    #[test]
    fn loops_go_on_one_period_after_the_last_frame() {
        let mut line = line();
        for pass in 0..3 {
            for n in 0..5 {
                let at = place(&mut line, Some(1000 + 40 * n), Some(1000 + 40 * n));
                let expected = (pass * 5 + n as u64) * 40;
                assert_eq!(at, (expected, expected));
            }
            line.restart();
        }
    }

    #[test]
    fn aligned_streams_keep_their_distance_over_loops() {
        let (mut picture, mut sound) = (line(), line());
        for pass in 0..3 {
            let zero = -(1000 + 500 * pass) * MS;
            picture.align(zero);
            sound.align(zero);
            for n in 0..12 {
                let shown = place(&mut picture, Some(40 * n + 30), None).1;
                let heard = place(&mut sound, Some(40 * n + 10), Some(40 * n + 10)).1;
                assert_eq!(shown, (1000 + 500 * pass + 40 * n + 30) as u64);
                assert_eq!(heard, shown - 20);
            }
        }
    }

    #[test]
    fn a_break_is_bridged_by_one_period() {
        let mut line = line();
        place(&mut line, Some(0), Some(0));
        assert_eq!(place(&mut line, Some(90_000), Some(90_000)), (40, 40));
        assert_eq!(place(&mut line, Some(90_040), Some(90_040)), (80, 80));
        assert_eq!(place(&mut line, Some(-90_000), Some(-90_000)), (120, 120));
    }

    #[test]
    fn a_small_step_back_waits_and_does_not_go_back() {
        let mut line = line();
        assert_eq!(place(&mut line, None, Some(100)), (0, 0));
        assert_eq!(place(&mut line, None, Some(140)), (40, 40));
        assert_eq!(place(&mut line, None, Some(120)), (40, 40));
        assert_eq!(place(&mut line, None, Some(180)), (80, 80));
    }

    #[test]
    fn frames_without_timestamps_are_counted() {
        let mut line = line();
        let lag = Duration::from_millis(40);
        for n in 0..4 {
            let at = line.place(None, None, lag);
            assert_eq!(at.decode, Duration::from_millis(40 * n));
            assert_eq!(at.present, Duration::from_millis(40 * n + 40));
        }
    }

    #[test]
    fn display_times_alone_give_even_decoding() {
        let mut line = line();
        let shown = [0, 120, 40, 80, 240, 160, 200].map(|pts| place(&mut line, Some(pts), None));
        assert_eq!(shown.map(|(decode, _)| decode), [0, 40, 80, 120, 160, 200, 240]);
        assert_eq!(shown.map(|(_, present)| present), [40, 160, 80, 120, 280, 200, 240]);
    }

    proptest! {
        #[test]
        fn never_goes_back_nor_shows_before_decoding(
            stamps in prop::collection::vec((any::<Option<i64>>(), any::<Option<i64>>()), 1..50),
            period in any::<u64>(),
        ) {
            let mut line = Timeline::new(Duration(period));
            let mut last = Duration::ZERO;
            for (pts, dts) in stamps {
                let at = line.place(pts, dts, Duration(period));
                prop_assert!(at.decode >= last && at.present >= at.decode);
                last = at.decode;
            }
        }
    }
}
