//! Any bytes as the reports of a path's far end, while a paced sender goes on: the rate stays within its limits, and
//! nothing but a report of packets that were sent raises it.

use selvedge_data_net_rate::{Estimator, RateParams, Report};
use selvedge_units::{Bitrate, Bytes, Instant};

const PACKET: Bytes = Bytes(1_200);

/// As many packets as the first byte says are sent before each report, which is as long as the second says.
pub(crate) fn fuzz(mut bytes: &[u8]) {
    let params = RateParams { most: Bitrate::from_mbps(50), ..RateParams::default() };
    let mut now = Instant::ZERO;
    let mut estimator = Estimator::new(now, params);
    let mut number = 0;
    while let Some(([packets, length], rest)) = bytes.split_first_chunk() {
        let before = estimator.rate();
        for _ in 0..*packets {
            estimator.handle_sent(now, number, PACKET).expect("numbers follow each other");
            (number, now) = (number + 1, now + PACKET / estimator.rate());
        }
        let (report, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        bytes = rest;
        let report = Report::parse(report);
        if let Ok(report) = &report {
            let again = Report::parse(&report.encode()).expect("what was read is a report");
            assert_eq!((again.first, again.packets.len()), (report.first, report.packets.len()));
            estimator.handle_report(now, report);
        }
        estimator.handle_timeout(now);
        let rate = estimator.rate();
        assert!(rate >= params.least && rate <= params.most, "{rate}");
        let is_of_sent =
            report.is_ok_and(|report| report.first + report.packets.len() as u64 <= number);
        assert!(is_of_sent || rate <= before, "{before} became {rate}");
    }
}
