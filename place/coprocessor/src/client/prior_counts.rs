//! The counts of coprocessors that are dead: the next one begins at zero, the node's counts do not.

use selvedge_data_stream::Counts;
use selvedge_place_engine::report::LinkReport;
use selvedge_units::Bytes;

/// The counts of a link, up to the end of the previous coprocessor.
#[derive(Clone, Debug, Default)]
pub(super) struct PriorCounts {
    sent_bytes: Bytes,
    could_send: Bytes,
    missed_departures: u64,
    /// By their places.
    streams: Vec<Counts>,
}

/// Waiting frames are counted by the next coprocessor.
fn without_waiting(mut counts: Counts) -> Counts {
    let totals = &mut counts.totals;
    let settled = totals.sent.saturating_add(totals.unknown);
    let settled = totals.dropped.iter().fold(settled, |all, &one| all.saturating_add(one));
    totals.frames = totals.frames.min(settled);
    counts
}

/// Adds the earlier counts. Saturating: shared memory may hold any values.
fn add(counts: &mut Counts, prior: &Counts) {
    let Counts { totals, counters, sent_bytes, send_errors } = counts;
    let (was, did) = (&prior.totals, &prior.counters);
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
        (&mut sent_bytes.0, prior.sent_bytes.0),
        (&mut totals.dropped_bytes.0, was.dropped_bytes.0),
        (send_errors, prior.send_errors),
    ];
    for (sum, more) in sums.into_iter().chain(totals.dropped.iter_mut().zip(was.dropped)) {
        *sum = sum.saturating_add(more);
    }
}

impl PriorCounts {
    /// The counts at the death of a coprocessor: the earlier ones, and those that it left in each stream's
    /// memory; where it left none, the last reported ones. The link's own bytes are those last reported, plus
    /// those that its streams sent since. `last` shows the same then.
    pub(super) fn after(&self, last: &mut LinkReport, left: Vec<Option<Counts>>) -> Self {
        let sum = |sum: u64, bytes: Bytes| sum.saturating_add(bytes.0);
        let counted_bytes = last.streams.iter().map(|stream| stream.counts.sent_bytes).fold(0, sum);
        let counted = left.into_iter().enumerate().map(|(n, counts)| {
            let prior = self.streams.get(n).cloned().unwrap_or_default();
            match (counts, last.of_stream(n)) {
                (Some(counts), _) => {
                    let mut counts = without_waiting(counts);
                    add(&mut counts, &prior);
                    counts
                }
                (None, Some(stream)) => without_waiting(stream.counts.clone()),
                (None, None) => prior,
            }
        });
        let streams: Vec<Counts> = counted.collect();
        for stream in &mut last.streams {
            stream.counts.clone_from(&streams[stream.number]);
        }
        let sent = streams.iter().map(|counted| counted.sent_bytes).fold(0, sum);
        let since = Bytes(sent.saturating_sub(counted_bytes));
        last.sent_bytes += since;
        last.could_send += since;
        Self {
            sent_bytes: last.sent_bytes,
            could_send: last.could_send,
            missed_departures: last.missed_departures,
            streams,
        }
    }

    /// The stream of this place was removed.
    pub(super) fn forget(&mut self, place: usize) {
        self.streams.get_mut(place).map(std::mem::take);
    }

    /// Adds these counts to the report of the present coprocessor, streams by their places.
    pub(super) fn add_to(&self, report: &mut LinkReport) {
        report.sent_bytes += self.sent_bytes;
        report.could_send += self.could_send;
        report.missed_departures += self.missed_departures;
        for stream in &mut report.streams {
            if let Some(prior) = self.streams.get(stream.number) {
                add(&mut stream.counts, prior);
            }
        }
    }
}
