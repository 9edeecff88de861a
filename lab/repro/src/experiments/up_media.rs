//! `up-media`: two streams of H.264 over a link that is too small for both, in virtual time: frames
//! decodable on time beside the offline bound, beside links that do not select, and beside a model of OBS.
//!
//! The frames' kinds, sizes and references are kept in lists (`lab/repro/media`), which `lists.sh`
//! made of a clip: no video is needed to run it.

use std::collections::VecDeque;
use std::fmt;

use selvedge_data_link::bound::{OfflineFrame, decodable_bound_over};
use selvedge_data_link::{Link, LinkParams};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::{Discipline, StreamIndex};
use selvedge_data_stream::{
    Contract, Fate, Frame, FrameList, Kind as FrameKind, ListedFrame, Window,
};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "up-media",
    title: "Decodable frames of two H.264 streams: share of the offline bound",
    paper: "Selvedge",
    section: "docs/inside/selection.md",
    kind: Kind::Virtual,
    claim: "selection is never below a sender without it, and above 0.93 of the bound (0.9 with groups of 250)",
    edits: &[],
    run,
};

macro_rules! lists {
    ($($form:literal: $($mbps:literal $group:literal $b:literal),*;)*) => {
        [$($((
            Encoding { mbps: $mbps, group: $group, b: $b, form: $form },
            include_str!(concat!("../../media/", $mbps, "-", $group, "-", $b, $form, ".txt")),
        )),*),*]
    };
}

/// How a list's clip was encoded: Mbit/s, frames of a group, B frames in a row, and by `form` whether B
/// frames refer to no other ("-flat": no pyramid) and whether groups are open ("-open": B frames
/// before an intra picture refer to the group before it, too).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Encoding {
    mbps: u64,
    group: u64,
    b: u64,
    form: &'static str,
}

const LISTS: [(Encoding, &str); 69] = lists!(
    "":
        1 25 0, 1 25 1, 1 25 2, 1 25 3, 1 50 0, 1 50 1, 1 50 2, 1 50 3, 1 250 0, 1 250 1, 1 250 2, 1 250 3,
        3 25 0, 3 25 1, 3 25 2, 3 25 3, 3 50 0, 3 50 1, 3 50 2, 3 50 3, 3 250 0, 3 250 1, 3 250 2, 3 250 3,
        12 25 0, 12 25 1, 12 25 2, 12 25 3, 12 50 0, 12 50 1, 12 50 2, 12 50 3, 12 250 0, 12 250 1, 12 250 2, 12 250 3;
    "-flat":
        1 25 2, 1 50 2, 1 250 2, 1 25 3, 1 50 3, 1 250 3,
        3 25 2, 3 50 2, 3 250 2, 3 25 3, 3 50 3, 3 250 3,
        12 25 2, 12 50 2, 12 250 2, 12 25 3, 12 50 3, 12 250 3;
    "-open":
        1 50 1, 1 50 2, 1 50 3,
        3 50 1, 3 50 2, 3 50 3,
        12 50 1, 12 50 2, 12 50 3;
    "-open-flat":
        1 50 2, 1 50 3,
        3 50 2, 3 50 3,
        12 50 2, 12 50 3;
);
/// The link, in hundredths of what the streams need.
const SHARES: [u64; 3] = [96, 79, 53];
pub(super) const PERIOD: Duration = Duration::from_millis(40);
pub(super) const DELAY: Duration = Duration::from_secs(1);
/// How much later the second stream begins.
const SHIFT: Duration = Duration::from_millis(3_100);
/// What a packet carries, and what its headers add on the wire.
pub(super) const PAYLOAD: u64 = 1_200;
pub(super) const HEADERS: u64 = 64;
/// Frames of each stream: a list of 500, four times; at least eight groups.
pub(super) const FRAMES: usize = 2_000;

/// A cell: what is encoded how, and the link in hundredths of what two such streams need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Media {
    encoding: Encoding,
    share: u64,
    delay: Duration,
    /// The first stream only.
    is_alone: bool,
}

impl Media {
    /// Closed groups, B frames in a pyramid.
    pub(super) const fn new(mbps: u64, group: u64, b: u64, share: u64) -> Self {
        Self {
            encoding: Encoding { mbps, group, b, form: "" },
            share,
            delay: DELAY,
            is_alone: false,
        }
    }

    /// The same with another delay.
    pub(super) const fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// The same with one stream.
    pub(super) const fn alone(self) -> Self {
        Self { is_alone: true, ..self }
    }

    /// How many streams there are.
    pub(super) const fn count(self) -> usize {
        if self.is_alone { 1 } else { 2 }
    }

