//! What was counted by coprocessors that are dead: the next one begins at zero, their node does not.

use selvedge_host::report::{LinkReport, StreamReport};
use selvedge_sched::Counters;
use selvedge_stream::Totals;
use selvedge_units::Bytes;

/// The counts of a link, up to the end of the last coprocessor but this.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    sent_bytes: Bytes,
    could_send: Bytes,
    streams: Vec<Counted>,
}

#[derive(Clone, Debug)]
struct Counted {
    totals: Totals,
    counters: Counters,
    sent_bytes: Bytes,
    send_errors: u64,
}

impl Before {
    /// What a report tells. Frames that wait are the next one's.
    pub(super) fn of(report: &LinkReport) -> Self {
        let counted = |stream: &StreamReport| {
            let mut totals = stream.totals.clone();
            let settled = totals.sent + totals.dropped.iter().sum::<u64>() + totals.unknown;
            totals.frames = totals.frames.min(settled);
            Counted {
                totals,
                counters: stream.counters,
                sent_bytes: stream.sent_bytes,
                send_errors: stream.send_errors,
            }
        };
        Self {
            sent_bytes: report.sent_bytes,
            could_send: report.could_send,
            streams: report.streams.iter().map(counted).collect(),
        }
    }

    /// Adds it to what the present one tells, streams in the same order.
    pub(super) fn add_to(&self, report: &mut LinkReport) {
        report.sent_bytes += self.sent_bytes;
        report.could_send += self.could_send;
        for (stream, before) in report.streams.iter_mut().zip(&self.streams) {
            let (totals, counters) = (&mut stream.totals, &mut stream.counters);
            totals.frames += before.totals.frames;
            totals.sent += before.totals.sent;
            totals.on_time += before.totals.on_time;
            totals.decodable += before.totals.decodable;
            totals.unknown += before.totals.unknown;
            for (now, before) in totals.dropped.iter_mut().zip(before.totals.dropped) {
                *now += before;
            }
            counters.sent += before.counters.sent;
            counters.late += before.counters.late;
            counters.missed += before.counters.missed;
            counters.dropped += before.counters.dropped;
            counters.violations += before.counters.violations;
            stream.sent_bytes += before.sent_bytes;
            stream.send_errors += before.send_errors;
        }
    }
}
