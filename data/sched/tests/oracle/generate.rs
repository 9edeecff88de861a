//! Traces from seeds: the committed vectors, and any others that are wanted.

use super::{Arrival, SIZE, Stream, Trace};

/// Those that look at heads alone, and those that remember what they have sent.
const BY_HEAD: [&str; 5] = ["dwcs", "dwcs98", "edf", "priority", "fifo"];
const SHARING: [&str; 6] = ["vds", "wfq", "sfq", "drr", "hwfq", "mixed"];

/// How many vectors there are; their seeds are 1 to this. The first 70 are of the first kind.
pub(crate) const VECTORS: u64 = BY_HEAD_LAST + 48;
const BY_HEAD_LAST: u64 = 70;

/// What a generated trace is meant to show. Every discipline by head gets each of them.
const THEMES: [Theme; 14] = [
    Theme { name: "backlogged", backlogged: true, ..Theme::PLAIN },
    Theme { name: "arrivals", ..Theme::PLAIN },
    Theme { name: "send-late", late: Some(true), ..Theme::PLAIN },
    Theme { name: "send-late-backlogged", late: Some(true), backlogged: true, ..Theme::PLAIN },
    Theme { name: "paced", paced: true, ..Theme::PLAIN },
    Theme { name: "paced-backlogged", paced: true, backlogged: true, ..Theme::PLAIN },
    Theme { name: "ties", ties: true, backlogged: true, ..Theme::PLAIN },
    Theme { name: "ties-arrivals", ties: true, paced: true, ..Theme::PLAIN },
    Theme { name: "no-window", window: Some(WindowKind::None), ..Theme::PLAIN },
    Theme {
        name: "lossless",
        window: Some(WindowKind::Lossless),
        backlogged: true,
        ..Theme::PLAIN
    },
    Theme { name: "many", streams: 32, ..Theme::PLAIN },
    Theme { name: "extreme", extreme: true, ..Theme::PLAIN },
    Theme {
        name: "no-window-backlogged",
        streams: 6,
        window: Some(WindowKind::None),
        backlogged: true,
        ..Theme::PLAIN
    },
    Theme {
        name: "ties-half",
        streams: 6,
        window: Some(WindowKind::Half),
        ties: true,
        backlogged: true,
        ..Theme::PLAIN
    },
];

#[derive(Clone, Copy)]
struct Theme {
    name: &'static str,
    streams: u64,
    backlogged: bool,
    /// `None`: some streams so, some so.
    late: Option<bool>,
    /// Some streams are not work-conserving.
    paced: bool,
    /// Equal periods, few windows: the last rules decide.
    ties: bool,
    window: Option<WindowKind>,
    /// Values at the ends of their ranges.
    extreme: bool,
}

#[derive(Clone, Copy)]
enum WindowKind {
    None,
    Lossless,
    /// One half, in different terms.
    Half,
}

impl Theme {
    const PLAIN: Self = Self {
        name: "plain",
        streams: 0,
        backlogged: false,
        late: None,
        paced: false,
        ties: false,
        window: None,
        extreme: false,
    };
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform enough, `low ..= high`.
    fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.next().is_multiple_of(n)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.within(0, from.len() as u64 - 1) as usize]
    }
}

/// The trace of a seed, and a name for it: `07-dwcs98-arrivals`.
pub(crate) fn trace(seed: u64) -> (String, Trace) {
    let by_head = seed <= BY_HEAD_LAST || (seed > VECTORS && seed.is_multiple_of(2));
    let (discipline, theme) = if by_head {
        let place = seed.saturating_sub(1);
        (BY_HEAD[(place % 5) as usize], THEMES[(place / 5 % THEMES.len() as u64) as usize])
    } else {
        // The first eight themes, so that each discipline meets every feature.
        let place = seed - BY_HEAD_LAST - 1;
        (SHARING[(place % 6) as usize], THEMES[(place / 6 % 8) as usize])
    };
    let mut random = Random(seed);
    let count = if theme.streams > 0 { theme.streams } else { random.within(2, 7) };
    let streams: Vec<Stream> = (0..count).map(|n| stream(&mut random, &theme, n, count)).collect();
    let ticks = if theme.extreme { 24 } else { random.within(30, 60) };
    let arrivals = (!theme.backlogged).then(|| arrivals(&mut random, &streams, ticks));
    let name = format!("{seed:02}-{discipline}-{}", theme.name);
    let mut trace = Trace { discipline, ticks, streams, arrivals, nodes: Vec::new(), remap: None };
    if !by_head {
        share(&mut random, &mut trace);
    }
    (name, trace)
}

