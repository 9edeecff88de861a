//! The state of a running node, for the page, the API, the metrics and the terminal.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use selvedge_control_config::difference::Applied;
use selvedge_control_config::edit::Change;
use selvedge_control_config::view::{
    AskError, AskedReceiver, Knob, KnobError, LinkSnapshot, NodeEvent, NodeSnapshot, NodeView,
    PathSnapshot, ReceivedSnapshot, ReloadError, SetSnapshot, SharedCounts, StepSnapshot,
    StreamSnapshot, StreamState, StreamletQuery, StreamletSnapshot,
};
#[cfg(feature = "gstreamer")]
use selvedge_control_config::view::{PictureForm, Pictures, VideoTrack};
use selvedge_control_config::{SetSummary, SourceUri, Streamlet, Token};
use selvedge_data_stream::{Contract, DropReason, Totals, Windows};
use selvedge_place_engine::engine::ExtensionReport;
use selvedge_place_engine::report::{LinkReport, SendCost, StreamReport};
use selvedge_place_engine::slot::StreamletReport;
use selvedge_units::{Duration, Instant};

use crate::feed::{FeedStatus, StreamCounts};
use crate::node::{Node, State, Stream};

impl Node {
    /// The whole state, according to these reports of its links.
    pub(crate) fn snapshot_of(
        &self,
        links: &[&str],
        streams: &[Stream],
        reports: &[LinkReport],
    ) -> NodeSnapshot {
        let now = self.clock.now();
        let streams = streams.iter().filter_map(|stream| {
            let of_link = reports.get(stream.config.link)?;
            let link = (links[stream.config.link], of_link.send_cost);
            Some(self.stream_snapshot(stream, link, of_link.of_stream(stream.number)?, now))
        });
        NodeSnapshot {
            name: self.name.clone(),
            uptime_ms: now.since(self.started).0 / 1_000_000,
            streams: streams.collect(),
            links: reports
                .iter()
                .map(|report| {
                    let mut paths = self.bonds.paths(&report.name);
                    paths.extend(self.receivers.paths(&report.name));
                    link_snapshot(report, paths)
                })
                .collect(),
        }
    }

