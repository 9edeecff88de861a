//! The history of a node since it started, up to an hour back: coarse samples, events, and current
//! problems. Made from snapshots, one a second; memory is bounded whatever the node does.

use std::collections::{BTreeMap, VecDeque};

use selvedge_control_config::view::{
    LinkSnapshot, NodeEvent, NodeSnapshot, StreamSnapshot, StreamState,
};
use serde::Serialize;
use serde_json::{Value, json};

/// Time between two samples, and how many are kept: an hour.
const STEP_MS: u64 = 10_000;
const STEPS_MAX: usize = 360;
/// Streams and links that are sampled at most: the first of the node file.
const LINES_MAX: usize = 256;
/// Events that are kept.
const EVENTS_MAX: usize = 256;
/// A stream is broken below the first decodable share; above the second it works again.
const BROKEN: (f64, f64) = (0.5, 0.6);
/// Snapshots in a row that must agree before a change is reported.
const SURE: u32 = 3;
/// Snapshots over which a link's load is averaged.
const LOAD_OF: f64 = 10.0;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Event {
    /// Milliseconds since the node started.
    pub(crate) at_ms: u64,
    /// The stream or link.
    pub(crate) about: String,
    /// `good`, `warn`, `bad` or `quiet`.
    pub(crate) tone: &'static str,
    pub(crate) text: String,
}

/// A stream that is broken now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Alarm {
    pub(crate) stream: String,
    pub(crate) text: String,
    pub(crate) since_ms: u64,
}

/// One step of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    decodable: Option<f32>,
    sent_bps: f32,
    p99_ms: Option<f32>,
}

#[derive(Debug, Default)]
struct StreamPast {
    steps: VecDeque<Step>,
    last: Option<StreamSnapshot>,
    /// How many snapshots in a row contradicted `alarm`.
    doubts: u32,
    alarm: Option<Alarm>,
}

#[derive(Debug, Default)]
struct LinkPast {
    steps: VecDeque<f32>,
    last: Option<LinkSnapshot>,
    offered: f64,
    doubts: u32,
    is_small: bool,
}

/// The past of a node.
#[derive(Debug, Default)]
pub(crate) struct History {
    times: VecDeque<u64>,
    streams: BTreeMap<String, StreamPast>,
    links: BTreeMap<String, LinkPast>,
    events: VecDeque<Event>,
    /// The newest of the node's own events that is included.
    newest: Option<NodeEvent>,
}

impl History {
    /// Takes the next snapshot.
    pub(crate) fn push(&mut self, node: &NodeSnapshot) {
        let now = node.uptime_ms;
        let has = |name: &String| node.streams.iter().any(|stream| stream.name == *name);
        self.streams.retain(|name, _| has(name));
        self.links.retain(|name, _| node.links.iter().any(|link| link.name == *name));
        let samples = self.times.back().is_none_or(|last| now >= last + STEP_MS);
        if samples {
            push(&mut self.times, now, STEPS_MAX);
        }
        let steps = self.times.len();
        let mut events = Vec::new();
        for link in node.links.iter().take(LINES_MAX) {
            let past = self.links.entry(link.name.clone()).or_default();
            past.look(link, &mut |tone, text| events.push((link.name.clone(), tone, text)));
            if samples {
                while past.steps.len() + 1 < steps {
                    past.steps.push_front(link.rate_bps as f32);
                }
                push(&mut past.steps, link.rate_bps as f32, STEPS_MAX);
            }
        }
        for stream in node.streams.iter().take(LINES_MAX) {
            let past = self.streams.entry(stream.name.clone()).or_default();
            past.look(stream, now, &mut |tone, text| {
                events.push((stream.name.clone(), tone, text))
            });
            if samples {
                past.sample(stream, steps);
            }
        }
        for (about, tone, text) in events {
            push(&mut self.events, Event { at_ms: now, about, tone, text }, EVENTS_MAX);
        }
    }

    /// Takes the node's events about its file and about paths that are new. Set values show in the snapshots.
    pub(crate) fn push_events(&mut self, events: Vec<NodeEvent>) {
        let seen = events.iter().rposition(|event| Some(event) == self.newest.as_ref());
        for event in events.into_iter().skip(seen.map_or(0, |seen| seen + 1)) {
            if event.kind != "set" {
                let tone = if event.kind == "refused" { "bad" } else { "quiet" };
                let (about, text) = match event.text.split_once(": ") {
                    Some((path, text)) if event.kind == "path" => (path, text.to_owned()),
                    _ => ("node file", format!("{}: {}", event.kind, event.text)),
                };
                let about = about.to_owned();
                push(&mut self.events, Event { at_ms: event.at_ms, about, tone, text }, EVENTS_MAX);
            }
            self.newest = Some(event);
        }
    }

