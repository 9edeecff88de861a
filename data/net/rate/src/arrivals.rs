//! The receiving end: when each packet arrived, until it is reported.

use std::collections::VecDeque;

use selvedge_units::{Duration, Instant};

use crate::report::{Arrival, PACKETS_MAX, Report};

/// From a packet's arrival to its report, at most.
const EVERY: Duration = Duration::from_millis(100);
/// The same where a packet is missing: it may have been overtaken. More where packets were overtaken by more.
const MISSING: Duration = Duration::from_millis(10);
const MISSING_MAX: Duration = Duration::from_millis(100);

/// What came so long before a report's packets is not repeated: a report is of 0.8 s at most.
const REPEATED: Duration = Duration::from_millis(400);

/// When packets arrived. It holds at most 600 packets, and what it reported last, which the next report repeats, so
/// that one report may be lost.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    /// The number of the first packet that was not reported.
    next: u64,
    packets: VecDeque<Option<Arrival>>,
    /// Those right before, which were reported once.
    before: Vec<Option<Arrival>>,
    due: Option<Instant>,
    /// By how much packets were overtaken of late, and a quarter.
    overtaken: Duration,
}

impl Arrivals {
    /// Takes the number of a packet that arrived and is authentic. Numbers of which more than 599 are missing
    /// in between begin a new report.
    pub fn handle_packet(&mut self, now: Instant, number: u64, is_marked: bool) {
        self.handle_overtaken(now, number);
        let Some(ahead) = number.checked_sub(self.next) else { return };
        if self.packets.is_empty() || ahead >= PACKETS_MAX as u64 {
            // What is so far behind is left out: the sending end leaves out what no report names.
            self.packets.clear();
            let missing = ahead.min(PACKETS_MAX as u64 / 2) * u64::from(self.next > 0);
            if self.next != number - missing {
                (self.next, self.before) = (number - missing, Vec::new());
            }
            self.due = None;
        }
        let at = (number - self.next) as usize;
        while self.packets.len() <= at {
            self.packets.push_back(None);
        }
        self.packets[at].get_or_insert(Arrival { at: now, is_marked });
        let is_full = self.packets.len() > PACKETS_MAX / 2;
        let is_missing = self.packets.iter().any(Option::is_none);
        let wait = if is_full {
            Duration::ZERO
        } else if is_missing {
            self.overtaken.max(MISSING)
        } else {
            EVERY
        };
        self.due = Some(self.due.map_or(now + wait, |due| due.min(now + wait)));
    }

    /// Takes by how much this packet was overtaken: how long ago one with a higher number came, as far as is known.
    fn handle_overtaken(&mut self, now: Instant, number: u64) {
        let is_first = number >= self.next + self.packets.len() as u64;
        if is_first {
            self.overtaken = self.overtaken - self.overtaken / 256;
            return;
        }
        let reported = self.next - self.before.len() as u64;
        let all = self.before.iter().chain(&self.packets);
        let after = number.saturating_sub(reported) as usize;
        let overtook = all.skip(after).flatten().map(|arrival| arrival.at).min();
        let by = overtook.map_or(Duration::ZERO, |at| now.since(at));
        self.overtaken = self.overtaken.max((by * 5 / 4).min(MISSING_MAX));
    }

    /// How many packets of the next report are known to have come or not: one that others overtook may still come.
    fn complete(&self, now: Instant) -> usize {
        let mut complete = self.packets.len();
        if self.overtaken <= MISSING || complete > PACKETS_MAX / 2 {
            return complete;
        }
        let mut overtook = now;
        for (at, packet) in self.packets.iter().enumerate().rev() {
            match packet {
                Some(arrival) => overtook = overtook.min(arrival.at),
                None if now.since(overtook) < self.overtaken => complete = at,
                None => {}
            }
        }
        complete
    }

