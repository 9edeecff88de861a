//! The offline bound against exhaustive search on small cases: never below the best schedule, and
//! seldom far above it.

use selvedge_data_link::bound::{OfflineFrame, decodable_bound, decodable_bound_over};
use selvedge_data_stream::References;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};

mod noise {
    pub(crate) struct Noise(pub(crate) u64);
    impl Noise {
        pub(crate) fn below(&mut self, n: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % n.max(1)
        }
    }
}
use noise::Noise;

const RATE: Bitrate = Bitrate(8_000_000); // a byte a microsecond

/// Whether all chosen frames can be sent by their deadlines: earliest deadline first with
/// pre-emption is optimal on one link, so simulating it decides.
fn fits(chosen: &[OfflineFrame]) -> bool {
    let mut left: Vec<u64> = chosen.iter().map(|f| f.size.0 * 1_000).collect();
    let mut now = 0;
    loop {
        let waiting = |n: &usize| left[*n] > 0 && chosen[*n].arrival.0 <= now;
        let next = (0..chosen.len()).filter(waiting).min_by_key(|&n| chosen[n].deadline);
        let coming = (0..chosen.len()).filter(|&n| chosen[n].arrival.0 > now);
        let coming = coming.map(|n| chosen[n].arrival.0).min();
        let Some(n) = next else {
            match coming {
                Some(at) => now = at,
                None => return true,
            }
            continue;
        };
        let run = coming.map_or(left[n], |at| left[n].min(at - now));
        now += run;
        left[n] -= run;
        if left[n] == 0 && now > chosen[n].deadline.0 {
            return false;
        }
    }
}

/// The most frames that any schedule can make decodable.
fn exhaustive(streams: &[Vec<OfflineFrame>]) -> usize {
    let all: Vec<_> = streams
        .iter()
        .enumerate()
        .flat_map(|(s, frames)| frames.iter().enumerate().map(move |(n, f)| (s, n, *f)))
        .collect();
    let closed = |set: u32| {
        all.iter().enumerate().all(|(i, &(_, _, f))| {
            // Frames of a stream lie one after the other.
            let mut needed = f.refs.distances().map(|back| i - usize::from(back));
            set & (1 << i) == 0 || needed.all(|need| set & (1 << need) != 0)
        })
    };
    let chosen = |set: u32| -> Vec<OfflineFrame> {
        all.iter().enumerate().filter(|(i, _)| set & (1 << i) != 0).map(|(_, x)| x.2).collect()
    };
    let mut best = 0;
    for set in 0..1_u32 << all.len() {
        let count = set.count_ones() as usize;
        if count > best && closed(set) && fits(&chosen(set)) {
            best = count;
        }
    }
    best
}

fn random_case(seed: u64) -> Vec<Vec<OfflineFrame>> {
    let mut noise = Noise(seed);
    let streams = 1 + noise.below(3);
    (0..streams)
        .map(|_| {
            let patience = 60_000_000 + noise.below(200_000_000);
            let mut last = None;
            (0..1 + noise.below(4) as usize)
                .map(|n| {
                    let arrival = Instant(n as u64 * 40_000_000 + noise.below(20_000_000));
                    let intra = n == 0 || noise.below(4) == 0;
                    let anchor = intra || noise.below(2) == 0;
                    let size = 1_000 * (1 + noise.below(if intra { 120 } else { 40 }));
                    // Often the last referenced one, and now and then one before it too.
                    let near = last.filter(|_| !intra).map_or(0, |to: usize| (n - to) as u32);
                    let more = near > 0 && noise.below(6) == 0;
                    let far = if more { noise.below(n as u64 + 1) as u32 } else { 0 };
                    if anchor {
                        last = Some(n);
                    }
                    let deadline = Instant(arrival.0 + patience);
                    let refs = References::to([near, far]);
                    OfflineFrame { arrival, deadline, size: Bytes(size), refs }
                })
                .collect()
        })
        .collect()
}

#[test]
fn the_bound_holds_and_is_tight_on_small_cases() {
    let (mut possible, mut bounded, mut cases) = (0.0, 0.0, 0);
    for seed in 0..400 {
        let case = random_case(seed);
        let best = exhaustive(&case) as f64;
        let bound = decodable_bound(&case, RATE, Bytes(0)).decodable;
        assert!(bound >= best - 1e-9, "seed {seed}: {best} is possible, the bound says {bound}");
        possible += best;
        bounded += bound;
        cases += 1;
    }
    let ratio = possible / bounded;
    println!("{cases} cases: possible {possible}, bounded by {bounded:.1}, ratio {ratio:.3}");
    assert!(ratio > 0.96, "over {cases} cases the possible is only {ratio} of the bound");
}

/// By when a link of a constant rate has carried what one has that alternates, each 50 ms, between a half and three
/// halves of it.
fn carried_by(at: Instant) -> Instant {
    let phase = at.0 % 100_000_000;
    let rest = phase.saturating_sub(50_000_000);
    Instant(at.0 - phase + (phase - rest) / 2 + rest * 3 / 2)
}

#[test]
fn the_bound_of_a_changing_rate_holds_and_is_tight() {
    let (mut possible, mut bounded) = (0.0, 0.0);
    for seed in 0..400 {
        let case = random_case(seed);
        let mut steady = case.clone();
        for frame in steady.iter_mut().flatten() {
            frame.arrival = carried_by(frame.arrival);
            frame.deadline = carried_by(frame.deadline);
        }
        let best = exhaustive(&steady) as f64;
        let carries = |from, to| RATE * carried_by(to).since(carried_by(from));
        let bound = decodable_bound_over(&case, carries, Bytes(0)).decodable;
        assert!(bound >= best - 1e-9, "seed {seed}: {best} is possible, the bound says {bound}");
        possible += best;
        bounded += bound;
    }
    let ratio = possible / bounded;
    assert!(ratio > 0.96, "the possible is only {ratio} of the bound");
}

/// Five seconds of twice the load that the link carries, then five without load, and so on: each time
/// everything that can be sent from the first arrival to the last deadline counts.
#[test]
fn the_bound_is_tight_where_the_load_comes_and_goes() {
    let (times, count, period, delay) = (10, 126, 40_000_000, 1_000_000_000);
    let size = RATE * Duration(2 * period);
    let frame = |n: u64| {
        let arrival = Instant(n / count * 10_000_000_000 + n % count * period);
        let deadline = Instant(arrival.0 + delay);
        OfflineFrame { arrival, deadline, size, refs: References::NONE }
    };
    let stream: Vec<_> = (0..times * count).map(frame).collect();
    let possible = times * (((count - 1) * period + delay) / (2 * period));
    let bound = decodable_bound(&[stream], RATE, Bytes(0)).decodable;
    let above = bound / possible as f64;
    assert!((1.0..1.004).contains(&above), "{possible} are possible, the bound says {bound}");
}

#[test]
fn without_a_limit_everything_is_possible() {
    let case = random_case(5);
    let frames = case.iter().map(Vec::len).sum::<usize>();
    let bound = decodable_bound(&case, Bitrate::from_mbps(10_000), Bytes(0));
    assert_eq!((bound.decodable, bound.frames), (frames as f64, frames));
    assert_eq!(decodable_bound(&[], RATE, Bytes(0)).share(), 1.0);
}
