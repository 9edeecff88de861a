//! `hwfq`: Ndiaye's two properties (Aurora final report, section 2, "3.4 QoS"), below each node of random
//! trees, and the error of the flat approximation.

use proptest::prelude::*;
use selvedge_data_sched::Discipline;

use crate::run::{Run, Stream, run};

const LARGEST: i128 = 1500;

/// A tree, its streams, and each node's service.
#[derive(Clone, Debug)]
struct Shared {
    /// Inner nodes: parent and weight; number 0 is the link.
    nodes: Vec<(u32, u32)>,
    streams: Vec<Stream>,
}

impl Shared {
    /// Inner nodes from 0, then the streams: the parent and the weight.
    fn member(&self, n: usize) -> (usize, i128) {
        if n <= self.nodes.len() {
            let (parent, weight) = self.nodes[n - 1];
            (parent as usize, i128::from(weight))
        } else {
            let stream = self.streams[n - self.nodes.len() - 1];
            (stream.parent as usize, i128::from(stream.weight))
        }
    }

    fn members(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.nodes.len() + self.streams.len()
    }

    fn is_above(&self, node: usize, stream: usize) -> bool {
        let mut at = self.nodes.len() + 1 + stream;
        while at != 0 && at != node {
            at = self.member(at).0;
        }
        at == node
    }

    fn waits(&self, run: &Run, slot: usize, node: usize) -> bool {
        let waits = &run.slots[slot].waits;
        (0..waits.len()).any(|n| waits[n] && self.is_above(node, n))
    }

    /// Bytes sent from below a node in a slot.
    fn sent(&self, run: &Run, slot: usize, node: usize) -> i128 {
        let slot = &run.slots[slot];
        let below = slot.sent.is_some_and(|n| self.is_above(node, n));
        if below { i128::from(slot.size) } else { 0 }
    }

    fn run(&self, arrivals: &[(u64, usize, u64)], remap: Option<u64>, ticks: u64) -> Run {
        run(Discipline::Hwfq, &self.streams, arrivals, &self.nodes, remap, ticks)
    }
}

fn shared() -> impl Strategy<Value = Shared> {
    let nodes = prop::collection::vec((0..100_u32, 1..9_u32), 0..5);
    let streams = prop::collection::vec((0..100_u32, 1..9_u64), 2..8);
    (nodes, streams).prop_map(|(mut nodes, streams)| {
        for (n, node) in (1..).zip(&mut nodes) {
            node.0 %= n;
        }
        let place = |(parent, weight): (u32, u64)| {
            let parent = parent % (nodes.len() as u32 + 1);
            Stream { parent, ..Stream::weighing(weight) }
        };
        Shared { streams: streams.into_iter().map(place).collect(), nodes }
    })
}