    /// The current problems, in the order of the streams' names.
    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        self.streams.values().filter_map(|past| past.alarm.clone()).collect()
    }

    /// All of it.
    pub(crate) fn json(&self) -> Value {
        let line = |past: &StreamPast| {
            json!({
                "decodable": past.steps.iter().map(|step| step.decodable).collect::<Vec<_>>(),
                "rate": past.steps.iter().map(|step| step.sent_bps).collect::<Vec<_>>(),
                "delay": past.steps.iter().map(|step| step.p99_ms).collect::<Vec<_>>(),
            })
        };
        let streams: BTreeMap<_, _> = self.streams.iter().map(|(n, p)| (n, line(p))).collect();
        let links: BTreeMap<_, _> = self.links.iter().map(|(name, p)| (name, &p.steps)).collect();
        json!({
            "step_ms": STEP_MS,
            "times_ms": self.times,
            "streams": streams,
            "links": links,
            "events": self.events,
        })
    }
}

impl StreamPast {
    fn sample(&mut self, stream: &StreamSnapshot, steps: usize) {
        // A stream that was added later has no earlier samples.
        while self.steps.len() + 1 < steps {
            self.steps.push_front(Step::default());
        }
        let step = Step {
            decodable: stream.decodable_share.map(|share| share as f32),
            sent_bps: stream.sent_bps as f32,
            p99_ms: stream.queueing_p99_ms.map(|ms| ms as f32),
        };
        push(&mut self.steps, step, STEPS_MAX);
    }

    fn look(
        &mut self,
        stream: &StreamSnapshot,
        now: u64,
        say: &mut impl FnMut(&'static str, String),
    ) {
        if let Some(last) = self.last.as_ref().filter(|last| last.state != stream.state) {
            let tone = match stream.state {
                StreamState::Running => "good",
                StreamState::Starting | StreamState::Ended => "quiet",
                StreamState::Stalled | StreamState::Retrying => "warn",
                StreamState::Failed => "bad",
            };
            let [was, is] = [last.state, stream.state];
            let detail = if stream.detail.is_empty() { "" } else { ": " };
            say(tone, format!("{is} (was {was}){detail}{}", stream.detail));
        }
        if let Some(last) = &self.last {
            if last.window != stream.window {
                say("quiet", format!("window set to {} (was {})", stream.window, last.window));
            }
            if last.priority != stream.priority {
                let [is, was] = [stream.priority, last.priority];
                say("quiet", format!("priority set to {is} (was {was})"));
            }
        }
        let wrong = wrong_with(stream, self.alarm.is_some());
        self.doubts = if wrong.is_some() == self.alarm.is_some() { 0 } else { self.doubts + 1 };
        match (&mut self.alarm, wrong) {
            (Some(alarm), Some(text)) => alarm.text = text,
            (None, Some(text)) if self.doubts >= SURE => {
                say("bad", format!("broken: {text}"));
                self.alarm = Some(Alarm { stream: stream.name.clone(), text, since_ms: now });
            }
            (Some(alarm), None) if self.doubts >= SURE => {
                let lasted = now.saturating_sub(alarm.since_ms) / 1000;
                say("good", format!("works again after {lasted} s"));
                self.alarm = None;
            }
            _ => {}
        }
        self.last = Some(stream.clone());
    }
}

/// The problem of a stream, if it is broken.
fn wrong_with(stream: &StreamSnapshot, was: bool) -> Option<String> {
    let limit = if was { BROKEN.1 } else { BROKEN.0 };
    match stream.state {
        StreamState::Starting | StreamState::Ended => None,
        StreamState::Failed | StreamState::Stalled | StreamState::Retrying => {
            let (word, detail) = (stream.state, &stream.detail);
            Some(if detail.is_empty() { word.to_string() } else { format!("{word}: {detail}") })
        }
        // Its receiver is absent or silent: the detail names which.
        StreamState::Running if stream.received.is_some() && stream.decodable_share.is_none() => {
            Some(stream.detail.clone()).filter(|detail| !detail.is_empty())
        }
        StreamState::Running => stream
            .decodable_share
            .filter(|share| *share < limit)
            .map(|share| format!("{:.0} % of its frames can be decoded", share * 100.0)),
    }
}

impl LinkPast {
    fn look(&mut self, link: &LinkSnapshot, say: &mut impl FnMut(&'static str, String)) {
        // A measured rate changes all the time.
        let is_set = |last: &&LinkSnapshot| last.rate_bps != link.rate_bps && link.paths.is_empty();
        if let Some(last) = self.last.as_ref().filter(is_set) {
            let [is, was] = [link.rate_bps, last.rate_bps].map(mbps);
            say("quiet", format!("rate set to {is} (was {was})"));
        }
        let weight = if self.last.is_some() { 1.0 / LOAD_OF } else { 1.0 };
        self.offered += (link.offered_bps as f64 - self.offered) * weight;
        let is_small = self.offered > link.rate_bps as f64;
        self.doubts = if is_small == self.is_small { 0 } else { self.doubts + 1 };
        if self.doubts >= 2 * SURE {
            self.is_small = is_small;
            self.doubts = 0;
            let [needs, has] = [self.offered as u64, link.rate_bps].map(mbps);
            match is_small {
                true => {
                    say("warn", format!("too small: the streams need {needs}, it carries {has}"))
                }
                false => say("good", format!("large enough again: {needs} of {has}")),
            }
        }
        self.last = Some(link.clone());
    }
}

fn mbps(bps: u64) -> String {
    format!("{:.2} Mbit/s", bps as f64 / 1e6)
}

fn push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}

#[cfg(test)]
mod tests {
    use selvedge_control_config::view::PathSnapshot;

