//! `au-hwfq`: a link shared by a tree of weights, exactly and by the flat approximation whose
//! weights are mapped anew now and then.

use selvedge_data_sched::replay::{Arrival, Arrivals, Replay, ReplayAction, Trace, TraceStream};
use selvedge_data_sched::trace::generate::Random;
use selvedge_data_sched::{Discipline, StreamIndex, Tree, TreeNode};
use selvedge_data_stream::{Contract, Late, Window};
use selvedge_units::{Bytes, Duration, Instant};

use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "au-hwfq",
    title: "Hierarchical link sharing: exact, and flat by update period",
    paper: "Aurora at MIT",
    section: "section 2, 3.4 QoS",
    kind: Kind::Virtual,
    claim: "both of Ndiaye's properties hold; the approximation converges as its period shrinks",
    edits: &[],
    run,
};

/// Update periods of the flat approximation, in slots.
const PERIODS: [u64; 4] = [1, 10, 100, 1000];
const CLASSES: [u32; 3] = [1, 2, 5];
/// Streams to a class, by weight.
const WEIGHTS: [u32; 3] = [1, 2, 3];
const STREAMS: usize = CLASSES.len() * WEIGHTS.len();
/// A share is looked at over so many slots.
const WINDOW: usize = 1000;

/// Three classes of three streams, and when which of them get a frame.
fn trace(frames: &[(u64, usize)], ticks: u64, update: Option<Duration>) -> Trace {
    let nodes = CLASSES.map(|weight| TreeNode { parent: 0, weight }).to_vec();
    let tree = Tree::new(nodes, update).unwrap_or_default();
    let streams = (0..STREAMS).map(|n| {
        let contract = Contract {
            weight: WEIGHTS[n % WEIGHTS.len()],
            parent: (n / WEIGHTS.len()) as u32 + 1,
            late: Late::Send,
            ..Contract::new(Duration(1 << 40), Window::NONE)
        };
        TraceStream { id: format!("s{n}"), contract, first_deadline: None }
    });
    let arrival = |&(at, n): &(u64, usize)| {
        let (at, stream) = (Instant(at), StreamIndex(n as u32));
        Arrival { at, stream, size: Bytes(1000) }
    };
    let arrivals = frames.iter().map(arrival).collect();
    Trace {
        discipline: Discipline::Hwfq,
        ticks,
        streams: streams.collect(),
        tree,
        arrivals: Arrivals::Listed(arrivals),
    }
}

/// Who was sent in each slot.
fn sent(trace: &Trace) -> Vec<Option<usize>> {
    let events = Replay::new(trace).filter_map(|event| match event.action {
        ReplayAction::Send { frame, .. } => Some(Some(frame.stream.0 as usize)),
        ReplayAction::Idle => Some(None),
        _ => None,
    });
    events.collect()
}

/// Shares of each stream that is due, by the tree, if only the streams named have frames.
fn due(active: &[bool]) -> Vec<f64> {
    let of = |class: usize| class * WEIGHTS.len()..(class + 1) * WEIGHTS.len();
    let busy = |class: usize| active[of(class)].iter().any(|&is| is);
    let all: u32 = (0..CLASSES.len()).filter(|&c| busy(c)).map(|c| CLASSES[c]).sum();
    (0..STREAMS)
        .map(|n| {
            let class = n / WEIGHTS.len();
            let within: u32 =
                of(class).filter(|&m| active[m]).map(|m| WEIGHTS[m % WEIGHTS.len()]).sum();
            if !active[n] {
                return 0.0;
            }
            let share = f64::from(CLASSES[class]) / f64::from(all.max(1));
            share * f64::from(WEIGHTS[n % WEIGHTS.len()]) / f64::from(within.max(1))
        })
        .collect()
}

/// Some of the streams, at least one.
fn some(random: &mut Random) -> Vec<bool> {
    let mut active: Vec<bool> = (0..STREAMS).map(|_| random.one_in(2)).collect();
    active[random.within(0, STREAMS as u64 - 1) as usize] = true;
    active
}

