//! `ss-f10`: a hundred streamlets in each of four stream slots, which share a link 1:1:2:4; the
//! fourth slot has two sets, of which the first gets double.

use selvedge_data_sched::aggregate::{Aggregate, SetIndex, StreamletIndex};
use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex};
use selvedge_units::{Bytes, Instant};

use super::four_queues::{BY_PERIODS, EIGHTHS, EQUAL, MEGABYTES, RATE, SHARES, promised};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-f10",
    title: "A hundred streamlets in each stream slot, two sets in the fourth",
    paper: super::SS,
    section: "Figure 10, section 5.1",
    kind: Kind::Virtual,
    claim: "shares within 1 %, of each slot, set and streamlet",
    edits: &[EQUAL, SETS_ALIKE],
    run,
};

const SETS_ALIKE: Edit = Edit { name: "sets-alike", what: "all sets have the same weight" };

/// In each slot; half of them in each set of the fourth.
const STREAMLETS: u64 = 100;
const SIZE: Bytes = Bytes(1000);
/// The paper's megabytes a second, by slot.
const THEIRS: [f64; 4] = [2.0, 2.0, 4.0, 8.0];
/// The weights of each slot's sets.
const SETS: [&[u16]; 4] = [&[1], &[1], &[1], &[2, 1]];

/// A stream slot: its sets, and its streamlets by set.
struct Slot {
    aggregate: Aggregate,
    sets: Vec<(SetIndex, u16, Vec<StreamletIndex>)>,
}

impl Slot {
    fn new(weights: &[u16], are_alike: bool) -> Self {
        let mut aggregate = Aggregate::new();
        let mut sets = Vec::new();
        for &weight in weights {
            let set = aggregate
                .add_set(if are_alike { 1 } else { weight })
                .expect("small weights have a common multiple");
            let each = STREAMLETS / weights.len() as u64;
            let streamlets: Vec<_> = (0..each).map(|_| aggregate.add(set)).collect();
            // Two frames wait, so that none ever runs dry.
            streamlets.iter().for_each(|&s| (0..2).for_each(|_| aggregate.arrive(s)));
            sets.push((set, weight, streamlets));
        }
        Self { aggregate, sets }
    }

    /// The head goes, its streamlet gets another frame, and the next comes up.
    fn go_on(&mut self) {
        if let Some(streamlet) = self.aggregate.head() {
            self.aggregate.sent(SIZE);
            self.aggregate.arrive(streamlet);
        }
        self.aggregate.promote_head();
    }

    /// Frames sent so far by the first streamlet of each set.
    fn samples(&self) -> impl Iterator<Item = u64> {
        self.sets
            .iter()
            .map(|(_, _, streamlets)| self.aggregate.streamlet_tally(streamlets[0]).sent)
    }
}

/// Sends for so many seconds of virtual time. With it the megabytes a second of one streamlet of
/// each set, second by second.
fn send(seconds: u64, params: &Params) -> ([Slot; 4], Vec<Vec<f64>>) {
    let are_alike = params.is_edited(SETS_ALIKE.name);
    let mut slots = SETS.map(|weights| Slot::new(weights, are_alike));
    let mut sched = Scheduler::new(Discipline::Dwcs);
    for (slot, share) in slots.iter_mut().zip(promised(params)) {
        let s = sched.add(&BY_PERIODS.contract(share));
        slot.go_on();
        sched.enqueue_head(s, Head::arrived(Instant::ZERO));
    }
    let samples = |slots: &[Slot; 4]| slots.iter().flat_map(Slot::samples).collect::<Vec<_>>();
    let mut lines = vec![Vec::new(); samples(&slots).len()];
    let mut before = samples(&slots);
    for t in 0..seconds * RATE as u64 {
        let now = Instant(t);
        while sched.poll_expired(now).is_some() {}
        let s = sched.choose(now).unwrap_or(StreamIndex(0));
        slots[s.0 as usize].go_on();
        sched.dequeue_and_enqueue(s, Head::arrived(Instant::ZERO));
        if (t + 1) % RATE as u64 == 0 {
            let counts = samples(&slots);
            for ((line, now), before) in lines.iter_mut().zip(&counts).zip(&before) {
                line.push((now - before) as f64 * MEGABYTES);
            }
            before = counts;
        }
    }
    (slots, lines)
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let seconds = params.amount(60, 6);
    watch.go_on(&format!("{seconds} s of virtual time"))?;
    let (slots, lines) = send(seconds, params);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Megabytes a second, over {seconds} s of virtual time"),
        &["slot", "set", "slot (paper)", "slot", "set", "least streamlet", "most"],
    );
    let rate = |bytes: Bytes| bytes.0 as f64 / 1e6 / seconds as f64;
    // The largest deviation from what is due, of slots, sets and streamlets.
    let mut off = [0.0_f64; 3];
    for ((slot, share), (n, theirs)) in slots.iter().zip(SHARES).zip((1_u64..).zip(THEIRS)) {
        let due = share as f64 / EIGHTHS as f64 * RATE * MEGABYTES;
        let all = rate(slot.aggregate.tally().bytes);
        off[0] = off[0].max((all / due - 1.0).abs());
        let weights: u16 = slot.sets.iter().map(|set| set.1).sum();
        for (m, (set, weight, streamlets)) in (1_u64..).zip(&slot.sets) {
            let due = due * f64::from(*weight) / f64::from(weights);
            let whole = rate(slot.aggregate.set_tally(*set).bytes);
            off[1] = off[1].max((whole / due - 1.0).abs());
            let each: Vec<f64> =
                streamlets.iter().map(|&s| rate(slot.aggregate.streamlet_tally(s).bytes)).collect();
            let due = due / streamlets.len() as f64;
            let least = each.iter().copied().fold(f64::MAX, f64::min);
            let most = each.iter().copied().fold(0.0, f64::max);
            off[2] = off[2].max((least / due - 1.0).abs()).max((most / due - 1.0).abs());
            table.row([
                n.into(),
                m.into(),
                theirs.into(),
                Cell::rounded(all, 4),
                Cell::rounded(whole, 4),
                Cell::rounded(least, 5),
                Cell::rounded(most, 5),
            ]);
        }
    }
    outcome.tables.push(table);
    for (what, off) in ["slots", "sets", "streamlets"].into_iter().zip(off) {
        outcome.claim(
            format!("the shares of the {what} are kept within 1 %"),
            off <= 0.01,
            format!("off by at most {:.2} %", off * 100.0),
        );
    }
    let names = (1..).zip(SETS).flat_map(|(n, sets)| {
        let name = move |m| match sets.len() {
            1 => format!("of slot {n}"),
            _ => format!("of slot {n}, set {m}"),
        };
        (1..=sets.len()).map(name)
    });
    outcome.plots.push(Plot {
        title: "Bandwidth of one streamlet of each set".to_owned(),
        x: Axis::linear("seconds of virtual time"),
        y: Axis::linear("MB/s"),
        series: names
            .zip(lines)
            .enumerate()
            .map(|(place, (name, line))| Series {
                name,
                points: (1..).map(f64::from).zip(line).collect(),
                marked: false,
                broad: place == 0,
            })
            .collect(),
    });
    outcome.note(
        "A link of 16,000 frames of 1000 bytes a second; every streamlet always has a frame.",
    );
    Ok(outcome)
}
