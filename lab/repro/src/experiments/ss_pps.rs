//! `ss-pps`: frames a second through an end system with four stream slots.
//!
//! Without transfers: all frames are queued before the clock starts; a loop decides, takes the
//! frame from its queue, counts it. With transfers: another thread hands arrivals over through one
//! ring and takes the chosen streams' ids back through a second, as the paper's processor does
//! with its card. Beside them plain unscheduled sending of small packets on the loopback, and the
//! same with a decision in front.

use std::hint::black_box;
use std::thread;

use selvedge_data_memory::{Consumer, Producer, ring};
use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex};
use selvedge_data_stream::{Contract, Window};
use selvedge_lab_measure::send::{SendComparison, SendLoop, compare};
use selvedge_os::clock::Clock;
use selvedge_os::transmit::Method;
use selvedge_units::{Bytes, Duration, Instant};

use crate::experiment::{Edit, Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::{median, processor, time};
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "ss-pps",
    title: "Frames a second through an end system",
    paper: super::SS,
    section: "Section 5.2",
    kind: Kind::Real,
    claim: "more than the paper's end system, its line card and Click; little beside a plain send",
    edits: &[SLOW],
    run,
};

const SLOW: Edit = Edit { name: "slow", what: "each decision is taken 300 times" };

const STREAMS: usize = 4;
/// Queued on each stream before the clock starts.
const FRAMES: usize = 64_000;
/// The paper's frames a second.
const WITHOUT: f64 = 469_483.0;
const WITH: f64 = 299_065.0;
const LINE_CARD: f64 = 7_600_000.0;
const CLICK: f64 = 300_000.0;
const PACKET: Bytes = Bytes(64);

/// The scheduler of the experiment, 1:1:2:4 by periods.
fn scheduler() -> Scheduler {
    let mut sched = Scheduler::new(Discipline::Dwcs);
    for period in [8, 8, 4, 2] {
        sched.add(&Contract::new(Duration(period), Window { lose: 0, of: 1 }));
    }
    sched
}

fn push(sched: &mut Scheduler, s: StreamIndex, arrival: Instant) {
    black_box(sched.enqueue_head(s, Head::arrived(arrival)));
}

/// A queue of arrival times for each stream.
struct Queues(Vec<(Producer<Instant>, Consumer<Instant>)>);

impl Queues {
    fn new() -> Self {
        Self((0..STREAMS).map(|_| ring(FRAMES)).collect())
    }

    fn fill(&mut self) {
        for (producer, _) in &mut self.0 {
            for n in 0..FRAMES as u64 {
                let _ = producer.push(Instant(n));
            }
        }
    }

    /// The stream's oldest frame becomes its head.
    fn enqueue_next_head(&mut self, sched: &mut Scheduler, s: StreamIndex) {
        if let Some(arrival) = self.0[s.0 as usize].1.pop() {
            push(sched, s, arrival);
        }
    }

    /// Serves the stream's head; the next frame in its queue follows.
    #[inline]
    fn dequeue(&mut self, sched: &mut Scheduler, s: StreamIndex) {
        black_box(match self.0[s.0 as usize].1.pop() {
            Some(arrival) => sched.dequeue_and_enqueue(s, Head::arrived(arrival)),
            None => sched.dequeue(s),
        });
    }
}

/// So many frames are timed at once: a fraction of a millisecond, so that most such pieces pass
/// without another program taking the processor.
const PIECE: u64 = 4000;

/// The last of so many decisions: a stream is chosen, and its next head comes up.
fn choose(sched: &mut Scheduler, times: u32) -> Option<StreamIndex> {
    for _ in 1..times {
        let s = sched.choose(Instant::ZERO)?;
        black_box(sched.dequeue_and_enqueue(s, Head::arrived(Instant::ZERO)));
    }
    sched.choose(Instant::ZERO)
}

/// Decides until a piece has gone or every queue is empty; how many frames went.
fn drain(sched: &mut Scheduler, queues: &mut Queues, times: u32) -> u64 {
    let mut counts = [0_u64; STREAMS];
    for _ in 0..PIECE {
        let Some(s) = choose(sched, times) else { break };
        queues.dequeue(sched, s);
        counts[s.0 as usize] += 1;
    }
    counts.iter().sum()
}

/// Frames a second when nothing is handed over: the middle one of the pieces.
fn without_transfers(times: u32) -> f64 {
    let (mut sched, mut queues) = (scheduler(), Queues::new());
    queues.fill();
    (0..STREAMS as u32).for_each(|s| queues.enqueue_next_head(&mut sched, StreamIndex(s)));
    let piece = || {
        let mut sent = 0;
        let took = time(|| sent = drain(&mut sched, &mut queues, times));
        (sent == PIECE).then(|| sent as f64 / took.as_secs_f64())
    };
    median(std::iter::from_fn(piece))
}

/// Entries that travel at once, as the paper's transfers are batched.
const BATCH: usize = 64;

