//! Bursts over frames: where one is granted, how it changes the order, and that no deadline is missed
//! that single decisions would keep.

#[expect(dead_code, reason = "shared with the tests of the link, which use all of it")]
mod drive;

use drive::Noise;
use selvedge_data_link::{Link, LinkParams};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::{Discipline, StreamIndex};
use selvedge_data_stream::{Contract, Fate, Frame, Kind, References, Window, Windows};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

const RATE: Bitrate = Bitrate::from_mbps(8);
const SINGLE: Bytes = Bytes(1500);

fn link(burst: Bytes, discipline: Discipline) -> Link {
    let (rate, mtu) = (RATE, Bytes(1500));
    let (catch_up, queue) = (None, None);
    Link::new(LinkParams { discipline, selection: false, rate, burst, catch_up, mtu, queue })
}

fn frame(seq: u32, size: u64, arrival: Instant, deadline: Instant) -> Frame {
    Frame {
        seq,
        kind: Kind::Still,
        referenced: false,
        refs: References::NONE,
        packets: 1,
        size: Bytes(size),
        arrival,
        deadline: Some(deadline),
        payload: PayloadSpan::default(),
    }
}

fn contract() -> Contract {
    Contract::new(Duration::from_millis(40), Window::NONE)
}

/// Two streams of four frames each, due in turns from `first` on, 10 us apart: the order in which
/// they go.
fn order(burst: Bytes, discipline: Discipline, first: Instant) -> Vec<u32> {
    let mut link = link(burst, discipline);
    let streams = [0, 1].map(|_| link.add_stream(contract()));
    for seq in 0..4 {
        for (n, stream) in streams.into_iter().enumerate() {
            let deadline = first + Duration::from_micros(10) * (2 * u64::from(seq) + n as u64);
            link.handle_frame(Instant::ZERO, stream, frame(seq, 1000, Instant::ZERO, deadline));
        }
    }
    let mut order = Vec::new();
    let mut now = Instant::ZERO;
    while let Some(next) = link.poll_transmit(now) {
        order.push(next.stream.0);
        link.sent(now, next.frame.size);
        now += next.frame.size / RATE;
    }
    order
}

#[test]
fn one_decision_covers_what_the_burst_holds_of_a_stream() {
    let late = Instant::ZERO + Duration::from_secs(1);
    assert_eq!(order(SINGLE, Discipline::Dwcs, late), [0, 1, 0, 1, 0, 1, 0, 1]);
    assert_eq!(order(Bytes(9_000), Discipline::Dwcs, late), [0, 0, 0, 0, 1, 1, 1, 1]);
    // The burst ends after three frames; the other stream's come first then.
    assert_eq!(order(Bytes(3_500), Discipline::Dwcs, late), [0, 0, 0, 1, 1, 1, 0, 1]);
    assert_eq!(order(Bytes(9_000), Discipline::Priority, late), [0, 0, 0, 0, 1, 1, 1, 1]);
}

#[test]
fn no_burst_where_a_deadline_is_near() {
    // Eight frames take 8 ms.
    let near = Instant::ZERO + Duration::from_millis(8);
    assert_eq!(order(Bytes(9_000), Discipline::Dwcs, near), [0, 1, 0, 1, 0, 1, 0, 1]);
}

#[test]
fn an_urgent_arrival_ends_a_burst() {
    let mut link = link(Bytes(9_000), Discipline::Dwcs);
    let [a, b] = [0, 1].map(|_| link.add_stream(contract()));
    let due = Instant::ZERO + Duration::from_secs(1);
    for seq in 0..4 {
        link.handle_frame(Instant::ZERO, a, frame(seq, 1000, Instant::ZERO, due));
    }
    let send = |link: &mut Link| {
        let next = link.poll_transmit(Instant::ZERO).expect("frames wait");
        link.sent(Instant::ZERO, next.frame.size);
        next.stream
    };
    assert_eq!(send(&mut link), a);
    let soon = Instant::ZERO + Duration::from_millis(3);
    link.handle_frame(Instant::ZERO, b, frame(0, 1000, Instant::ZERO, soon));
    assert_eq!([send(&mut link), send(&mut link)], [b, a]);
}

/// Sends frame after frame, each for as long as it takes; returns their order, and which were on time.
fn sent(burst: Bytes, arrivals: &[(StreamIndex, Frame)]) -> Vec<(StreamIndex, u32, bool)> {
    let mut link = link(burst, Discipline::Dwcs);
    for _ in 0..4 {
        link.add_stream(contract());
    }
    for (stream, frame) in arrivals {
        link.handle_frame(Instant::ZERO, *stream, *frame);
    }
    let (mut now, mut sent) = (Instant::ZERO, Vec::new());
    while let Some(chosen) = link.poll_transmit(now) {
        now += chosen.frame.size / RATE;
        link.sent(now, chosen.frame.size);
        while let Some(settled) = link.poll_settled() {
            if let Fate::Sent { on_time, .. } = settled.fate {
                sent.push((settled.stream, settled.frame.seq, on_time));
            }
        }
    }
    sent
}

