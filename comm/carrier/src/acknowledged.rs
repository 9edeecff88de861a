//! A stream's receiver reports, connection after connection, beside the sender's own view. From
//! `stream_connection.rs` to the node's view. It has no clock: time is an argument.

use std::collections::VecDeque;

use selvedge_data_stream::ReceiverReport;
use selvedge_place_engine::engine::Heard;
use selvedge_units::{Duration, Instant};

/// Shares cover this time.
const RECENT: Duration = Duration::from_secs(10);
/// A receiver that sends no report for this long is silent: reports come four times a second.
const SILENT: Duration = Duration::from_secs(2);
/// The most reports that are kept, however fast they arrive.
const KEPT: usize = 64;

/// The reports of a stream's receivers.
#[derive(Debug, Default)]
pub struct Acknowledged {
    /// The counts of connections that ended.
    ended: ReceiverReport,
    /// The counts of the present connection.
    current: ReceiverReport,
    /// When it began.
    connected: Option<Instant>,
    /// Connections so far.
    connections: u64,
    /// Reports of the present one.
    reports: u64,
    /// The latest reports, with those before; the oldest first.
    recent: VecDeque<(Instant, ReceiverReport)>,
}

impl Acknowledged {
    /// A connection begins, and its counts at 0; it may replace another.
    pub(crate) fn handle_connected(&mut self, now: Instant) {
        self.ended = self.total();
        self.current = ReceiverReport::default();
        (self.connections, self.reports) = (self.connections + 1, 0);
        if self.connected.replace(now).is_some() {
            return;
        }
        self.recent.clear();
        self.recent.push_back((now, self.ended));
    }

    /// The connection has ended.
    pub(crate) fn handle_disconnected(&mut self) {
        self.connected = None;
    }

    /// A report of the present connection. Counts never fall, whatever a receiver reports.
    pub(crate) fn handle_report(&mut self, now: Instant, report: ReceiverReport) {
        self.current = self.current.plus(report.since(self.current));
        self.reports += 1;
        while self.recent.len() >= KEPT
            || self.recent.get(1).is_some_and(|(at, _)| now.since(*at) >= RECENT)
        {
            self.recent.pop_front();
        }
        self.recent.push_back((now, self.total()));
    }

    /// The counts of the present connection, or of the last one.
    pub(crate) const fn current(&self) -> ReceiverReport {
        self.current
    }

    /// Connections so far.
    pub(crate) const fn connections(&self) -> u64 {
        self.connections
    }

    /// Reports of the present connection, or of the last one.
    pub(crate) const fn reports(&self) -> u64 {
        self.reports
    }

    /// The process that has the connection counts so many connections, so many reports of the present one, and this as the
    /// last report.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        (connections, reports): (u64, u64),
        report: ReceiverReport,
    ) {
        if self.connections != connections {
            self.handle_connected(now);
        }
        if self.reports != reports {
            self.handle_report(now, report);
        }
        (self.connections, self.reports) = (connections, reports);
    }

    /// That process is gone: the next one counts from 0.
    pub(crate) fn handle_lost(&mut self) {
        self.handle_disconnected();
        (self.connections, self.reports) = (0, 0);
    }

    /// The sum of all receivers' reports.
    #[must_use]
    pub fn total(&self) -> ReceiverReport {
        self.ended.plus(self.current)
    }

    /// For how long the receiver of a connection has been silent, if it is.
    #[must_use]
    pub fn silence(&self, now: Instant) -> Option<Duration> {
        let last = self.recent.back().map(|(at, _)| *at).filter(|_| self.connected.is_some())?;
        Some(now.since(last)).filter(|silence| *silence >= SILENT)
    }

    /// The same for the steps of its link: what was counted, and whether reports come.
    pub(crate) fn heard(&self, now: Instant) -> Heard {
        let is_reported = self.connected.is_some()
            && self.recent.back().is_some_and(|(at, _)| now.since(*at) < SILENT);
        Heard { is_reported, frames: Some(self.total()), ..Heard::default() }
    }

    /// The decodable share of the frames that receivers settled in the last ten seconds; `None` if they
    /// settled none, or report nothing.
    #[must_use]
    pub fn decodable_share(&self, now: Instant) -> Option<f64> {
        let ((_, first), (at, last)) = (self.recent.front()?, self.recent.back()?);
        let of = last.since(*first);
        let is_known = of.frames > 0 && now.since(*at) < SILENT;
        is_known.then(|| of.decodable as f64 / of.frames as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn report(frames: u64, decodable: u64) -> ReceiverReport {
        ReceiverReport { packets: frames * 2, frames, complete: decodable, decodable }
    }

    const fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    #[test]
    fn nothing_is_decodable_that_no_receiver_reported() {
        let mut seen = Acknowledged::default();
        assert_eq!((seen.total(), seen.decodable_share(at(0))), (report(0, 0), None));
        seen.handle_connected(at(0));
        assert_eq!((seen.silence(at(1_999)), seen.decodable_share(at(1_999))), (None, None));
        assert_eq!(seen.silence(at(2_500)), Some(Duration::from_millis(2_500)));
    }

    #[test]
    fn counts_go_on_over_connections_and_shares_begin_anew() {
        let mut seen = Acknowledged::default();
        seen.handle_connected(at(0));
        seen.handle_report(at(250), report(10, 5));
        assert_eq!(seen.decodable_share(at(250)), Some(0.5));
        seen.handle_disconnected();
        assert_eq!(seen.silence(at(9_000)), None, "no receiver is connected");
        seen.handle_connected(at(10_000));
        assert_eq!(seen.decodable_share(at(10_000)), None);
        seen.handle_report(at(10_250), report(4, 4));
        assert_eq!((seen.total(), seen.decodable_share(at(10_250))), (report(14, 9), Some(1.0)));
        assert_eq!(seen.decodable_share(at(12_250)), None, "silent since");
    }

    #[test]
    fn shares_are_of_the_last_ten_seconds() {
        let mut seen = Acknowledged::default();
        seen.handle_connected(at(0));
        seen.handle_report(at(250), report(100, 0));
        for n in 1..=60 {
            seen.handle_report(at(250 + 250 * n), report(100 + n, n));
        }
        assert_eq!(seen.decodable_share(at(15_250)), Some(1.0));
    }

    #[test]
    fn a_receiver_that_lies_or_floods_takes_nothing_back_and_no_memory() {
        let mut seen = Acknowledged::default();
        seen.handle_connected(at(0));
        seen.handle_report(at(1), report(10, 10));
        for n in 0..10_000 {
            seen.handle_report(at(2 + n / 1_000), report(3, 1));
        }
        assert_eq!(seen.total(), report(10, 10));
        assert!(seen.recent.len() <= KEPT);
    }
}