    use super::*;

    fn node(second: u64, decodable: f64, offered: u64) -> NodeSnapshot {
        let stream = StreamSnapshot {
            name: "a".into(),
            state: StreamState::Running,
            decodable_share: Some(decodable),
            window: "1/5".into(),
            ..StreamSnapshot::default()
        };
        let link = LinkSnapshot {
            name: "uplink".into(),
            rate_bps: 1_000_000,
            offered_bps: offered,
            ..LinkSnapshot::default()
        };
        NodeSnapshot {
            uptime_ms: second * 1000,
            streams: vec![stream],
            links: vec![link],
            ..NodeSnapshot::default()
        }
    }

    fn texts(history: &History) -> Vec<&str> {
        history.events.iter().map(|event| event.text.as_str()).collect()
    }

    #[test]
    fn reloads_of_the_node_file_are_events_once_each() {
        let event = |at_ms, kind: &str| NodeEvent { at_ms, kind: kind.into(), text: "x".into() };
        let (first, second) = (event(5, "reloaded"), event(5, "refused"));
        let mut history = History::default();
        history.push_events(vec![first.clone()]);
        history.push_events(vec![first, event(5, "set"), second.clone()]);
        // The node has discarded its former newest event.
        history.push_events(vec![second, event(9, "saved")]);
        assert_eq!(texts(&history), ["reloaded: x", "refused: x", "saved: x"]);
        assert_eq!(history.events[1].tone, "bad");
    }

    #[test]
    fn what_becomes_of_a_path_is_an_event_of_it_and_a_measured_rate_is_none() {
        let mut history = History::default();
        let text = "uplink.lte: its receiver reports".into();
        history.push_events(vec![NodeEvent { at_ms: 5, kind: "path".into(), text }]);
        let event = &history.events[0];
        assert_eq!((&*event.about, &*event.text), ("uplink.lte", "its receiver reports"));
        for rate_bps in [1_000_000, 2_000_000] {
            let mut node = node(1, 1.0, 500_000);
            node.links[0].rate_bps = rate_bps;
            node.links[0].paths.push(PathSnapshot::default());
            history.push(&node);
        }
        assert_eq!(history.events.len(), 1);
    }

    #[test]
    fn a_stream_that_breaks_is_an_alarm_until_it_works_again() {
        let mut history = History::default();
        for second in 0..30 {
            // One bad second is not an alarm.
            let share = if second == 3 || second >= 10 { 0.2 } else { 0.99 };
            history.push(&node(second, share, 500_000));
            assert_eq!(history.alarms().len(), usize::from(second >= 12), "{second}");
        }
        for second in 30..40 {
            history.push(&node(second, 0.9, 500_000));
        }
        assert_eq!(history.alarms(), []);
        let expected = ["broken: 20 % of its frames can be decoded", "works again after 20 s"];
        assert_eq!(texts(&history), expected);
    }

    #[test]
    fn a_link_that_is_too_small_is_an_event_and_so_is_a_change() {
        let mut history = History::default();
        for second in 0..30 {
            history.push(&node(second, 1.0, if second < 5 { 500_000 } else { 2_000_000 }));
        }
        let mut changed = node(30, 1.0, 2_000_000);
        changed.links[0].rate_bps = 4_000_000;
        changed.streams[0].window = "1/3".into();
        changed.streams[0].state = StreamState::Stalled;
        history.push(&changed);
        let texts = texts(&history);
        assert!(texts[0].starts_with("too small: the streams need 1."), "{texts:?}");
        let rest = [
            "rate set to 4.00 Mbit/s (was 1.00 Mbit/s)",
            "stalled (was running)",
            "window set to 1/3 (was 1/5)",
        ];
        assert_eq!(texts[1..], rest);
    }

    #[test]
    fn an_hour_is_kept_and_no_more() {
        let mut history = History::default();
        for second in 0..3 * 3600 {
            // Breaks and recovers for ever.
            history.push(&node(second, if second / 5 % 2 == 0 { 0.1 } else { 0.9 }, 0));
        }
        let json = history.json();
        assert_eq!(json["times_ms"].as_array().map(Vec::len), Some(STEPS_MAX));
        for key in ["decodable", "rate", "delay"] {
            assert_eq!(json["streams"]["a"][key].as_array().map(Vec::len), Some(STEPS_MAX));
        }
        assert_eq!(json["links"]["uplink"].as_array().map(Vec::len), Some(STEPS_MAX));
        assert_eq!(json["events"].as_array().map(Vec::len), Some(EVENTS_MAX));
        history.push(&NodeSnapshot { uptime_ms: 20_000_000, ..NodeSnapshot::default() });
        assert_eq!(history.json()["streams"], json!({}), "what is removed is forgotten");
    }
}