    /// The contract of each stream.
    pub(super) fn contract(self) -> Contract {
        Contract { delay: Some(self.delay), ..contract() }
    }

    /// Two streams of the same list, the second some groups ahead, with `frames` frames each.
    pub(super) fn streams(self, frames: usize) -> [Vec<Frame>; 2] {
        let mut streams = self.lists().map(|(list, begin)| stream(&list, begin, frames));
        streams[self.count()..].fill(Vec::new());
        streams
    }

    /// The lists of both, and when each begins.
    pub(super) fn lists(self) -> [(FrameList, Instant); 2] {
        let text = LISTS.iter().find(|list| list.0 == self.encoding).map_or("", |list| list.1);
        let list = FrameList::parse(text).expect("each cell has a list, and each list can be read");
        [(0, Instant::ZERO), (250, Instant::ZERO + SHIFT)]
            .map(|(first, begin)| (list.clone().beginning_at(first), begin))
    }

    /// The link's rate for these streams.
    pub(super) fn rate(self, streams: &[Vec<Frame>]) -> Bitrate {
        let bytes: Bytes = streams.iter().flatten().map(|frame| frame.size).sum();
        let end = streams.iter().flatten().map(|frame| frame.arrival).max().unwrap_or_default();
        Bitrate((bytes / end.since(Instant::ZERO)).0 * self.share / 100)
    }

    /// What can be decodable at most.
    pub(super) fn bound(self, streams: &[Vec<Frame>]) -> f64 {
        let rate = self.rate(streams);
        self.bound_over(streams, |from, to| rate * to.since(from))
    }

    /// The same over a link that carries so many bytes from one instant to another.
    pub(super) fn bound_over(
        self,
        streams: &[Vec<Frame>],
        carries: impl Fn(Instant, Instant) -> Bytes,
    ) -> f64 {
        let offline = |frame: &Frame| OfflineFrame {
            arrival: frame.arrival,
            deadline: frame.arrival + self.delay,
            size: frame.size,
            refs: frame.refs,
        };
        let known: Vec<Vec<OfflineFrame>> =
            streams.iter().map(|stream| stream.iter().map(offline).collect()).collect();
        decodable_bound_over(&known, carries, Bytes(1_500)).share()
    }

    /// So much of the bound is wanted.
    pub(super) const fn goal(self) -> f64 {
        if self.encoding.group < 250 { 0.93 } else { 0.9 }
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { encoding: Encoding { mbps, group, b, form }, share, .. } = self;
        write!(f, "{mbps} Mbit/s, groups of {group}{form}, {b} B frames, {share} %")
    }
}

/// The contract of each stream.
pub(super) fn contract() -> Contract {
    Contract { delay: Some(DELAY), ..Contract::new(PERIOD, Window { lose: 1, of: 5 }) }
}

/// All frames, each with the number of its stream, as they arrive.
pub(super) fn by_arrival(streams: &[Vec<Frame>]) -> Vec<(usize, Frame)> {
    let numbered = |(n, all): (usize, &Vec<Frame>)| all.iter().map(move |f| (n, *f)).collect();
    let mut arrivals: Vec<_> = streams.iter().enumerate().flat_map::<Vec<_>, _>(numbered).collect();
    arrivals.sort_by_key(|(n, frame)| (frame.arrival, *n));
    arrivals
}

/// The frames of one stream, in decoding order: the list round and round.
fn stream(list: &FrameList, begin: Instant, frames: usize) -> Vec<Frame> {
    let numbers = 0..frames as u32;
    numbers.map(|n| frame(n, list.frame(n), begin + PERIOD * u64::from(n))).collect()
}

/// How late a thread wakes up: quantiles that were recorded beside two endless loops
/// (`lab/measure`, example `pacing`), drawn from with a seed.
struct WakeUps {
    recorded: Vec<Duration>,
    seed: u64,
}

impl WakeUps {
    fn recorded(seed: u64) -> Self {
        let lines = include_str!("../../media/wake-ups.txt").lines();
        let recorded = lines.filter_map(|micros| micros.parse().ok().map(Duration::from_micros));
        Self { recorded: recorded.collect(), seed }
    }

    fn late(&mut self) -> Duration {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.recorded[(self.seed >> 33) as usize % self.recorded.len()]
    }
}

/// A frame of a list, in packets of [`PAYLOAD`].
fn frame(seq: u32, listed: ListedFrame, arrival: Instant) -> Frame {
    let ListedFrame { kind, referenced, size, refs } = listed;
    let packets = size.0.div_ceil(PAYLOAD);
    Frame {
        seq,
        kind,
        referenced,
        refs,
        packets: packets as u16,
        size: Bytes(size.0 + packets * HEADERS),
        arrival,
        deadline: None,
        payload: PayloadSpan::default(),
    }
}

