//! The reports that an engine makes several times a second: plain data, copied out under a lock that the
//! engine holds for microseconds.

use selvedge_data_link::Link;
use selvedge_data_sched::StreamIndex;
use selvedge_data_stream::{Contract, Counts, Recent};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::extension::ExtensionReport;
use crate::lateness::RecentPacing;
use crate::slot::StreamletReport;

/// A link at one instant.
#[derive(Clone, Debug, Default)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// The discipline's name.
    pub discipline: &'static str,
    /// Configured rate.
    pub rate: Bitrate,
    /// Rate offered over the last second.
    pub offered: Bitrate,
    /// Rate sent over the last second.
    pub sent: Bitrate,
    /// Bytes sent since the start.
    pub sent_bytes: Bytes,
    /// Bytes that the rate allowed while frames waited.
    pub could_send: Bytes,
    /// How late its thread woke up, and the use of the link, in the last seconds.
    pub recent: RecentPacing,
    /// Packets that the device's queue (`etf`) dropped, because they reached it after their departure time.
    /// They count as sent.
    pub missed_departures: u64,
    /// The measured cost of sending.
    pub send_cost: SendCost,
    /// Bytes of payloads that several receivers share and that were copied, for carriers, which take whole packets.
    pub copied: Bytes,
    /// Bytes waiting.
    pub backlog: Bytes,
    /// Its streams, in their order.
    pub streams: Vec<StreamReport>,
    /// The counts and costs of its loaded extensions.
    pub extensions: Vec<ExtensionReport>,
    /// When this was written.
    pub at: Instant,
}

/// How long the calls took that handed packets to the kernel, of a sample of the batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCost {
    /// The bytes of these packets on the wire.
    pub bytes: Bytes,
    /// The time in the calls, of which none waits.
    pub time: Duration,
}

impl SendCost {
    pub(crate) fn add(&mut self, bytes: Bytes, time: Duration) {
        self.bytes += bytes;
        self.time += time;
    }

    /// An estimate of the processor time that sending this much would have taken: as long a byte as the
    /// measured packets took. `None` if none was measured.
    #[must_use]
    pub fn of(&self, bytes: Bytes) -> Option<Duration> {
        if self.time == Duration::ZERO {
            return None;
        }
        let nanos = u128::from(self.time.0) * u128::from(bytes.0);
        let nanos = nanos.checked_div(self.bytes.0.into())?;
        Some(Duration(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// A stream at one instant.
#[derive(Clone, Debug)]
pub struct StreamReport {
    /// Its number on the link.
    pub number: usize,
    /// The present contract.
    pub contract: Contract,
    /// Its counts since the start.
    pub counts: Counts,
    /// The ledger's view of the last ten seconds.
    pub recent: Recent,
    /// Frames waiting in the link.
    pub queued: usize,
    /// Rate sent over the last second.
    pub sent: Bitrate,
    /// What became of the frames of its sets, if it is a slot of streamlets.
    pub sets: Vec<StreamletReport>,
}

impl StreamReport {
    pub(crate) fn of(
        link: &Link,
        stream: StreamIndex,
        now: Instant,
        (sent_bytes, sent): (Bytes, Bitrate),
        send_errors: u64,
    ) -> Self {
        let ledger = link.ledger(stream).expect("an engine's streams live as long as it does");
        let contract = link.contract(stream).expect("as above");
        Self {
            number: stream.0 as usize,
            contract: *contract,
            counts: Counts {
                totals: ledger.totals().clone(),
                counters: link.scheduler().counters(stream),
                sent_bytes,
                send_errors,
            },
            recent: ledger.recent(now),
            queued: link.queued(stream),
            sent,
            sets: Vec::new(),
        }
    }
}

impl LinkReport {
    /// The report of the stream with this number.
    #[must_use]
    pub fn of_stream(&self, number: usize) -> Option<&StreamReport> {
        // Without gaps in the numbers it is at its own index.
        let in_place = self.streams.get(number).filter(|report| report.number == number);
        in_place.or_else(|| self.streams.iter().find(|report| report.number == number))
    }

    pub(crate) fn of(name: &str, link: &Link, streams: Vec<StreamReport>, now: Instant) -> Self {
        let (offered, sent) = link.rates(now);
        Self {
            name: name.to_owned(),
            discipline: link.params().discipline.name(),
            rate: link.params().rate,
            offered,
            sent,
            sent_bytes: link.sent_bytes(),
            could_send: link.could_send(),
            recent: RecentPacing::default(),
            missed_departures: 0,
            send_cost: SendCost::default(),
            copied: Bytes(0),
            backlog: link.backlog(),
            streams,
            extensions: Vec::new(),
            at: now,
        }
    }
}
