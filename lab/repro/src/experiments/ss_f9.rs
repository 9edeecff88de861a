//! `ss-f9`: queueing delay of four streams that share a link 1:1:2:4, fed in bursts of 4000 frames.

use selvedge_data_sched::StreamIndex;
use selvedge_data_sched::replay::{Arrival, Arrivals};
use selvedge_units::{Bytes, Duration, Instant};

use super::four_queues::{BY_PERIODS, EIGHTHS, EQUAL, RATE, SHARES, promised, sent};
use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-f9",
    title: "Queueing delay of four streams, 1:1:2:4, with a bursty producer",
    paper: super::SS,
    section: "Figure 9, section 5.1",
    kind: Kind::Virtual,
    claim: "delay in zig-zags, a tooth for each burst; that of stream 4 is the lowest",
    edits: &[EQUAL, SMOOTH],
    run,
};

const SMOOTH: Edit = Edit { name: "smooth", what: "frames come evenly, not in bursts" };

/// Frames of each stream in a burst.
const BURST: u64 = 4000;
/// Slots between the end of the slowest stream's burst and the next burst: 5 ms.
const GAP: u64 = 80;
/// From burst to burst: as long as the slowest stream takes, and the gap.
const EVERY: u64 = BURST * EIGHTHS + GAP;
/// Of this many frames one becomes a point of the plot.
const POINTS: u64 = 100;

/// The delays of one stream, in slots.
#[derive(Default)]
struct Delays {
    sum: u64,
    frames: u64,
    /// The first and the last of each burst.
    teeth: Vec<(u64, u64)>,
    /// Whether within each burst no frame waited less than the one before.
    rising: bool,
    line: Vec<(f64, f64)>,
}

impl Delays {
    fn mean(&self) -> f64 {
        self.sum as f64 / self.frames.max(1) as f64
    }

    /// Each burst begins with hardly any delay and ends with its highest.
    fn zigzags(&self, bursts: u64) -> bool {
        let sharp = self.teeth.iter().all(|&(first, last)| first * 100 <= last);
        self.rising && sharp && self.teeth.len() as u64 == bursts
    }
}

fn delays(bursts: u64, params: &Params) -> [Delays; 4] {
    let apart = params.edited(SMOOTH.name, 0, EVERY / BURST);
    let mut listed = Vec::new();
    for at in (0..bursts).map(|burst| Instant(burst * EVERY)) {
        for stream in (0..4).map(StreamIndex) {
            let at = |n| at + Duration(n * apart);
            listed.extend((0..BURST).map(|n| Arrival { at: at(n), stream, size: Bytes(1000) }));
        }
    }
    listed.sort_by_key(|arrival| arrival.at);
    let trace = BY_PERIODS.trace(promised(params), true, bursts * EVERY, Arrivals::Listed(listed));
    let mut all: [Delays; 4] = Default::default();
    all.iter_mut().for_each(|delays| delays.rising = true);
    for (t, stream, seq) in sent(&trace) {
        let delays = &mut all[stream];
        let waited = t - seq / BURST * EVERY - seq % BURST * apart;
        delays.sum += waited;
        delays.frames += 1;
        match delays.teeth.last_mut() {
            Some((_, last)) if seq % BURST != 0 => {
                delays.rising &= waited >= *last;
                *last = waited;
            }
            _ => delays.teeth.push((waited, waited)),
        }
        if seq % POINTS == 0 || (seq + 1) % BURST == 0 {
            delays.line.push((seq as f64, waited as f64 / RATE * 1e3));
        }
    }
    all
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let bursts = params.amount(16, 2);
    watch.go_on(&format!("{bursts} bursts of {BURST} frames on each of four streams"))?;
    let all = delays(bursts, params);
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Queueing delay, {bursts} bursts of {BURST} frames, milliseconds of virtual time"),
        &["stream", "share", "frames", "mean", "highest", "teeth"],
    );
    let millis = |slots: f64| Cell::rounded(slots / RATE * 1e3, 1);
    for ((n, delays), share) in (1_u64..).zip(&all).zip(SHARES) {
        let highest = delays.teeth.iter().map(|tooth| tooth.1).max().unwrap_or(0);
        table.row([
            n.into(),
            format!("{share}/{EIGHTHS}").into(),
            delays.frames.into(),
            millis(delays.mean()),
            millis(highest as f64),
            (delays.teeth.len() as u64).into(),
        ]);
    }
    outcome.tables.push(table);
    outcome.claim(
        "every stream's delay rises through each burst and falls to nothing with the next",
        all.iter().all(|delays| delays.zigzags(bursts)),
        format!("teeth: {:?}", all.each_ref().map(|delays| delays.teeth.len())),
    );
    let means = all.each_ref().map(Delays::mean);
    outcome.claim(
        "stream 4 waits least, then 3, then 1 and 2",
        means[3] < means[2] && means[2] < means[0].min(means[1]),
        format!("{:.0} < {:.0} < {:.0}, {:.0} slots", means[3], means[2], means[0], means[1]),
    );
    let products: Vec<f64> = means.iter().zip(SHARES).map(|(m, s)| m * s as f64).collect();
    let off = products.iter().map(|p| (p / products[3] - 1.0).abs()).fold(0.0, f64::max);
    outcome.claim(
        "the delays are as the shares: mean delay x share is the same for all, within 1 %",
        off <= 0.01,
        format!("off by at most {:.2} %", off * 100.0),
    );
    outcome.note(
        "The paper gives the shape only. Here all four queues get a burst at once, and the next \
         when the slowest is empty and 5 ms have passed; streams are paced (not work-conserving).",
    );
    outcome.plots.push(Plot {
        title: "Queueing delay of four streams, 1:1:2:4, bursts of 4000 frames".to_owned(),
        x: Axis::linear("frame of its stream"),
        y: Axis::linear("queueing delay, ms"),
        series: all
            .into_iter()
            .zip(1..)
            .map(|(delays, n)| Series {
                name: format!("stream {n}"),
                points: delays.line,
                marked: false,
                broad: n == 1,
            })
            .collect(),
    });
    Ok(outcome)
}