/// Some streams wait all the time from the beginning, some come and go.
fn arrivals() -> impl Strategy<Value = Vec<(u64, usize, u64)>> {
    let size = || prop_oneof![Just(1000_u64), 1..=1500_u64];
    let long = prop::collection::vec(size(), 120).prop_map(|sizes| (0_u64, sizes));
    let burst = (0..80_u64, prop::collection::vec(size(), 1..15));
    let queue = prop_oneof![long.prop_map(|one| vec![one]), prop::collection::vec(burst, 0..5),];
    prop::collection::vec(queue, 8).prop_map(|queues| {
        let mut all = Vec::new();
        for (n, bursts) in queues.into_iter().enumerate() {
            for (at, sizes) in bursts {
                all.extend(sizes.into_iter().map(|size| (at, n, size)));
            }
        }
        all.sort_by_key(|arrival| arrival.0);
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// "At any active period of the link, each active customer is guaranteed a share of the link
    /// no less than the portion that it owns."
    #[test]
    fn who_waits_is_sent_what_it_owns(shared in shared(), arrivals in arrivals()) {
        let arrivals: Vec<_> =
            arrivals.into_iter().filter(|arrival| arrival.1 < shared.streams.len()).collect();
        let run = shared.run(&arrivals, None, 120);
        for member in shared.members() {
            let (parent, weight) = shared.member(member);
            let siblings: Vec<_> =
                shared.members().filter(|&other| shared.member(other).0 == parent).collect();
            let sum: i128 = siblings.iter().map(|&other| shared.member(other).1).sum();
            let (mut mine, mut all) = (0, 0);
            for slot in 0..run.slots.len() {
                if !shared.waits(&run, slot, member) {
                    break;
                }
                mine += shared.sent(&run, slot, member);
                all += shared.sent(&run, slot, parent);
                let owned = weight * all;
                prop_assert!(
                    mine * sum + LARGEST * (sum + weight) >= owned,
                    "{member} at {slot}: {mine} of {all}, owning {weight} of {sum}"
                );
            }
        }
    }

    /// "The amount of link resource that a sub-service is not using is distributed to all its
    /// sibling sub-services that need more [...] proportionally to the rates of the sub-services."
    #[test]
    fn what_siblings_leave_goes_by_weight(shared in shared(), arrivals in arrivals()) {
        let arrivals: Vec<_> =
            arrivals.into_iter().filter(|arrival| arrival.1 < shared.streams.len()).collect();
        let run = shared.run(&arrivals, None, 120);
        for a in shared.members() {
            for b in shared.members().filter(|&b| b > a) {
                let ((parent, wa), (other, wb)) = (shared.member(a), shared.member(b));
                if parent != other {
                    continue;
                }
                let (mut apart, mut low, mut high): (i128, i128, i128) = (0, 0, 0);
                for slot in 0..run.slots.len() {
                    if !shared.waits(&run, slot, a) || !shared.waits(&run, slot, b) {
                        break;
                    }
                    apart += shared.sent(&run, slot, a) * wb - shared.sent(&run, slot, b) * wa;
                    (low, high) = (low.min(apart), high.max(apart));
                }
                prop_assert!(high - low <= LARGEST * (wa + wb), "{a} and {b}: {}", high - low);
            }
        }
    }
}

/// Bytes that the flat approximation gave to other streams than the tree did, by the end of each
/// slot, on average, as a fraction of a frame.
fn error(shared: &Shared, arrivals: &[(u64, usize, u64)], update: u64, ticks: u64) -> f64 {
    let [exact, flat] = [None, Some(update)].map(|remap| shared.run(arrivals, remap, ticks));
    let mut ahead = vec![0_i64; shared.streams.len()];
    let mut sum = 0.0;
    for (a, b) in exact.slots.iter().zip(&flat.slots) {
        for (slot, sign) in [(a, 1), (b, -1)] {
            if let Some(n) = slot.sent {
                ahead[n] += sign * slot.size as i64;
            }
        }
        sum += ahead.iter().map(|n| n.abs()).sum::<i64>() as f64 / 2.0;
    }
    sum / ticks as f64 / 1000.0
}

/// Customers with services that begin and end: the case for the shorter periods.
fn changing(seed: u64) -> (Shared, Vec<(u64, usize, u64)>) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    };
    let nodes: Vec<(u32, u32)> = (0..3).map(|_| (0, 1 + random(4) as u32)).collect();
    let streams: Vec<Stream> =
        (0..9).map(|n| Stream { parent: 1 + n / 3, ..Stream::weighing(1 + random(4)) }).collect();
    let mut arrivals = Vec::new();
    for n in 0..streams.len() {
        let mut at = random(800);
        while at < 6000 {
            let frames = 100 + random(200);
            arrivals.extend((0..frames).map(|_| (at, n, 1000)));
            at += 1000 + random(1000);
        }
    }
    arrivals.sort_by_key(|arrival| arrival.0);
    (Shared { nodes, streams }, arrivals)
}

#[test]
fn the_flat_approximation_converges_as_its_period_shrinks() {
    let mean = |update: u64| {
        let errors = (1..=10).map(|seed| {
            let (shared, arrivals) = changing(seed);
            error(&shared, &arrivals, update, 6000)
        });
        errors.sum::<f64>() / 10.0
    };
    let errors = [1, 10, 100, 1000].map(mean);
    println!("frames elsewhere, by update period 1, 10, 100, 1000: {errors:?}");
    assert!(errors.is_sorted(), "{errors:?}");
    // A frame for each of the nine streams.
    assert!(errors[0] < 9.0 && 10.0 * errors[0] < errors[3], "{errors:?}");
}
