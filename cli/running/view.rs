//! A running node as the page, the API, the metrics and the terminal see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use selvedge_control_config::NodeConfig;
use selvedge_control_config::view::{
    Knob, KnobError, LinkSnapshot, NodeSnapshot, NodeView, StreamSnapshot, StreamState,
};
use selvedge_data_stream::{DropReason, Late, Windows};
use selvedge_media::StreamInfo;
use selvedge_os::clock::Clock;
use selvedge_place_engine::inlet::InletCounters;
use selvedge_place_engine::report::{LinkReport, StreamReport};
use selvedge_units::{Instant, Span};

use super::{ChannelWatch, Engines, Statuses};

/// A node whose engines run.
pub(crate) struct Running {
    pub(crate) config: NodeConfig,
    pub(crate) clock: Clock,
    /// When it started, by that clock.
    pub(crate) started: Instant,
    pub(crate) engines: Engines,
    pub(crate) infos: Vec<StreamInfo>,
    pub(crate) arrivals: Vec<Arc<InletCounters>>,
    pub(crate) statuses: Statuses,
    pub(crate) events: Option<ChannelWatch>,
}

impl Running {
    fn stream(&self, name: &str) -> Result<(usize, usize), KnobError> {
        let at = self.config.streams.iter().position(|s| s.spec.name == name);
        at.map(|at| self.engines.places[at]).ok_or_else(|| KnobError::NoStream(name.to_owned()))
    }

    fn stream_snapshot(&self, n: usize, report: &StreamReport, now: Instant) -> StreamSnapshot {
        let config = &self.config.streams[n];
        let (state, detail) = self.state(n, report, now);
        let (totals, recent) = (&report.counts.totals, &report.recent);
        let dropped: BTreeMap<_, _> = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name().to_owned(), totals.dropped[reason as usize]))
            .filter(|(_, count)| *count > 0)
            .collect();
        StreamSnapshot {
            name: config.spec.name.clone(),
            link: self.config.links[config.link].name.clone(),
            source: config.source.to_string(),
            to: format!("rtp://{}", config.spec.to),
            encoding: self.infos[n].encoding().to_owned(),
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
            queueing_mean_ms: recent.queueing.mean().map(Span::as_millis_f64),
            queueing_p99_ms: recent.queueing.quantile(0.99).map(Span::as_millis_f64),
            queued_frames: report.queued as u64,
        }
    }

    /// The source's state; a running one from which nothing comes is stalled.
    fn state(&self, n: usize, report: &StreamReport, now: Instant) -> (StreamState, String) {
        let (state, detail) = self.statuses[n].get();
        if state != StreamState::Running {
            return (state, detail);
        }
        if let Some(trouble) = self.engines.stacks.trouble(n) {
            return (state, format!("nothing is carried: {trouble}"));
        }
        let last = self.arrivals[n].last_arrival.load(std::sync::atomic::Ordering::Relaxed);
        let silent = now.since(Instant(last));
        if silent > (report.contract.period * 5).max(Span::from_secs(2)) {
            let text = format!("no frame for {:.0} s", silent.as_secs_f64());
            return (StreamState::Stalled, text);
        }
        (state, detail)
    }
}

impl NodeView for Running {
    fn snapshot(&self) -> NodeSnapshot {
        let now = self.clock.now();
        let reports = self.engines.reports();
        let streams = self.engines.places.iter().enumerate().filter_map(|(n, &(link, at))| {
            Some(self.stream_snapshot(n, reports[link].streams.get(at)?, now))
        });
        NodeSnapshot {
            name: self.config.name.clone(),
            uptime_ms: now.since(self.started).0 / 1_000_000,
            streams: streams.collect(),
            links: reports.iter().map(link_snapshot).collect(),
        }
    }

    fn thumbnail(&self, stream: &str) -> Option<(u64, Arc<[u8]>)> {
        let at = self.config.streams.iter().position(|s| s.spec.name == stream)?;
        self.statuses[at].thumbnail()
    }

    fn channels(&self) -> Option<Arc<str>> {
        self.events.as_ref().map(ChannelWatch::listed)
    }

    fn stacks(&self) -> Option<Arc<str>> {
        self.engines.stacks.listed()
    }

    fn turn(&self, knob: Knob) -> Result<(), KnobError> {
        let told = match knob {
            Knob::Window { stream, window } => {
                let (link, at) = self.stream(&stream)?;
                if window.lose > window.of {
                    let text = format!("window {window} would lose more frames than it holds");
                    return Err(KnobError::Range(text));
                }
                self.engines.engines[link].set_windows(at, Windows::Whole(window))
            }
            Knob::Priority { stream, priority } => {
                let (link, at) = self.stream(&stream)?;
                if !(-1000..=1000).contains(&priority) {
                    let text = format!("priority {priority} is not within -1000 to 1000");
                    return Err(KnobError::Range(text));
                }
                self.engines.engines[link].set_priority(at, priority)
            }
            Knob::Rate { link, rate } => {
                let at = self.config.links.iter().position(|l| l.name == link);
                let at = at.ok_or(KnobError::NoLink(link))?;
                if rate.0 == 0 {
                    return Err(KnobError::Range("a rate of 0 would send nothing".to_owned()));
                }
                self.engines.engines[at].set_rate(rate)
            }
        };
        if told { Ok(()) } else { Err(KnobError::Stopping) }
    }
}

fn link_snapshot(report: &LinkReport) -> LinkSnapshot {
    LinkSnapshot {
        name: report.name.clone(),
        discipline: report.discipline.to_owned(),
        rate_bps: report.rate.0,
        sent_bps: report.sent.0,
        offered_bps: report.offered.0,
        sent_bytes: report.sent_bytes.0,
        queued_frames: report.streams.iter().map(|s| s.queued as u64).sum(),
        queued_bytes: report.backlog.0,
    }
}