/// Streams that come and go: in each phase some get a burst, and nearly all of it is sent before
/// the next phase.
fn bursts(random: &mut Random, phases: u64, slots: u64) -> Vec<(u64, usize)> {
    let mut frames = Vec::new();
    for phase in 0..phases {
        for (n, _) in some(random).iter().enumerate().filter(|(_, active)| **active) {
            let burst = random.within(1, 12);
            frames.extend((0..burst).map(|_| (phase * slots, n)));
        }
    }
    frames
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let mut outcome = Outcome::default();
    let mut random = Random::new(params.seed);
    // Always the same streams active for a while: shares against what is due.
    let slots = 2 * WINDOW;
    let mut worst = [0.0_f64; 2];
    for _ in 0..params.amount(40, 8) {
        watch.go_on("exact shares")?;
        let active = some(&mut random);
        let who = || (0..STREAMS).filter(|&n| active[n]);
        let frames: Vec<_> = (0..slots as u64).flat_map(|t| who().map(move |n| (t, n))).collect();
        let order = sent(&trace(&frames, slots as u64, None));
        let due = due(&active);
        let everybody = active.iter().all(|&is| is);
        for (n, due) in due.into_iter().enumerate() {
            let got = order[slots - WINDOW..].iter().filter(|&&s| s == Some(n)).count();
            let off = got as f64 / WINDOW as f64 - due;
            // Less than its own share of the whole tree, or not its part of what others leave.
            worst[0] = worst[0].max(-off);
            if !everybody {
                worst[1] = worst[1].max(off.abs());
            }
        }
    }
    outcome.claim(
        "an active stream gets no less than its share of the link (within 1 % of the link)",
        worst[0] <= 0.01,
        format!("at most {:.2} % less", worst[0] * 100.0),
    );
    outcome.claim(
        "what a stream does not use goes to its siblings, by their weights (within 1 %)",
        worst[1] <= 0.01,
        format!("off by at most {:.2} %", worst[1] * 100.0),
    );
    // Streams that come and go: how much of the service the approximation gives to others.
    let (phase, count) = (37, params.amount(600, 120));
    let (frames, ticks) = (bursts(&mut random, count, phase), count * phase);
    let counts = |order: &[Option<usize>]| {
        let mut sums = vec![vec![0_i64; STREAMS]];
        for stream in order {
            let mut next = sums[sums.len() - 1].clone();
            if let Some(stream) = stream {
                next[*stream] += 1;
            }
            sums.push(next);
        }
        sums
    };
    let exact = counts(&sent(&trace(&frames, ticks, None)));
    let mut table = Table::new(
        format!("Frames ahead or behind the exact order, {count} phases of {phase} slots"),
        &["update period, slots", "mean over slots and streams", "largest"],
    );
    let (mut means, mut points) = (Vec::new(), Vec::new());
    for period in PERIODS {
        watch.go_on(&format!("flat, mapped every {period} slots"))?;
        let flat = counts(&sent(&trace(&frames, ticks, Some(Duration(period)))));
        let off =
            exact.iter().zip(&flat).flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| (a - b).abs()));
        let (sum, most, all) =
            off.fold((0, 0, 0_u64), |(sum, most, all), off| (sum + off, most.max(off), all + 1));
        let mean = sum as f64 / all as f64;
        table.row([Cell::from(period), Cell::rounded(mean, 2), Cell::from(most as u64)]);
        means.push(mean);
        points.push((period as f64, mean));
    }
    outcome.tables.push(table);
    outcome.claim(
        format!("the shorter the update period, the nearer it comes, as long as a phase ({phase}) is longer"),
        means[..3].is_sorted() && means[1] < means[3],
        means.iter().map(|mean| format!("{mean:.2}")).collect::<Vec<_>>().join(", "),
    );
    outcome.plots.push(Plot {
        title: "Flat approximation: frames off the exact order".to_owned(),
        x: Axis::log("update period, slots"),
        y: Axis::linear("frames, mean"),
        series: vec![Series { name: "flat".to_owned(), points, marked: true, broad: false }],
    });
    outcome.note(
        "The paper counts instructions a cell (32 to receive, 46 to send, of a budget of 80); ours \
         a decision are in lab/instructions.txt.",
    );
    Ok(outcome)
}