    /// The report that is due.
    pub fn poll_report(&mut self, now: Instant) -> Option<Report> {
        self.due.take_if(|due| *due <= now)?;
        let rest = self.packets.split_off(self.complete(now));
        let new = Vec::from(std::mem::replace(&mut self.packets, rest));
        self.due = (!self.packets.is_empty()).then(|| now + MISSING);
        if new.is_empty() {
            return None;
        }
        let first = new.iter().flatten().map(|arrival| arrival.at).min().unwrap_or(now);
        let is_recent = |arrival: &Arrival| arrival.at + REPEATED >= first;
        let old = self.before.iter().position(|packet| packet.as_ref().is_some_and(is_recent));
        let most = self.before.len().saturating_sub(PACKETS_MAX - new.len());
        let mut packets = self.before.split_off(old.unwrap_or(self.before.len()).max(most));
        let first = self.next - packets.len() as u64;
        self.next += new.len() as u64;
        packets.extend(&new);
        self.before = new;
        Some(Report { first, packets })
    }

    /// When the next report is due, if no packet arrives before.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// The first number of a report, and which packets arrived.
    fn seen(report: Option<Report>) -> Option<(u64, Vec<bool>)> {
        report.map(|report| (report.first, report.packets.iter().map(Option::is_some).collect()))
    }

    #[test]
    fn a_report_comes_ten_times_a_second_and_at_once_on_loss() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.poll_timeout(), None);
        arrivals.handle_packet(ms(1), 7, false);
        arrivals.handle_packet(ms(2), 8, true);
        arrivals.handle_packet(ms(2), 8, false);
        assert_eq!((arrivals.poll_timeout(), arrivals.poll_report(ms(100))), (Some(ms(101)), None));
        let report = arrivals.poll_report(ms(101)).unwrap();
        let arrival = |at, is_marked| Some(Arrival { at, is_marked });
        assert_eq!(report.packets, [arrival(ms(1), false), arrival(ms(2), true)]);
        assert_eq!((report.first, arrivals.poll_timeout()), (7, None));
        // Packet 9 is overtaken, 11 is lost.
        arrivals.handle_packet(ms(103), 10, false);
        assert_eq!(arrivals.poll_timeout(), Some(ms(113)));
        arrivals.handle_packet(ms(104), 9, false);
        arrivals.handle_packet(ms(105), 12, false);
        // What was reported before is repeated once.
        let expected = Some((7, vec![true, true, true, true, false, true]));
        assert_eq!(seen(arrivals.poll_report(ms(113))), expected);
        // What was reported as missing stays so.
        arrivals.handle_packet(ms(120), 11, false);
        assert_eq!(arrivals.poll_timeout(), None);
        arrivals.handle_packet(ms(130), 13, false);
        let expected = Some((9, vec![true, true, false, true, true]));
        assert_eq!(seen(arrivals.poll_report(ms(230))), expected);
    }

    #[test]
    fn a_packet_that_others_overtake_is_waited_for_once_some_were_late() {
        let mut arrivals = Arrivals::default();
        let mut missing = Vec::new();
        // Each fourth packet comes 50 ms late.
        let late = |n: u64| if n % 4 == 3 { 50 } else { 0 };
        let mut order: Vec<_> = (0..200).map(|n| (n * 5 + late(n), n)).collect();
        order.sort_unstable();
        for (at, number) in order {
            arrivals.handle_packet(ms(at), number, false);
            if let Some(report) = arrivals.poll_report(ms(at)) {
                missing.extend((report.first..).zip(report.packets).filter(|(_, it)| it.is_none()));
            }
        }
        assert!(
            !missing.is_empty() && missing.iter().all(|(number, _)| *number < 30),
            "{missing:?}"
        );
        // Of a path that keeps order again it is forgotten.
        for number in 200..1_000 {
            arrivals.handle_packet(ms(number * 5), number, false);
            arrivals.poll_report(ms(number * 5));
        }
        arrivals.handle_packet(ms(5_010), 1_001, false);
        assert!(arrivals.poll_timeout().is_some_and(|due| due <= ms(5_020)));
    }

    #[test]
    fn numbers_may_be_any() {
        let mut arrivals = Arrivals::default();
        for number in [0, 5, u64::MAX / 2, 3, u64::MAX - 1, 700, u64::MAX - 2] {
            arrivals.handle_packet(ms(1), number, false);
            assert!(arrivals.packets.len() <= PACKETS_MAX, "{number}");
        }
        for number in 0..5_000 {
            arrivals.handle_packet(ms(1), number * 3, false);
            if let Some(report) = arrivals.poll_report(ms(1)) {
                assert!(report.packets.len() <= PACKETS_MAX && report.packets.last().is_some());
            }
        }
    }
}
