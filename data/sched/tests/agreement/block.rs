//! Blocks: one decision that orders many heads, against the definition (single decisions, one after
//! the other, with no other frame) and against the oracle's slots.

use std::collections::VecDeque;

use proptest::prelude::*;
use selvedge_data_sched::{Discipline, Head, Scheduler, StreamIndex, Tree, TreeNode, Verdict};
use selvedge_data_stream::{Class, Contract, Late, Window};
use selvedge_units::{Bytes, Duration, Instant};

use crate::oracle::{Stream, Trace as Plain};

/// The frames that single decisions at this instant would send if no other frame arrived.
fn drained(sched: &Scheduler, now: Instant) -> Vec<StreamIndex> {
    let mut sched = sched.clone();
    let mut order = Vec::new();
    while let Some(stream) = sched.choose(now) {
        sched.dequeue(stream);
        order.push(stream);
    }
    order
}

/// All blocks of an instant: each is the front of the whole, and choosing it changes nothing.
fn check(sched: &mut Scheduler, now: Instant, lens: &[usize]) {
    let expected = drained(sched, now);
    for &len in lens {
        let mut block = vec![StreamIndex(u32::MAX); len];
        let found = sched.choose_block(&mut block);
        assert_eq!(block[..found], expected[..len.min(expected.len())], "of {len}");
        assert!(block[found..].iter().all(|place| place.0 == u32::MAX));
    }
    assert_eq!(drained(sched, now), expected, "asking has changed it");
}

#[derive(Clone, Debug)]
struct Spec {
    weight: u32,
    parent: usize,
    priority: i32,
    class: Class,
    period: u64,
    work_conserving: bool,
    window: (u16, u16),
}

fn spec() -> impl Strategy<Value = Spec> {
    let weight = prop_oneof![6 => 1..9_u32, 1 => Just(1500), 1 => Just(u32::MAX)];
    let class = prop::sample::select(&Class::ALL[..]);
    let window = prop::sample::select(&[(0, 0), (0, 2), (1, 2), (2, 4), (1, 3)][..]);
    (weight, any::<usize>(), -2..3, class, 1..40_u64, prop::bool::weighted(0.7), window).prop_map(
        |(weight, parent, priority, class, period, work_conserving, window)| Spec {
            weight,
            parent,
            priority,
            class,
            period,
            work_conserving,
            window,
        },
    )
}

fn contract(spec: &Spec, nodes: usize) -> Contract {
    let window = Window { lose: spec.window.0, of: spec.window.1 };
    Contract {
        weight: spec.weight,
        parent: (spec.parent % (nodes + 1)) as u32,
        priority: spec.priority,
        class: spec.class,
        work_conserving: spec.work_conserving,
        late: Late::Drop,
        ..Contract::new(Duration(spec.period), window)
    }
}