fn on_time(burst: Bytes, arrivals: &[(StreamIndex, Frame)]) -> Vec<(StreamIndex, u32)> {
    let kept = sent(burst, arrivals).into_iter().filter(|(.., on_time)| *on_time);
    kept.map(|(stream, seq, _)| (stream, seq)).collect()
}

fn sent_order(burst: Bytes, arrivals: &[(StreamIndex, Frame)]) -> Vec<StreamIndex> {
    sent(burst, arrivals).into_iter().map(|(stream, ..)| stream).collect()
}

#[test]
fn every_deadline_that_single_decisions_keep_is_kept() {
    let mut noise = Noise(7);
    let (mut differ, mut lost) = (0, 0);
    for set in 0..600 {
        // All wait from the start; some sets fit, some do not, and in half of them deadlines go
        // back within a stream.
        let frames = 8 + noise.below(40);
        let first = Duration::from_micros(frames * (800 + noise.below(700)));
        let spread = 1 + noise.below(2 * frames) * 1000;
        let mut due: Vec<Instant> = (0..frames)
            .map(|_| Instant::ZERO + first + Duration::from_micros(noise.below(spread)))
            .collect();
        if set % 2 == 0 {
            due.sort();
        }
        let mut seqs = [0; 4];
        let arrivals: Vec<_> = due
            .into_iter()
            .map(|due| {
                let n = noise.below(4) as usize;
                let seq = seqs[n];
                seqs[n] += 1;
                (StreamIndex(n as u32), frame(seq, 1000, Instant::ZERO, due))
            })
            .collect();
        let single = on_time(SINGLE, &arrivals);
        let bursts = on_time(Bytes(6_000), &arrivals);
        let missing = single.iter().filter(|kept| !bursts.contains(kept)).count();
        assert_eq!(missing, 0, "set {set}");
        differ += usize::from(sent_order(SINGLE, &arrivals) != sent_order(Bytes(6_000), &arrivals));
        lost += arrivals.len() - single.len();
    }
    assert!(lost > 0 && differ > 50, "{lost} lost, {differ} differ: the sets show nothing");
}

/// In every state that a link reaches: a run, against the same frames one after the other.
#[test]
fn a_run_is_its_frames_one_by_one() {
    let mut noise = Noise(11);
    let mut longest = 0;
    for set in 0..200 {
        let mut link = link(Bytes(1_500 + 1_500 * noise.below(8)), Discipline::Dwcs);
        for n in 0..4 {
            // Of some streams each frame must be looked at.
            let delay = (n == 1).then_some(Duration::from_millis(80));
            let windows = if n == 2 {
                Windows::PerKind([Window { lose: 1, of: 3 }; Kind::COUNT])
            } else {
                Windows::Whole(Window { lose: 1, of: 2 + n })
            };
            link.add_stream(Contract { windows, delay, ..contract() });
        }
        let (mut now, mut seqs) = (Instant::ZERO, [0; 4]);
        for _ in 0..20 {
            let n = noise.below(4) as usize;
            let first = seqs[n];
            seqs[n] += noise.below(9) as u32;
            let stated = noise.below(4) > 0;
            let new: Vec<Frame> = (first..seqs[n])
                .map(|seq| {
                    let due = now + Duration::from_millis(20 + 4 * u64::from(seq - first));
                    let frame = frame(seq, 900 + noise.below(200), now, due);
                    Frame { deadline: frame.deadline.filter(|_| stated), ..frame }
                })
                .collect();
            let mut single = link.clone();
            new.iter().for_each(|frame| single.handle_frame(now, StreamIndex(n as u32), *frame));
            let mut coming = new.iter();
            link.handle_frames(now, StreamIndex(n as u32), || coming.next().copied());
            let Some(next) = link.poll_transmit(now) else { continue };
            let run = link.run(now, 64);
            longest = longest.max(run.frames);
            let frames: Vec<Frame> =
                (0..run.frames).map(|n| link.frame_of_run(n).unwrap().0).collect();
            assert_eq!(run.size, frames.iter().fold(Bytes(0), |sum, frame| sum + frame.size));
            for frame in &frames {
                let chosen = single.poll_transmit(now).expect("what a run holds may go");
                assert_eq!((chosen.stream, chosen.frame), (next.stream, *frame), "set {set}");
                single.sent(now, frame.size);
            }
            link.sent_frames(now, run.frames, 1, run.size);
            let settled = |link: &mut Link| std::iter::from_fn(|| link.poll_settled()).collect();
            let (all, each): (Vec<_>, Vec<_>) = (settled(&mut link), settled(&mut single));
            assert_eq!(all, each, "set {set}");
            assert_eq!(link.backlog(), single.backlog());
            for s in (0..4).map(StreamIndex) {
                assert_eq!(link.ledger(s).unwrap().totals(), single.ledger(s).unwrap().totals());
                assert_eq!(link.scheduler().counters(s), single.scheduler().counters(s));
            }
            now += run.size / RATE;
            assert_eq!(link.clone().poll_transmit(now), single.poll_transmit(now), "set {set}");
        }
    }
    assert!(longest >= 6, "the longest run had {longest} frames");
}