/// Frames that the link makes decodable on time, by its ledgers. Its thread wakes up as late as `wake_ups` has it.
fn decodable(params: LinkParams, streams: &[Vec<Frame>], mut wake_ups: Option<WakeUps>) -> u64 {
    let mut link = Link::new(params);
    let ids: Vec<StreamIndex> = streams.iter().map(|_| link.add_stream(contract())).collect();
    let mut arrivals = by_arrival(streams).into_iter().peekable();
    let mut now = Instant::ZERO;
    loop {
        while let Some((n, frame)) = arrivals.next_if(|(_, frame)| frame.arrival <= now) {
            link.handle_frame(now, ids[n], frame);
        }
        let coming = arrivals.peek().map(|(_, frame)| frame.arrival);
        let wake = match link.poll_transmit(now) {
            Some(next) => {
                let whole = PAYLOAD + HEADERS;
                let size = Bytes((next.frame.size.0 - whole * u64::from(next.packet)).min(whole));
                let departure = link.departure(size);
                if departure <= now {
                    link.sent(now, size);
                    Some(now)
                } else {
                    Some(coming.map_or(departure, |coming| coming.min(departure)))
                }
            }
            None => coming.into_iter().chain(link.next_event(now)).min(),
        };
        while let Some(settled) = link.poll_settled() {
            debug_assert!(
                !matches!(settled.fate, Fate::Sent { .. }) || settled.frame.refs.is_known()
            );
        }
        let Some(wake) = wake else { break };
        if wake > now {
            now = wake + wake_ups.as_mut().map_or(Duration::ZERO, WakeUps::late);
        }
    }
    let good = |id| link.ledger(id).map_or(0, |ledger| ledger.totals().decodable);
    ids.into_iter().map(good).sum()
}

/// Frames decodable on time if each stream is sent by OBS's rule over one first-come link: when a stream's
/// oldest waiting frame is older than 0.7 of the delay, its B pictures are dropped, beyond 0.9 the P
/// pictures too, those that wait and those that come until the next intra picture.
fn obs(streams: &[Vec<Frame>], rate: Bitrate) -> usize {
    let rank = |frame: &Frame| match frame.kind {
        FrameKind::Intra => 3,
        FrameKind::Predicted => 2,
        _ => 1,
    };
    let mut good: Vec<Vec<bool>> = streams.iter().map(|all| vec![false; all.len()]).collect();
    let mut kept_from = vec![0; streams.len()];
    let mut waiting: VecDeque<(usize, Frame)> = VecDeque::new();
    let mut free = Instant::ZERO;
    let mut serve = |waiting: &mut VecDeque<(usize, Frame)>, until: Instant| {
        while let Some(&(n, frame)) = waiting.front().filter(|(_, f)| free.max(f.arrival) < until) {
            waiting.pop_front();
            free = free.max(frame.arrival) + frame.size / rate;
            let met = frame.refs.of(frame.seq).all(|seq| good[n][seq as usize]);
            good[n][frame.seq as usize] = met && free <= frame.arrival + DELAY;
        }
    };
    for (n, frame) in by_arrival(streams) {
        serve(&mut waiting, frame.arrival);
        if frame.kind == FrameKind::Intra {
            kept_from[n] = 0;
        }
        let oldest =
            waiting.iter().find(|(of, _)| *of == n).map_or(frame.arrival, |(_, f)| f.arrival);
        let waited = frame.arrival.since(oldest);
        let kept = u32::from(waited * 10 > DELAY * 7) + u32::from(waited * 10 > DELAY * 9);
        if kept > 0 {
            kept_from[n] = kept_from[n].max(kept + 1);
            waiting.retain(|(of, frame)| *of != n || rank(frame) >= kept_from[n]);
        }
        if rank(&frame) >= kept_from[n] {
            waiting.push_back((n, frame));
        }
    }
    serve(&mut waiting, Instant(u64::MAX));
    good.iter().flatten().filter(|good| **good).count()
}

/// What came out of one cell, as shares of all frames.
struct Shares {
    bound: f64,
    selected: f64,
    /// The same where wake-ups are as late as beside two endless loops.
    loaded: f64,
    fifo: f64,
    priority: f64,
    obs: f64,
}

