//! What was counted by coprocessors that are dead: the next one begins at zero, their node does not.

use selvedge_data_stream::Counts;
use selvedge_place_engine::report::{LinkReport, StreamReport};
use selvedge_units::Bytes;

/// The counts of a link, up to the end of the last coprocessor but this.
#[derive(Clone, Debug, Default)]
pub(super) struct PriorCounts {
    sent_bytes: Bytes,
    could_send: Bytes,
    streams: Vec<Counted>,
}

#[derive(Clone, Debug, Default)]
struct Counted(Counts);

impl Counted {
    fn of(stream: &StreamReport) -> Self {
        Self(stream.counts.clone())
    }

    /// Frames that wait are the next one's.
    fn without_waiting(mut self) -> Self {
        let totals = &mut self.0.totals;
        let settled = totals.sent.saturating_add(totals.unknown);
        let settled = totals.dropped.iter().fold(settled, |all, &one| all.saturating_add(one));
        totals.frames = totals.frames.min(settled);
        self
    }

    /// Adds what was counted before. Saturating: what lay in shared memory may be anything.
    fn plus(mut self, prior: &Self) -> Self {
        let Self(Counts { totals, counters, sent_bytes, send_errors }) = &mut self;
        let (was, did) = (&prior.0.totals, &prior.0.counters);
        let sums = [
            (&mut totals.frames, was.frames),
            (&mut totals.sent, was.sent),
            (&mut totals.on_time, was.on_time),
            (&mut totals.decodable, was.decodable),
            (&mut totals.unknown, was.unknown),
            (&mut counters.sent, did.sent),
            (&mut counters.late, did.late),
            (&mut counters.missed, did.missed),
            (&mut counters.dropped, did.dropped),
            (&mut counters.violations, did.violations),
            (&mut sent_bytes.0, prior.0.sent_bytes.0),
            (send_errors, prior.0.send_errors),
        ];
        for (sum, more) in sums.into_iter().chain(totals.dropped.iter_mut().zip(was.dropped)) {
            *sum = sum.saturating_add(more);
        }
        self
    }

    fn show(&self, stream: &mut StreamReport) {
        stream.counts = self.0.clone();
    }
}

impl PriorCounts {
    /// What was counted when a coprocessor died: before it, and by it as it left it in each stream's
    /// memory; where it left nothing, as it was told last. The link's own bytes are those told
    /// last, and what its streams sent since. `last` shows the same then.
    pub(super) fn after(&self, last: &mut LinkReport, left: Vec<Option<Counts>>) -> Self {
        let sum = |sum: u64, bytes: Bytes| sum.saturating_add(bytes.0);
        let counted_bytes = last.streams.iter().map(|stream| stream.counts.sent_bytes).fold(0, sum);
        let counted = left.into_iter().enumerate().map(|(n, counts)| {
            let prior = self.streams.get(n).cloned().unwrap_or_default();
            match (counts, last.streams.get(n)) {
                (Some(counts), _) => Counted(counts).without_waiting().plus(&prior),
                (None, Some(counted_bytes)) => Counted::of(counted_bytes).without_waiting(),
                (None, None) => prior,
            }
        });
        let streams: Vec<Counted> = counted.collect();
        for (stream, counted) in last.streams.iter_mut().zip(&streams) {
            counted.show(stream);
        }
        let sent = streams.iter().map(|counted| counted.0.sent_bytes).fold(0, sum);
        let since = Bytes(sent.saturating_sub(counted_bytes));
        last.sent_bytes += since;
        last.could_send += since;
        Self { sent_bytes: last.sent_bytes, could_send: last.could_send, streams }
    }

    /// Adds it to what the present one tells, streams in the same order.
    pub(super) fn add_to(&self, report: &mut LinkReport) {
        report.sent_bytes += self.sent_bytes;
        report.could_send += self.could_send;
        for (stream, prior) in report.streams.iter_mut().zip(&self.streams) {
            Counted::of(stream).plus(prior).show(stream);
        }
    }
}
