//! `up-media-real`: twelve cells of `up-media` in real time, on the machine as it is and beside two endless
//! loops: the engine of a node with sockets on the loopback, fed from the frame lists as they fall due. The
//! cells are played side by side, and each as long as in `up-media`, five times over; medians count. A shorter
//! run reaches less of the bound, in virtual time too: selection begins with nothing learned, and the bound
//! knows all frames.

use std::net::UdpSocket;

use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Frame, Spec};
use selvedge_lab_measure::pacing::beside_loops;
use selvedge_os::clock::Clock;
use selvedge_place_engine::engine::{Engine, StreamParams};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_place_engine::report::LinkReport;
use selvedge_units::{Bytes, Duration, Instant};

use super::up_media::{DELAY, FRAMES, HEADERS, Media, PAYLOAD, by_arrival, contract};
use crate::experiment::{Experiment, Kind, Params, ProgressWatch, RunError};
use crate::measure::spread;
use crate::outcome::{Cell, Outcome, Table};

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "up-media-real",
    title: "Decodable frames of two H.264 streams in real time: share of the offline bound",
    paper: "Selvedge",
    section: "docs/inside/selection.md",
    kind: Kind::Real,
    claim: "twelve cells of up-media reach their goals in real time at the median, also beside two endless loops",
    edits: &[],
    run,
};

/// Mbit/s, frames of a group, B frames in a row, and the link in hundredths of what is needed.
const CELLS: [Media; 12] = [
    Media::new(3, 25, 1, 79),
    Media::new(1, 25, 0, 96),
    Media::new(12, 25, 2, 53),
    Media::new(1, 50, 1, 79),
    Media::new(3, 50, 2, 53),
    Media::new(12, 50, 3, 96),
    Media::new(1, 50, 3, 53),
    Media::new(12, 50, 0, 79),
    Media::new(1, 250, 2, 53),
    Media::new(3, 250, 0, 79),
    Media::new(12, 250, 2, 79),
    Media::new(12, 250, 1, 96),
];
/// The cells that are enough for a quick look.
const QUICK: usize = 1;
/// How often each is played.
const ROUNDS: usize = 5;
/// RTP's header, which is part of what a packet carries here.
const RTP: usize = 12;
/// From when all is ready until the first frame is due.
const LEAD: Duration = Duration::from_millis(100);

/// What an engine made of a cell.
fn played(media: Media, streams: &[Vec<Frame>]) -> Result<LinkReport, RunError> {
    let needs = |why: std::io::Error| RunError::Needs(why.to_string());
    let sink = UdpSocket::bind("127.0.0.1:0").map_err(needs)?;
    let to = sink.local_addr().map_err(needs)?;
    let clock = Clock::new();
    let link = LinkConfig::new("up-media", media.rate(streams), Discipline::Dwcs);
    let spec = Spec { ring: 1024, pool: Bytes(16 << 20), ..Spec::new("s", to) };
    let params = |ssrc| StreamParams { spec: spec.clone().with_contract(contract()), ssrc };
    let params: Vec<_> = (0..streams.len() as u32).map(params).collect();
    let (engine, mut producers) = Engine::start(clock, &link, &params, None)
        .map_err(|why| RunError::Needs(why.to_string()))?;
    feed(&mut producers, streams, clock);
    clock.sleep_until(clock.now() + DELAY + LEAD);
    Ok(engine.stop())
}

/// Hands each frame over when it is due.
fn feed(producers: &mut [FrameProducer], streams: &[Vec<Frame>], clock: Clock) {
    let mut packet = [0; PAYLOAD as usize + RTP];
    packet[..2].copy_from_slice(&[0x80, 96]);
    let began = clock.now() + LEAD;
    for (stream, frame) in by_arrival(streams) {
        clock.sleep_until(began + frame.arrival.since(Instant::ZERO));
        let bytes = (frame.size.0 - HEADERS * u64::from(frame.packets)) as usize;
        let sizes =
            (0..frame.packets.into()).map(|n| (bytes - n * PAYLOAD as usize).min(PAYLOAD as usize));
        let packets: Vec<_> = sizes.map(|size| &packet[..RTP + size]).collect();
        let about = FrameMetadata {
            kind: frame.kind,
            referenced: frame.referenced,
            closes: false,
            refs: Some(frame.refs),
            timestamp: frame.seq.wrapping_mul(3600),
        };
        // What finds no room is dropped, and counted.
        let _ = producers[stream].enqueue(about, &packets);
    }
}

/// What the engines made of cells that are played side by side.
fn side_by_side(cells: &[(Media, [Vec<Frame>; 2])]) -> Result<Vec<LinkReport>, RunError> {
    std::thread::scope(|scope| {
        let of = |(media, streams): &(Media, [Vec<Frame>; 2])| played(*media, streams);
        let threads: Vec<_> = cells.iter().map(|cell| scope.spawn(move || of(cell))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

fn run(params: &Params, watch: &dyn ProgressWatch) -> Result<Outcome, RunError> {
    let columns = [
        "cell",
        "loops",
        "bound",
        "decodable",
        "of the bound",
        "least",
        "most",
        "link used",
        "late, p99 ms",
    ];
    let rounds = params.amount(ROUNDS, 1);
    let title = format!("Frames decodable on time, as shares of all: medians of {rounds}");
    let mut table = Table::new(title, &columns);
    let (mut count, mut short) = (0, Vec::new());
    let wanted = &CELLS[..params.amount(CELLS.len(), QUICK)];
    let streams = |media: &Media| media.streams(params.amount(FRAMES, 200));
    let cells: Vec<_> = wanted.iter().map(|media| (*media, streams(media))).collect();
    let bounds: Vec<f64> = cells.iter().map(|(media, streams)| media.bound(streams)).collect();
    for loops in [0, 2] {
        let mut reports = Vec::new();
        for round in 1..=rounds {
            let many = cells.len();
            watch.go_on(&format!("{many} cells, {loops} endless loops beside, round {round}"))?;
            reports.push(beside_loops(loops, || side_by_side(&cells))?);
        }
        for (n, ((media, streams), bound)) in cells.iter().zip(&bounds).enumerate() {
            let all = streams.iter().flatten().count() as f64;
            let of = |figure: fn(&LinkReport) -> f64| {
                spread(reports.iter().map(|round| figure(&round[n])))
            };
            let good = of(|report| {
                let good = report.streams.iter().map(|s| s.counts.totals.decodable);
                good.sum::<u64>() as f64
            });
            let [least, share, most] = good.map(|good| good / all / bound);
            count += 1;
            if share < media.goal() {
                short.push(format!("{media}, {loops} loops: {share:.4}"));
            }
            let used = of(|r| r.sent_bytes.0 as f64 / r.could_send.0.max(1) as f64)[1];
            let late = of(|report| {
                report.recent.lateness.quantile(0.99).unwrap_or_default().as_millis_f64()
            })[1];
            let figures = [*bound, share * bound, share, least, most, used, late];
            let named = [media.to_string().into(), Cell::Count(loops as u64)];
            table.row(named.into_iter().chain(figures.map(|figure| Cell::rounded(figure, 3))));
        }
    }
    let mut outcome = Outcome { tables: vec![table], ..Outcome::default() };
    outcome.claim(
        "each cell reaches 0.93 of the offline bound (0.9 with groups of 250) at the median",
        short.is_empty(),
        format!("{} of {count} below: {}", short.len(), short.join("; ")),
    );
    Ok(outcome)
}