    fn stream_snapshot(
        &self,
        stream: &Stream,
        link: (&str, SendCost),
        report: &StreamReport,
        now: Instant,
    ) -> StreamSnapshot {
        let config = &stream.config;
        let (link, cost) = link;
        let (state, detail) = self.state_of(stream, link, report, now);
        let (totals, recent) = (&report.counts.totals, &report.recent);
        // The link never learns of a streamlet's frame for which the ring had no room.
        let refused = config.slot.as_ref().map(|_| stream.counters.refused.load(Ordering::Relaxed));
        let unseen = |reason| refused.filter(|_| reason == DropReason::Full).unwrap_or(0);
        let count = |reason| totals.dropped[reason as usize] + unseen(reason);
        let dropped: BTreeMap<_, _> = DropReason::ALL
            .iter()
            .map(|&reason| (reason.name().to_owned(), count(reason)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let (received, decodable_share) =
            match stream.stack.and_then(|n| self.received(n, totals, now)) {
                None => (None, recent.decodable_share()),
                Some((received, share)) => (Some(received), share),
            };
        StreamSnapshot {
            name: config.spec.name.clone(),
            link: link.to_owned(),
            source: config.source.to_string(),
            to: config.receiver(),
            encoding: stream.status.info().map_or("", |info| info.encoding()).to_owned(),
            spec: config.spec.shown.clone(),
            state,
            detail,
            period_ms: report.contract.period.as_millis_f64(),
            window: selvedge_control_config::windows_text(&report.contract.windows),
            priority: report.contract.priority,
            weight: report.contract.weight,
            late: report.contract.late.name().to_owned(),
            frames: totals.frames,
            sent: totals.sent,
            on_time: totals.on_time,
            decodable: received.as_ref().map_or(totals.decodable, |seen| seen.decodable),
            missed: report.counts.counters.missed,
            violations: report.counts.counters.violations,
            dropped,
            dropped_bytes: totals.dropped_bytes.0,
            spared_ms: cost.of(totals.dropped_bytes).map(Duration::as_millis_f64),
            send_errors: report.counts.send_errors,
            sent_bytes: report.counts.sent_bytes.0,
            sent_bps: report.sent.0,
            encoder_bps: stream.status.encoder_rate().map(|rate| rate.0),
            on_time_share: recent.on_time_share(),
            decodable_share,
            received,
            queueing_mean_ms: recent.queueing.mean().map(Duration::as_millis_f64),
            queueing_p99_ms: recent.queueing.quantile(0.99).map(Duration::as_millis_f64),
            queued_frames: report.queued as u64,
            sets: sets_of(stream, report),
            refused_packets: stream.status.refused.load(Ordering::Relaxed),
            queueing: stream.followed.as_ref().map(|followed| followed.queueing.counts()),
            dropped_kinds: stream.followed.as_ref().map(|followed| followed.dropped_kinds()),
        }
    }

    /// The reports of a stream's receivers, and their decodable share, if a stack carries it.
    fn received(
        &self,
        stack: usize,
        totals: &Totals,
        now: Instant,
    ) -> Option<(ReceivedSnapshot, Option<f64>)> {
        self.stacks.acknowledged(stack, |seen| {
            let total = seen.total();
            let received = ReceivedSnapshot {
                packets: total.packets,
                frames: total.frames,
                complete: total.complete,
                // A frame is decodable there only if it was when it left.
                decodable: total.decodable.min(totals.decodable),
                sent_decodable: totals.decodable,
                silent_ms: seen.silence(now).map(|silence| silence.0 / 1_000_000),
            };
            (received, seen.decodable_share(now))
        })
    }

    /// The source's state; a running source that delivers nothing is stalled.
    fn state_of(
        &self,
        stream: &Stream,
        link: &str,
        report: &StreamReport,
        now: Instant,
    ) -> (StreamState, String) {
        let (state, detail) = stream.status.get();
        let config = &stream.config;
        if state != StreamState::Running {
            return (state, detail);
        }
        let problem = stream.stack.and_then(|n| self.stacks.problem(n));
        let problem = problem.or_else(|| stream.output_problem());
        if let Some(problem) = problem.or_else(|| self.bonds.problem(link)) {
            return (state, format!("nothing is carried: {problem}"));
        }
        let silence =
            stream.stack.and_then(|n| self.stacks.acknowledged(n, |seen| seen.silence(now)));
        if let Some(silence) = silence.flatten() {
            let seconds = silence.as_secs_f64();
            return (state, format!("the receiver is silent: no report for {seconds:.0} s"));
        }
        if let Some(remark) = stream.stack.and_then(|n| self.stacks.remark(n)) {
            return (state, remark);
        }
        if config.is_tunnel() {
            return (state, detail);
        }
        let last = stream.counters.last_arrival.load(Ordering::Relaxed);
        let silent = now.since(Instant(last).max(stream.added));
        if silent > (report.contract.period * 5).max(Duration::from_secs(2)) {
            let seconds = silent.as_secs_f64();
            let text = match (last, &config.source) {
                (0, SourceUri::Rtp { .. }) => format!(
                    "no picture in {seconds:.0} s; if packets come, their parameter sets may stand \
                     only in the sender's SDP: give that as sdp:FILE"
                ),
                _ => match stream.status.refused.load(Ordering::Relaxed) {
                    0 => format!("no frame for {seconds:.0} s"),
                    n if config.slot.is_some() => format!(
                        "no frame for {seconds:.0} s; {n} packets had the SSRC of no streamlet"
                    ),
                    n => format!(
                        "no frame for {seconds:.0} s; {n} packets were not sealed with the key in the SDP"
                    ),
                },
            };
            return (StreamState::Stalled, text);
        }
        (state, detail)
    }
}

impl Node {
    /// What became of a stream's frames, for its source's thread; `None` while others work on the node's streams, since a
    /// thread that has to end can't wait for them.
    pub(crate) fn counts_of(&self, status: &Arc<FeedStatus>) -> StreamCounts {
        let (state, status) = (Arc::downgrade(&self.state), Arc::clone(status));
        Arc::new(move || {
            let state = state.upgrade()?;
            let State { links, streams } = &*state.try_lock()?;
            let stream = streams.iter().find(|stream| Arc::ptr_eq(&stream.status, &status))?;
            let report = links[stream.config.link].placed.report();
            report.of_stream(stream.number).map(|stream| stream.counts.totals.clone())
        })
    }
}

impl NodeView for Node {
    fn snapshot(&self) -> NodeSnapshot {
        let State { links, streams } = &*self.state.lock();
        let reports: Vec<_> = links.iter().map(|link| link.placed.report()).collect();
        let names: Vec<&str> = links.iter().map(|link| &*link.config.name).collect();
        self.snapshot_of(&names, streams, &reports)
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

    fn streamlet(&self, stream: &str, query: StreamletQuery) -> Option<StreamletSnapshot> {
        let State { links, streams } = &*self.state.lock();
        let stream = streams.iter().find(|one| one.config.spec.name == stream)?;
        let slot = stream.config.slot.as_ref()?;
        let StreamletQuery { number, to, ssrc } = query;
        let is_it = |number: u32, one: Streamlet| {
            let by_ssrc = ssrc.is_none() || one.ssrc == ssrc;
            (by_ssrc && to.is_none_or(|to| one.to == to)).then_some((number, one))
        };
        let (number, streamlet) = match number {
            Some(number) => is_it(number, slot.streamlet(number)?)?,
            None => (0..).zip(slot.streamlets()).find_map(|(number, one)| is_it(number, one))?,
        };
        let report = links[stream.config.link].placed.streamlet(stream.number, number)?;
        Some(StreamletSnapshot {
            number,
            set: slot.sets[streamlet.set].name.clone(),
            from: streamlet.from.map(|from| format!("rtp://{from}")),
            ssrc: streamlet.ssrc,
            to: format!("rtp://{}", streamlet.to),
            counts: shared_counts(&report),
        })
    }

    fn events(&self) -> Vec<NodeEvent> {
        self.events.all()
    }

    fn reload(&self) -> Result<Applied, ReloadError> {
        self.reload_file()
    }

    fn save(&self) -> Result<Vec<Change>, ReloadError> {
        self.save_file()
    }

    #[cfg(feature = "gstreamer")]
    fn videos(&self) -> Vec<VideoTrack> {
        let streams = self.streams();
        let track = |stream: &Stream| {
            stream.followed.as_ref()?.sent.as_ref()?.track(&stream.config.spec.name)
        };
        streams.iter().filter_map(track).collect()
    }

    #[cfg(feature = "gstreamer")]
    fn pictures(&self, track: usize, form: PictureForm, after: Option<u64>) -> Pictures {
        let sent = {
            let streams = self.streams();
            let sent = streams.iter().filter_map(|stream| stream.followed.as_ref()?.sent.clone());
            sent.filter(|sent| sent.is_shown()).nth(track)
        };
        let shown = sent.as_ref().and_then(|sent| sent.shown());
        shown.map_or_else(Pictures::default, |shown| shown.pictures(form, after))
    }

    fn receivers_token(&self, stream: &str) -> Option<Token> {
        self.token_of_receivers(stream)
    }

    fn ask(
        &self,
        stream: &str,
        to: SocketAddr,
        delay: Option<Duration>,
        lasts: Duration,
    ) -> Result<AskedReceiver, AskError> {
        self.add_asked(stream, to, delay, lasts)
    }

    fn leave(&self, stream: &str, to: SocketAddr) -> bool {
        self.remove_asked(stream, to)
    }

    fn set_knob(&self, knob: Knob) -> Result<(), KnobError> {
        let text = knob.to_string();
        let is_taken = match knob {
            Knob::Window { stream, window } => {
                if window.lose > window.of {
                    let text = format!("window {window} would lose more frames than it holds");
                    return Err(KnobError::Range(text));
                }
                self.set_terms(&stream, |terms| terms.windows = Windows::Whole(window))?
            }
            Knob::Priority { stream, priority } => {
                if !(-1000..=1000).contains(&priority) {
                    let text = format!("priority {priority} is not within -1000 to 1000");
                    return Err(KnobError::Range(text));
                }
                self.set_terms(&stream, |terms| terms.priority = priority)?
            }
            Knob::Rate { link, rate } => {
                let links = &mut self.state.lock().links;
                let found = links.iter_mut().find(|other| other.config.name == link);
                let link = found.ok_or(KnobError::NoLink(link))?;
                if rate.0 == 0 {
                    return Err(KnobError::Range("a rate of 0 would send nothing".to_owned()));
                }
                if link.config.is_measured() {
                    return Err(KnobError::Range("the rate of this link is measured".to_owned()));
                }
                link.rate = rate;
                link.placed.set_rate(rate)
            }
        };
        if !is_taken {
            return Err(KnobError::Stopping);
        }
        self.note("set", text);
        Ok(())
    }
}

impl Node {
    /// Changes the contract of a stream if its link accepts that; false if it does not.
    fn set_terms(&self, name: &str, change: impl Fn(&mut Contract)) -> Result<bool, KnobError> {
        let State { links, streams } = &mut *self.state.lock();
        let found = streams.iter_mut().find(|stream| stream.config.spec.name == name);
        let stream = found.ok_or_else(|| KnobError::NoStream(name.to_owned()))?;
        let mut terms = stream.terms;
        change(&mut terms);
        let placed = &links[stream.config.link].placed;
        let is_taken = placed.set_terms(stream.number, &terms);
        stream.terms = terms;
        Ok(is_taken)
    }
}

/// The sets of a stream's streamlets, with their bounds at its present period.
fn sets_of(stream: &Stream, report: &StreamReport) -> Vec<SetSnapshot> {
    let Some(slot) = &stream.config.slot else { return Vec::new() };
    let sets = slot.summary(Some(report.contract.period)).into_iter().zip(&report.sets);
    let set = |(set, report): (SetSummary, &StreamletReport)| SetSnapshot {
        name: set.name,
        weight: set.weight,
        streamlets: set.streamlets,
        bound_ms: set.bound_ms.unwrap_or_default(),
        counts: shared_counts(report),
    };
    sets.map(set).collect()
}

fn shared_counts(report: &StreamletReport) -> SharedCounts {
    let StreamletReport { counts, waiting, delay_sum, delay_max } = *report;
    let any = counts.sent > 0;
    SharedCounts {
        sent: counts.sent,
        sent_bytes: counts.bytes.0,
        dropped: counts.dropped,
        waiting,
        delay_mean_ms: any.then(|| delay_sum.as_millis_f64() / counts.sent as f64),
        delay_max_ms: any.then(|| delay_max.as_millis_f64()),
    }
}

fn link_snapshot(report: &LinkReport, paths: Vec<PathSnapshot>) -> LinkSnapshot {
    let late = |share| report.recent.lateness.quantile(share).map(Duration::as_millis_f64);
    LinkSnapshot {
        name: report.name.clone(),
        discipline: report.discipline.to_owned(),
        rate_bps: report.rate.0,
        sent_bps: report.sent.0,
        offered_bps: report.offered.0,
        sent_bytes: report.sent_bytes.0,
        could_send_bytes: report.could_send.0,
        missed_departures: report.missed_departures,
        used_share: report.recent.used.share(),
        late_p50_ms: late(0.5),
        late_p99_ms: late(0.99),
        queued_frames: report.streams.iter().map(|s| s.queued as u64).sum(),
        queued_bytes: report.backlog.0,
        paths,
        steps: report.extensions.iter().map(step_snapshot).collect(),
    }
}

fn step_snapshot(step: &ExtensionReport) -> StepSnapshot {
    let &ExtensionReport { ref name, point, calls, discarded, faults, total, longest } = step;
    StepSnapshot {
        name: name.clone(),
        at: point.name().to_owned(),
        calls,
        discarded,
        faults,
        mean_ns: total.0.checked_div(calls).unwrap_or(0),
        longest_ns: longest.0,
    }
}