fn measure(media: Media, seed: u64) -> Shares {
    let streams = media.streams(FRAMES);
    let rate = media.rate(&streams);
    let all = streams.iter().flatten().count() as f64;
    let run = |discipline, selection: bool, wake_ups: Option<WakeUps>| {
        let queue = (!selection).then(|| rate * Duration::from_millis(500));
        let (burst, mtu) = (Bytes(1500), Bytes(1500));
        // What is never late has nothing to make up for.
        let catch_up = wake_ups.is_none().then_some(Bytes(0));
        let params = LinkParams { discipline, selection, rate, burst, catch_up, mtu, queue };
        decodable(params, &streams, wake_ups) as f64 / all
    };
    Shares {
        bound: media.bound(&streams),
        selected: run(Discipline::Dwcs, true, None),
        loaded: run(Discipline::Dwcs, true, Some(WakeUps::recorded(seed))),
        fifo: run(Discipline::Fifo, false, None),
        priority: run(Discipline::Priority, false, None),
        obs: obs(&streams, rate) as f64 / all,
    }
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let columns = [
        "Mbit/s",
        "group",
        "B frames",
        "form",
        "link %",
        "bound",
        "selection",
        "of the bound",
        "loaded, of it",
        "fifo",
        "priority",
        "OBS model",
    ];
    let mut table = Table::new("Frames decodable on time, as shares of all", &columns);
    let (mut cells, mut above) = (0, f64::MAX);
    let mut short = Vec::new();
    // The quick way: one rate, few B frames, one link.
    let wanted = |rate, b, share| !params.quick || (rate, b, share) == (1, 2, 79);
    for (encoding, _) in LISTS {
        let Encoding { mbps, group, b, form } = encoding;
        for share in SHARES.into_iter().filter(|&share| wanted(mbps, b, share)) {
            let media = Media { encoding, share, delay: DELAY, is_alone: false };
            watch.go_on(&media.to_string())?;
            let Shares { bound, selected, loaded, fifo, priority, obs } =
                measure(media, params.seed);
            let parts = [selected, loaded].map(|share| share / bound);
            cells += 1;
            if parts.iter().any(|&part| part < media.goal()) {
                short.push(format!("{media}: {:.4}, loaded {:.4}", parts[0], parts[1]));
            }
            above = above.min(selected.min(loaded) - fifo.max(priority).max(obs));
            let figures = [bound, selected, parts[0], parts[1], fifo, priority, obs];
            let figures = figures.map(|figure| Cell::rounded(figure, 3));
            let form = Cell::Text(form.trim_start_matches('-').to_owned());
            let [mbps, group, b, share] = [mbps, group, b, share].map(Cell::Count);
            table.row([mbps, group, b, form, share].into_iter().chain(figures));
        }
    }
    Ok(outcome_of(table, cells, &short, above))
}

/// What is claimed: `short` are the cells below their goals, and `above` is how far selection is above the
/// best of the others where that is least.
fn outcome_of(table: Table, cells: usize, short: &[String], above: f64) -> Outcome {
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    outcome.claim(
        "selection is nowhere more than 0.5 points below the best of fifo, priority and OBS",
        above >= -0.005,
        format!("at least {:.1} points above", above * 100.0),
    );
    outcome.claim(
        "each cell reaches 0.93 of the offline bound (0.9 with groups of 250)",
        short.is_empty(),
        format!("{} of {cells} cells below: {}", short.len(), short.join("; ")),
    );
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_can_be_read() {
        for (encoding, text) in LISTS {
            assert!(FrameList::parse(text).is_ok(), "{encoding:?}");
        }
    }

    fn passed(short: &[String], above: f64) -> [bool; 2] {
        let outcome = outcome_of(Table::new("", &[]), 108, short, above);
        [outcome.claims[0].passed, outcome.claims[1].passed]
    }

    #[test]
    fn each_claim_fails_on_figures_that_break_it() {
        assert_eq!(passed(&[], -0.004), [true, true]);
        assert_eq!(passed(&["one".to_owned()], 0.0), [true, false]);
        assert_eq!(passed(&[], -0.006), [false, true]);
    }

    /// Frames of one size, each needing the one before, but for the intra pictures.
    fn chain(frames: usize, group: usize) -> Vec<Frame> {
        let text = format!("Ir 5000\n{}", "Pr 5000 1\n".repeat(group - 1));
        stream(&FrameList::parse(&text).unwrap(), Instant::ZERO, frames)
    }

    #[test]
    fn the_model_of_obs_drops_until_the_next_intra_picture() {
        let stream = [chain(100, 50)];
        let needed = stream[0][0].size / PERIOD;
        assert_eq!(obs(&stream, needed), 100);
        // At half the rate each group ends when its oldest frame has waited too long.
        let half = obs(&stream, Bitrate(needed.0 / 2));
        assert!((30..70).contains(&half), "{half}");
    }
}