/// Nodes, parents first.
fn tree() -> impl Strategy<Value = Vec<TreeNode>> {
    let weight = prop_oneof![6 => 1..9_u32, 1 => Just(u32::MAX)];
    prop::collection::vec((any::<usize>(), weight), 0..8).prop_map(|nodes| {
        let place = |(n, (parent, weight)): (usize, (usize, u32))| TreeNode {
            parent: (parent % (n + 1)) as u32,
            weight,
        };
        nodes.into_iter().enumerate().map(place).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    /// At every slot of a random run, with frames lost and streams removed on the way.
    #[test]
    fn a_block_is_what_single_decisions_would_send(
        discipline in prop_oneof![
            1 => prop::sample::select(&Discipline::ALL[..]),
            2 => Just(Discipline::Hwfq),
        ],
        nodes in tree(),
        remap in prop::option::weighted(0.2, 1..9_u64),
        specs in prop::collection::vec(spec(), 1..14),
        frames in prop::collection::vec((0..30_u64, any::<usize>(), 0..2000_u64), 0..90),
        removed in (0..30_u64, any::<usize>()),
    ) {
        let tree = Tree::new(nodes.clone(), remap.map(Duration)).expect("a tree");
        let mut sched = match discipline {
            Discipline::Hwfq => Scheduler::with_tree(&tree),
            other => Scheduler::new(other),
        };
        let mut queues: Vec<Option<VecDeque<Head>>> = Vec::new();
        for spec in &specs {
            sched.add(&contract(spec, nodes.len()));
            queues.push(Some(VecDeque::new()));
        }
        for now in (0..30).map(Instant) {
            if now.0 == removed.0 {
                let gone = removed.1 % specs.len();
                sched.remove(StreamIndex(gone as u32));
                queues[gone] = None;
            }
            for &(_, stream, size) in frames.iter().filter(|(at, ..)| *at == now.0) {
                let head = Head { size: Bytes(size), ..Head::arrived(now) };
                if let Some(queue) = &mut queues[stream % specs.len()] {
                    queue.push_back(head);
                }
            }
            enqueue_next_head(&mut sched, &mut queues);
            while let Some(expiry) = sched.poll_expired(now) {
                assert_ne!(expiry.verdict, Verdict::Kept { deadline: Instant::MAX });
                enqueue_next_head(&mut sched, &mut queues);
            }
            check(&mut sched, now, &[0, 1, 2, 3, 5, 64]);
            if let Some(stream) = sched.choose(now) {
                sched.dequeue(stream);
                enqueue_next_head(&mut sched, &mut queues);
            }
        }
    }

    /// The whole block against the oracle: a busy link, then one more frame of some streams at the very
    /// instant when all earlier ones have been sent. The block is the order in which the oracle sends from
    /// then on.
    #[test]
    fn a_block_of_a_tree_is_the_oracles(
        nodes in tree(),
        specs in prop::collection::vec(spec(), 1..10),
        earlier in prop::collection::vec((any::<usize>(), 1..2000_u64), 0..40),
        last in prop::collection::vec((any::<bool>(), 1..2000_u64), 10),
    ) {
        let busy = earlier.len() as u64;
        let last: Vec<(usize, u64)> = last
            .iter()
            .enumerate()
            .take(specs.len())
            .filter_map(|(n, &(comes, size))| comes.then_some((n, size)))
            .collect();
        let mut arrivals: Vec<(u64, usize, u64)> =
            earlier.iter().map(|&(n, size)| (0, n % specs.len(), size)).collect();
        arrivals.extend(last.iter().map(|&(n, size)| (busy, n, size)));
        let streams = specs.iter().enumerate().map(|(n, spec)| Stream {
            weight: spec.weight.into(),
            parent: spec.parent % (nodes.len() + 1),
            send_late: true,
            ..Stream::plain(format!("s{n}"), 1 << 40)
        });
        let plain = Plain {
            discipline: "hwfq",
            ticks: busy + last.len() as u64,
            streams: streams.collect(),
            arrivals: Some(arrivals.clone()),
            nodes: nodes.iter().map(|n| (n.parent as usize, n.weight.into())).collect(),
            remap: None,
        };
        let sent = |line: &str| -> Option<(u64, u32)> {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let stream = value["stream"].as_str()?.strip_prefix('s')?.parse().ok()?;
            Some((value["t"].as_u64()?, stream))
        };
        let expected: Vec<StreamIndex> = plain
            .expected()
            .lines()
            .filter_map(sent)
            .filter(|&(t, _)| t >= busy)
            .map(|(_, stream)| StreamIndex(stream))
            .collect();

        let mut sched = Scheduler::with_tree(&Tree::new(nodes.clone(), None).expect("a tree"));
        let mut queues: Vec<Option<VecDeque<Head>>> = Vec::new();
        for spec in &specs {
            let plain = Contract { late: Late::Send, work_conserving: true, ..contract(spec, nodes.len()) };
            sched.add(&Contract { period: Duration(1 << 40), ..plain });
            queues.push(Some(VecDeque::new()));
        }
        for now in 0..=busy {
            for &(_, n, size) in arrivals.iter().filter(|(at, ..)| *at == now) {
                let head = Head { size: Bytes(size), ..Head::arrived(Instant(now)) };
                queues[n].as_mut().expect("none is removed").push_back(head);
                enqueue_next_head(&mut sched, &mut queues);
            }
            prop_assert_eq!(sched.poll_expired(Instant(now)), None);
            if now < busy {
                let stream = sched.choose(Instant(now)).expect("busy");
                sched.dequeue(stream);
                enqueue_next_head(&mut sched, &mut queues);
            }
        }
        let mut block = vec![StreamIndex(0); specs.len()];
        let len = sched.choose_block(&mut block);
        prop_assert_eq!(&block[..len], &expected[..]);
    }
}

fn enqueue_next_head(sched: &mut Scheduler, queues: &mut [Option<VecDeque<Head>>]) {
    for (stream, queue) in (0..).map(StreamIndex).zip(queues) {
        if let Some(queue) = queue
            && sched.head_deadline(stream).is_none()
            && let Some(head) = queue.pop_front()
        {
            sched.enqueue_head(stream, head);
        }
    }
}

/// The order of arrival is wrong here: the node has the first and the last arrival, and half of the link.
#[test]
fn a_node_takes_turns_within_a_block() {
    let tree = Tree::new(vec![TreeNode { parent: 0, weight: 2 }], None).expect("a tree");
    let mut sched = Scheduler::with_tree(&tree);
    let long = Contract::new(Duration(1000), Window::NONE);
    for (parent, arrival) in [(1, 0), (1, 1), (0, 2), (0, 3)] {
        let stream = sched.add(&Contract { parent, ..long });
        sched.enqueue_head(stream, Head { size: Bytes(1000), ..Head::arrived(Instant(arrival)) });
    }
    assert_eq!(sched.poll_expired(Instant(5)), None);
    let mut block = [StreamIndex(9); 5];
    assert_eq!(sched.choose_block(&mut block), 4);
    // Finish tags: the node 500, 1000; the others 1000 each. Of equal ones the earlier arrival.
    assert_eq!(block[..4], [0, 1, 2, 3].map(StreamIndex));
    let light = Tree::new(vec![TreeNode { parent: 0, weight: 1 }], None).expect("a tree");
    let mut sched = Scheduler::with_tree(&light);
    for (parent, arrival) in [(1, 0), (1, 1), (0, 2), (0, 3)] {
        let stream = sched.add(&Contract { parent, ..long });
        sched.enqueue_head(stream, Head { size: Bytes(1000), ..Head::arrived(Instant(arrival)) });
    }
    assert_eq!(sched.choose_block(&mut block), 4);
    // The node's second frame ends at 2000, after both others.
    assert_eq!(block[..4], [0, 2, 3, 1].map(StreamIndex));
}