/// Frames a second when arrivals and ids go through rings between two threads.
fn with_transfers(times: u32) -> f64 {
    let all = STREAMS * FRAMES;
    // Long enough that neither side often waits for the other, which under load has no processor.
    let (mut arrivals, mut arrived) = ring::<(u32, Instant)>(FRAMES);
    let (mut chosen, mut ids) = ring::<u32>(FRAMES);
    let took = time(|| {
        thread::scope(|scope| {
            scope.spawn(move || {
                let (mut given, mut taken) = (0, 0);
                let mut counts = [0_u64; STREAMS];
                while taken < all {
                    let mut batch = [(0, Instant::ZERO); BATCH];
                    let upto = (given + BATCH).min(all);
                    for (place, n) in batch.iter_mut().zip(given..upto) {
                        *place = ((n % STREAMS) as u32, Instant(n as u64));
                    }
                    let moved = arrivals.push_slice(&batch[..upto - given]);
                    given += moved;
                    let mut back = [0; BATCH];
                    let count = ids.pop_into(&mut back);
                    back[..count].iter().for_each(|&s| counts[s as usize] += 1);
                    taken += count;
                    if moved == 0 && count == 0 {
                        thread::yield_now();
                    }
                }
                black_box(counts);
            });
            serve_transfers(all, times, &mut arrived, &mut chosen);
        });
    });
    all as f64 / took.as_secs_f64()
}

/// The scheduler's side: arrivals in, decisions, ids out.
fn serve_transfers(
    all: usize,
    times: u32,
    arrived: &mut Consumer<(u32, Instant)>,
    chosen: &mut Producer<u32>,
) {
    let (mut sched, mut queues) = (scheduler(), Queues::new());
    let mut out = Vec::with_capacity(BATCH);
    let mut sent = 0;
    while sent < all {
        let mut batch = [(0, Instant::ZERO); BATCH];
        let count = arrived.pop_into(&mut batch);
        for &(s, arrival) in &batch[..count] {
            if sched.head_deadline(StreamIndex(s)).is_none() {
                push(&mut sched, StreamIndex(s), arrival);
            } else {
                let _ = queues.0[s as usize].0.push(arrival);
            }
        }
        while out.len() < BATCH
            && let Some(s) = choose(&mut sched, times)
        {
            queues.dequeue(&mut sched, s);
            out.push(s.0);
        }
        let moved = chosen.push_slice(&out);
        out.drain(..moved);
        sent += moved;
        if count == 0 && moved == 0 {
            thread::yield_now();
        }
    }
}

/// Plain sending of small packets, and the same with a decision in front.
fn sending(millis: u64, times: u32) -> Result<SendComparison, RunError> {
    let method = Method::SendMmsg;
    let mut sending = SendLoop::new(Clock::new(), method, PACKET, STREAMS, STREAMS)?;
    let mut sched = scheduler();
    (0..STREAMS as u32).for_each(|s| push(&mut sched, StreamIndex(s), Instant::ZERO));
    let mut turn = [0, 1, 2, 2, 3, 3, 3, 3].into_iter().cycle();
    let mut decide = || {
        let Some(s) = choose(&mut sched, times) else { return 0 };
        black_box(sched.dequeue_and_enqueue(s, Head::arrived(Instant::ZERO)));
        s.0 as usize
    };
    let mut plain = || turn.next().unwrap_or(0);
    Ok(compare(Duration::from_millis(millis), &mut sending, &mut plain, &mut decide))
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let rounds = params.amount(15, 3);
    let times = params.edited(SLOW.name, 1, 300);
    let mut figures: [Vec<f64>; 2] = Default::default();
    for n in 0..rounds {
        watch.go_on(&format!("round {n} of {rounds}"))?;
        figures[0].push(without_transfers(times));
        figures[1].push(with_transfers(times));
    }
    watch.go_on("plain sending on the loopback")?;
    let sends = sending(params.amount(2000, 60), times)?;
    let [without, with] = figures.map(median);
    let plain = sends.plain.packets_per_second;

    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Frames a second, {STREAMS} streams; ours on {}, medians", processor()),
        &["", "frames/s", "times"],
    );
    for (name, rate, over) in [
        ("ShareStreams end system, without transfers (paper)", WITHOUT, None),
        ("without transfers: decide, dequeue, count", without, Some(WITHOUT)),
        ("ShareStreams end system, with transfers (paper)", WITH, None),
        ("with transfers: rings to another thread and back", with, Some(WITH)),
        ("ShareStreams line card (paper)", LINE_CARD, None),
        ("Click with SFQ, Pentium III (paper)", CLICK, None),
        ("plain sending on the loopback, sendmmsg, 64 bytes", plain, None),
        ("the same, a decision in front", plain * sends.rate_share, Some(plain)),
    ] {
        let times = over.map_or(Cell::None, |over| Cell::rounded(rate / over, 2));
        table.row([Cell::from(name), Cell::rounded(rate, 0), times]);
    }
    outcome.tables.push(table);
    for (text, ours, theirs) in [
        ("without transfers: more than the paper's end system", without, WITHOUT),
        ("with transfers: more than the paper's end system", with, WITH),
        ("without transfers: more than the paper's line card", without, LINE_CARD),
        ("with transfers: more than Click's 300,000", with, CLICK),
        ("without transfers: more than plain sending, so sending is what limits", without, plain),
    ] {
        outcome.claim(text, ours > theirs, format!("{ours:.0} against {theirs:.0} frames/s"));
    }
    outcome.claim(
        "a decision in front of each packet costs at most 5 % of plain sending",
        sends.rate_share >= 0.95,
        format!("{:.1} % left", sends.rate_share * 100.0),
    );
    Ok(outcome)
}
