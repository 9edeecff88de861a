//! A running node as the page, the API, the metrics and the terminal see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use selvedge_control_config::view::{
    Knob, KnobError, LinkSnapshot, NodeSnapshot, NodeView, StreamSnapshot, StreamState,
};
use selvedge_data_stream::{DropReason, Late, Windows};
use selvedge_media::StreamInfo;
use selvedge_place_engine::report::{LinkReport, StreamReport};
use selvedge_units::{Duration, Instant};

use crate::node::{Node, Stream};

impl Node {
    /// A stream's link and its number there.
    fn place(&self, name: &str) -> Result<(usize, usize), KnobError> {
        let streams = self.streams();
        let found = streams.iter().find(|stream| stream.config.spec.name == name);
        let place = found.map(|stream| (stream.config.link, stream.number));
        place.ok_or_else(|| KnobError::NoStream(name.to_owned()))
    }

    /// All of it, as these reports of its links tell.
    pub(crate) fn snapshot_of(&self, reports: &[LinkReport]) -> NodeSnapshot {
        let now = self.clock.now();
        let streams = self.streams();
        let streams = streams.iter().enumerate().filter_map(|(n, stream)| {
            let report = reports.get(stream.config.link)?.streams.get(stream.number)?;
            Some(self.stream_snapshot(n, stream, report, now))
        });
        NodeSnapshot {
            name: self.name.clone(),
            uptime_ms: now.since(self.started).0 / 1_000_000,
            streams: streams.collect(),
            links: reports.iter().map(link_snapshot).collect(),
        }
    }

    fn stream_snapshot(
        &self,
        n: usize,
        stream: &Stream,
        report: &StreamReport,
        now: Instant,
    ) -> StreamSnapshot {
        let config = &stream.config;
        let (state, detail) = self.state(n, stream, report, now);
        let (totals, recent) = (&report.counts.totals, &report.recent);
        let dropped: BTreeMap<_, _> = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name().to_owned(), totals.dropped[reason as usize]))
            .filter(|(_, count)| *count > 0)
            .collect();
        StreamSnapshot {
            name: config.spec.name.clone(),
            link: self.links[config.link].name.clone(),
            source: config.source.to_string(),
            to: format!("rtp://{}", config.spec.to),
            encoding: stream.info.as_ref().map_or("", StreamInfo::encoding).to_owned(),
            spec: (&config.spec).into(),
            state,
            detail,
            period_ms: report.contract.period.as_millis_f64(),
            window: selvedge_control_config::windows_text(&report.contract.windows),
            priority: report.contract.priority,
            weight: report.contract.weight,
            late: match report.contract.late {
                Late::Drop => "drop",
                Late::Send => "send",
            }
            .to_owned(),
            frames: totals.frames,
            sent: totals.sent,
            on_time: totals.on_time,
            decodable: totals.decodable,
            missed: report.counts.counters.missed,
            violations: report.counts.counters.violations,
            dropped,
            sent_bytes: report.counts.sent_bytes.0,
            sent_bps: report.sent.0,
            on_time_share: recent.on_time_share(),
            decodable_share: recent.decodable_share(),
            queueing_mean_ms: recent.queueing.mean().map(Duration::as_millis_f64),
            queueing_p99_ms: recent.queueing.quantile(0.99).map(Duration::as_millis_f64),
            queued_frames: report.queued as u64,
        }
    }

    /// The source's state; a running one from which nothing comes is stalled.
    fn state(
        &self,
        n: usize,
        stream: &Stream,
        report: &StreamReport,
        now: Instant,
    ) -> (StreamState, String) {
        let (state, detail) = stream.status.get();
        if state != StreamState::Running {
            return (state, detail);
        }
        if let Some(problem) = self.stacks.problem(n) {
            return (state, format!("nothing is carried: {problem}"));
        }
        let last = stream.counters.last_arrival.load(std::sync::atomic::Ordering::Relaxed);
        let silent = now.since(Instant(last));
        if silent > (report.contract.period * 5).max(Duration::from_secs(2)) {
            let text = format!("no frame for {:.0} s", silent.as_secs_f64());
            return (StreamState::Stalled, text);
        }
        (state, detail)
    }
}

impl NodeView for Node {
    fn snapshot(&self) -> NodeSnapshot {
        self.snapshot_of(&self.reports())
    }

    fn thumbnail(&self, stream: &str) -> Option<(u64, Arc<[u8]>)> {
        self.streams().iter().find(|s| s.config.spec.name == stream)?.status.thumbnail()
    }

    fn channels(&self) -> Option<Arc<str>> {
        self.channels.as_ref().map(|channels| channels.listed())
    }

    fn stacks(&self) -> Option<Arc<str>> {
        self.stacks.listed()
    }

    fn set_knob(&self, knob: Knob) -> Result<(), KnobError> {
        let is_taken = match knob {
            Knob::Window { stream, window } => {
                let (link, at) = self.place(&stream)?;
                if window.lose > window.of {
                    let text = format!("window {window} would lose more frames than it holds");
                    return Err(KnobError::Range(text));
                }
                self.placed[link].set_windows(at, Windows::Whole(window))
            }
            Knob::Priority { stream, priority } => {
                let (link, at) = self.place(&stream)?;
                if !(-1000..=1000).contains(&priority) {
                    let text = format!("priority {priority} is not within -1000 to 1000");
                    return Err(KnobError::Range(text));
                }
                self.placed[link].set_priority(at, priority)
            }
            Knob::Rate { link, rate } => {
                let at = self.links.iter().position(|l| l.name == link);
                let at = at.ok_or(KnobError::NoLink(link))?;
                if rate.0 == 0 {
                    return Err(KnobError::Range("a rate of 0 would send nothing".to_owned()));
                }
                self.placed[at].set_rate(rate)
            }
        };
        if is_taken { Ok(()) } else { Err(KnobError::Stopping) }
    }
}

fn link_snapshot(report: &LinkReport) -> LinkSnapshot {
    let late = |share| report.recent.lateness.quantile(share).map(Duration::as_millis_f64);
    LinkSnapshot {
        name: report.name.clone(),
        discipline: report.discipline.to_owned(),
        rate_bps: report.rate.0,
        sent_bps: report.sent.0,
        offered_bps: report.offered.0,
        sent_bytes: report.sent_bytes.0,
        could_send_bytes: report.could_send.0,
        used_share: report.recent.used.share(),
        late_p50_ms: late(0.5),
        late_p99_ms: late(0.99),
        queued_frames: report.streams.iter().map(|s| s.queued as u64).sum(),
        queued_bytes: report.backlog.0,
    }
}
