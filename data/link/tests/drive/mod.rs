//! A link under a virtual clock: synthetic groups of pictures in, fates out.

use selvedge_data_link::bound::OfflineFrame;
use selvedge_data_link::{Link, LinkParams};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::{Discipline, StreamIndex};
use selvedge_data_stream::{Contract, Fate, Frame, GroupTracker, Kind};
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

/// Bytes of a full packet on the wire.
pub(crate) const PACKET: u64 = 1250;

/// A stream to drive: its contract and all its frames.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) contract: Contract,
    pub(crate) frames: Vec<Frame>,
}

/// A small generator of repeatable noise (SplitMix64).
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// Groups of pictures `I (P B B)*` with sizes around those given.
pub(crate) fn video(
    contract: Contract,
    count: u32,
    group: u32,
    sizes: [u64; 3],
    noise: &mut Noise,
) -> Script {
    let mut tracker = GroupTracker::default();
    let offset = noise.below(contract.period.0);
    let frames = (0..count).map(|seq| {
        let kind = match seq % group {
            0 => Kind::Intra,
            n if n % 3 == 1 => Kind::Predicted,
            _ => Kind::Bidirectional,
        };
        let mean = sizes[kind as usize];
        let size = mean / 2 + noise.below(mean) + 60;
        let referenced = kind != Kind::Bidirectional;
        let refs = tracker.push(kind, referenced, kind == Kind::Intra);
        Frame {
            seq,
            kind,
            referenced,
            refs,
            packets: size.div_ceil(PACKET) as u16,
            size: Bytes(size),
            arrival: Instant(offset) + contract.period * u64::from(seq),
            deadline: None,
            payload: PayloadSpan::default(),
        }
    });
    Script { contract, frames: frames.collect() }
}

/// Frames that stand alone, of about one size.
pub(crate) fn sound(contract: Contract, count: u32, size: u64) -> Script {
    let frames = (0..count).map(|seq| Frame {
        seq,
        kind: Kind::Audio,
        referenced: false,
        refs: selvedge_data_stream::References::NONE,
        packets: size.div_ceil(PACKET) as u16,
        size: Bytes(size),
        arrival: Instant::ZERO + contract.period * u64::from(seq),
        deadline: None,
        payload: PayloadSpan::default(),
    });
    Script { contract, frames: frames.collect() }
}

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) link: Link,
    pub(crate) streams: Vec<StreamIndex>,
    /// For each stream, the fate of each frame.
    pub(crate) fates: Vec<Vec<Fate>>,
    /// Each packet: when it left, and its bytes on the wire.
    pub(crate) packets: Vec<(Instant, u64)>,
}

impl Outcome {
    /// Frames that were on time and all of whose references were: counted independently of the ledger,
    /// by the definition.
    pub(crate) fn decodable(&self, scripts: &[Script]) -> usize {
        scripts.iter().zip(&self.fates).map(|(script, fates)| closed(&script.frames, fates)).sum()
    }
}

/// By the definition, frame by frame.
pub(crate) fn closed(frames: &[Frame], fates: &[Fate]) -> usize {
    let mut good = vec![false; frames.len()];
    for (n, frame) in frames.iter().enumerate() {
        let on_time = matches!(fates[n], Fate::Sent { on_time: true, .. });
        let held = frame.refs.is_known()
            && frame.refs.of(frame.seq).all(|seq| good.get(seq as usize).copied().unwrap_or(false));
        good[n] = on_time && held;
    }
    good.into_iter().filter(|g| *g).count()
}

/// The mean rate that all scripts need.
pub(crate) fn needed(scripts: &[Script]) -> Bitrate {
    let bytes: Bytes = scripts.iter().flat_map(|s| &s.frames).map(|f| f.size).sum();
    let end = scripts.iter().flat_map(|s| &s.frames).map(|f| f.arrival).max().unwrap_or_default();
    bytes / end.since(Instant::ZERO)
}

/// A link of this rate, selecting or not.
pub(crate) fn params(discipline: Discipline, selection: bool, rate: Bitrate) -> LinkParams {
    let queue = (!selection).then(|| rate * Duration::from_millis(500));
    let (burst, catch_up, mtu) = (Bytes(1500), None, Bytes(1500));
    LinkParams { discipline, selection, rate, burst, catch_up, mtu, queue }
}

/// The frames as the bound sees them.
pub(crate) fn offline(scripts: &[Script]) -> Vec<Vec<OfflineFrame>> {
    let delay = |s: &Script| s.contract.delay.expect("the drive states delays");
    scripts
        .iter()
        .map(|s| {
            let frame = |f: &Frame| OfflineFrame {
                arrival: f.arrival,
                deadline: f.arrival + delay(s),
                size: f.size,
                refs: f.refs,
            };
            s.frames.iter().map(frame).collect()
        })
        .collect()
}

/// Runs until every frame is settled. `at` is called before each step and may turn knobs.
pub(crate) fn drive(
    params: LinkParams,
    scripts: &[Script],
    mut at: impl FnMut(Instant, &mut Link),
) -> Outcome {
    let mut link = Link::new(params);
    let streams: Vec<_> = scripts.iter().map(|s| link.add_stream(s.contract)).collect();
    let mut arrivals: Vec<(Instant, usize, Frame)> = scripts
        .iter()
        .enumerate()
        .flat_map(|(n, s)| s.frames.iter().map(move |f| (f.arrival, n, *f)))
        .collect();
    arrivals.sort_by_key(|(arrival, n, f)| (*arrival, *n, f.seq));
    let mut fates: Vec<Vec<Option<Fate>>> =
        scripts.iter().map(|s| vec![None; s.frames.len()]).collect();
    let mut packets = Vec::new();
    let mut next = 0;
    let mut now = Instant::ZERO;
    let mut done = false;
    while !done {
        at(now, &mut link);
        while let Some(&(arrival, n, frame)) = arrivals.get(next).filter(|a| a.0 <= now) {
            link.handle_frame(now.max(arrival), streams[n], frame);
            next += 1;
        }
        let arrival = arrivals.get(next).map(|a| a.0);
        if let Some(t) = link.poll_transmit(now) {
            let before = PACKET * u64::from(t.packet);
            let size = Bytes((t.frame.size.0 - before).min(PACKET));
            let departure = link.departure(size);
            if departure <= now {
                packets.push((now, size.0));
                link.sent(now, size);
            } else {
                now = arrival.map_or(departure, |a| a.min(departure));
            }
        } else {
            let wake = [arrival, link.next_event(now)].into_iter().flatten().min();
            match wake {
                Some(wake) => now = wake,
                None => done = true,
            }
        }
        while let Some(settled) = link.poll_settled() {
            let n = streams.iter().position(|s| *s == settled.stream).expect("a known stream");
            let slot = &mut fates[n][settled.frame.seq as usize];
            assert!(slot.is_none(), "frame {} of stream {n} settled twice", settled.frame.seq);
            *slot = Some(settled.fate);
        }
    }
    let fates = fates.into_iter().enumerate().map(|(n, stream)| {
        let all = stream.into_iter().enumerate();
        all.map(|(seq, f)| f.unwrap_or_else(|| panic!("stream {n} frame {seq} never settled")))
            .collect()
    });
    let fates = fates.collect();
    Outcome { link, streams, fates, packets }
}