/// Weights, sizes, classes and a tree.
fn share(random: &mut Random, trace: &mut Trace) {
    let drr = trace.discipline == "drr";
    for stream in &mut trace.streams {
        stream.weight = if drr { random.pick(&[300, 500, 1500]) } else { random.within(1, 8) };
        if trace.discipline == "mixed" {
            stream.class = random.pick(&["fair", "fair", "edf", "priority"]);
        }
    }
    for (.., size) in trace.arrivals.iter_mut().flatten() {
        if random.one_in(2) {
            *size = random.within(40, 1500);
        }
    }
    if trace.discipline == "hwfq" {
        for n in 0..random.within(1, 4) {
            trace.nodes.push((random.within(0, n) as usize, random.within(1, 8)));
        }
        for stream in &mut trace.streams {
            stream.parent = random.within(0, trace.nodes.len() as u64) as usize;
        }
        trace.remap = Some(random.within(1, 9)).filter(|_| random.one_in(2));
    }
}

fn stream(random: &mut Random, theme: &Theme, n: u64, count: u64) -> Stream {
    let id = match char::from_digit(10 + n as u32, 36) {
        Some(letter) => letter.to_string(),
        None => format!("s{n}"),
    };
    let period = match theme {
        Theme { ties: true, .. } => 4,
        Theme { extreme: true, .. } => {
            random.pick(&[1, 2, 3, u64::MAX, u64::MAX - 1, u64::MAX / 2, 1 << 53])
        }
        _ => random.within(1, 2 * count),
    };
    let window = match theme {
        Theme { window: Some(WindowKind::None), backlogged: true, .. } => (0, 0),
        Theme { window: Some(WindowKind::None), .. } if !random.one_in(3) => (0, 0),
        Theme { window: Some(WindowKind::Half), .. } => random.pick(&[(1, 2), (2, 4), (3, 6)]),
        Theme { window: Some(WindowKind::Lossless), .. } => (0, random.within(1, 4)),
        Theme { ties: true, .. } => random.pick(&[(1, 2), (2, 4), (0, 2), (0, 3)]),
        Theme { extreme: true, .. } => random.pick(&[
            (0, 65535),
            (0, 65534),
            (65535, 65535),
            (65534, 65535),
            (65533, 65534),
            (1, 65535),
            (1, 65534),
            (1, 1),
        ]),
        _ => {
            let y = random.within(1, 6);
            (random.within(0, y), y)
        }
    };
    let first_deadline = match theme {
        Theme { ties: true, .. } => None,
        Theme { extreme: true, .. } => {
            Some(random.pick(&[0, 1, 5, u64::MAX - 2, u64::MAX - 1, u64::MAX]))
                .filter(|_| random.one_in(2))
        }
        _ => Some(random.within(1, 2 * count)).filter(|_| random.one_in(3)),
    };
    let priority = if random.one_in(2) { 0 } else { random.within(0, 4) as i64 - 2 };
    Stream {
        id,
        period,
        window,
        send_late: theme.late.unwrap_or_else(|| random.one_in(2)),
        work_conserving: !theme.paced || random.one_in(3),
        first_deadline,
        priority: if theme.extreme && random.one_in(4) { -(1 << 31) } else { priority },
        ..Stream::plain("", 1)
    }
}

/// Bursts and gaps: enough frames that queues build up, and now and then run dry.
fn arrivals(random: &mut Random, streams: &[Stream], ticks: u64) -> Vec<Arrival> {
    let mut listed = Vec::new();
    for at in 0..ticks {
        for (index, stream) in streams.iter().enumerate() {
            let every = stream.period.min(8);
            if random.next().is_multiple_of(every + 1) {
                let burst = if random.one_in(6) { random.within(2, 4) } else { 1 };
                listed.extend((0..burst).map(|_| (at, index, SIZE)));
            }
        }
    }
    listed
}
