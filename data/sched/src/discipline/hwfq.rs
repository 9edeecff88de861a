//! `hwfq`: hierarchical weighted fair queueing, a WFQ of WFQs, after the Aurora final report, section 2, "3.4
//! QoS" (Ndiaye, MIT LCS TM 509, 1994). It is exact or, with an update period, approximated by one flat queue
//! (`flat`).
//!
//! Each node of the tree shares its service among its children, by weight, as `wfq` does. A child's frame is
//! the one that the child would send next itself. Its finish tag is the node's start tag for that child plus
//! `size / weight`, and the lowest goes first; of equal tags the earlier arrival, then the lower index. A
//! decision goes from the root down to a stream.
//!
//! Guarantee, below each node, for children that wait from the beginning, `l` being the largest frame:
//! Ndiaye's two properties. A child of weight `w` among siblings whose weights sum to `W` is sent at least `w
//! / W` of its node's service, less `l (1 + w / W)`. The service that siblings leave goes to the waiting
//! children by weight, and two of them differ by at most `l / w1 + l / w2`. Not guaranteed: `wfq`'s delay. A
//! node's WFQ may run many frames ahead of the fluid system, and delays add up over the levels (Bennett and
//! Zhang, SIGCOMM 1996, whose WF2Q+ repairs that at each node). A frame costs O(depth log children)
//! amortised; the flat queue O(log N), and O(N) each period.
//!
//! Only the first of all streams has a rank of its own; a block holds the frames that single decisions would
//! send one after the other if no other frame arrived (`drain`).

mod drain;

use alloc::vec;
use alloc::vec::Vec;

use selvedge_data_stream::Contract;
use selvedge_units::{Bytes, Instant};

use super::flat::Flat;
use super::fluid::{Fluid, Phase, Share};
use super::heap::{NONE, PairingHeaps};
use super::tree::Tree;
use super::{HeadState, Rule, tag};
use crate::record::StreamIndex;

/// Exact, or flat.
#[derive(Clone, Debug)]
pub(crate) enum Hwfq {
    Exact(Exact),
    Flat(Flat),
}

/// The tree itself. Nodes are numbered: the link 0, inner nodes as in [`Tree`], then the streams.
#[derive(Clone, Debug)]
pub(crate) struct Exact {
    tree: Tree,
    /// The number of nodes that are not streams.
    inner: u32,
    parents: Vec<u32>,
    shares: Vec<Share>,
    /// The stream whose frame a node would send next.
    first: Vec<u32>,
    heaps: PairingHeaps,
    /// For inner nodes: the fluid reference, and the heap of the children that wait.
    fluids: Vec<Fluid>,
    waiting: Vec<u32>,
    /// For streams: the head's size and arrival.
    heads: Vec<(Bytes, Instant)>,
    /// The stream whose frame has just gone, until its next head is known or it has none.
    pending: Option<u32>,
    /// The stream that was last reported as first.
    reported_first: u32,
    undo: drain::UndoLog,
}

impl Exact {
    fn new(tree: &Tree) -> Self {
        let inner = tree.nodes().len() + 1;
        let mut heaps = PairingHeaps::default();
        heaps.grow(inner);
        Self {
            tree: tree.clone(),
            inner: inner as u32,
            parents: [0].into_iter().chain(tree.nodes().iter().map(|node| node.parent)).collect(),
            shares: vec![Share::default(); inner],
            first: vec![NONE; inner],
            heaps,
            fluids: vec![Fluid::default(); inner],
            waiting: vec![NONE; inner],
            heads: Vec::new(),
            pending: None,
            reported_first: NONE,
            undo: drain::UndoLog::default(),
        }
    }

    /// Adds a waiting child to the heap of its siblings, or removes it.
    fn update_child(&mut self, child: u32, waits: bool) {
        let Self { shares, first, heads, inner, heaps, .. } = self;
        let place = |child: u32| {
            let stream = first[child as usize];
            let (_, arrival) = heads[stream as usize];
            (shares[child as usize].finish, arrival, stream)
        };
        let before = |a: u32, b: u32| place(a) < place(b);
        debug_assert!(child > 0 && (child >= *inner || !waits || first[child as usize] != NONE));
        let line = &mut self.waiting[self.parents[child as usize] as usize];
        *line = if waits {
            heaps.insert(*line, child, &before)
        } else {
            heaps.remove(*line, child, &before)
        };
    }

    /// Removes a child from the heap, if it is in.
    fn remove_child(&mut self, child: u32) {
        if self.shares[child as usize].phase == Phase::Waiting {
            self.update_child(child, false);
        }
    }

    /// Adds a child with a frame to the heap, with that frame's finish tag.
    fn insert_child(&mut self, child: u32, weight: u32) {
        let parent = self.parents[child as usize] as usize;
        self.fluids[parent].join(&mut self.shares, &mut self.heaps, child, weight);
        let (size, _) = self.heads[self.first[child as usize] as usize];
        let share = &mut self.shares[child as usize];
        share.finish = tag::after(share.start, tag::span(size, weight));
        self.update_child(child, true);
    }

    /// Chooses the stream that a node would serve, after its heap has changed.
    fn select_child(&mut self, node: u32) {
        let child = self.waiting[node as usize];
        let stream = if child == NONE { NONE } else { self.first[child as usize] };
        self.first[node as usize] = stream;
    }

    fn weight(&self, node: u32) -> u32 {
        self.tree.nodes()[node as usize - 1].weight
    }

    /// Adds a stream's head, which competes at each node up to the link.
    fn add_head(&mut self, head: &HeadState, size: Bytes, fresh: bool) {
        let stream = head.stream;
        if fresh || self.pending != Some(stream) {
            self.charge_last();
        }
        let leaf = self.inner + stream;
        self.heads[stream as usize] = (size, head.arrival);
        self.first[leaf as usize] = stream;
        let (mut node, mut weight) = (leaf, head.weight.max(1));
        loop {
            self.insert_child(node, weight);
            node = self.parents[node as usize];
            if node != 0 {
                // Removed before its next frame changes, which is part of its place in the heap.
                self.remove_child(node);
            }
            self.select_child(node);
            if node == 0 {
                break;
            }
            weight = self.weight(node);
        }
        self.charge_last();
    }

    /// Removes a stream's head: if it was sent, it is charged at each node up to the link; where it was the
    /// only one, the node stops waiting.
    fn remove_head(&mut self, stream: u32, sent: bool) {
        self.charge_last();
        let (size, _) = self.heads[stream as usize];
        let mut node = self.inner + stream;
        while node != 0 {
            self.remove_child(node);
            let parent = self.parents[node as usize];
            let share = &mut self.shares[node as usize];
            if sent {
                let work = share.charge(tag::span(size, share.weight));
                self.fluids[parent as usize].give(work);
            }
            if node < self.inner {
                self.select_child(node);
            } else {
                self.first[node as usize] = NONE;
            }
            if self.first[node as usize] == NONE {
                self.shares[node as usize].phase = Phase::Pending;
            } else {
                self.insert_child(node, self.weight(node));
            }
            node = parent;
        }
        self.select_child(0);
        self.pending = Some(stream);
    }

    /// The fate of the last frame's stream is known: the references on its path advance.
    fn charge_last(&mut self) {
        let Some(stream) = self.pending.take() else { return };
        let Self { fluids, shares, heaps, .. } = self;
        let mut node = self.inner + stream;
        while node != 0 {
            let parent = self.parents[node as usize];
            let fluid = &mut fluids[parent as usize];
            if shares[node as usize].phase == Phase::Pending {
                fluid.part(shares, heaps, node);
            }
            fluid.advance(shares, heaps);
            node = parent;
        }
    }

    fn grow(&mut self, streams: usize) {
        let nodes = self.inner as usize + streams;
        self.parents.resize(nodes, 0);
        self.shares.resize(nodes, Share::default());
        self.first.resize(nodes, NONE);
        self.heads.resize(streams, (Bytes(0), Instant::ZERO));
        self.heaps.grow(nodes);
    }

    fn reset(&mut self, stream: u32, contract: &Contract) {
        self.charge_last();
        let leaf = self.inner + stream;
        let parent = self.parents[leaf as usize] as usize;
        self.fluids[parent].forget(&mut self.shares, &mut self.heaps, leaf);
        self.parents[leaf as usize] = self.tree.place(contract.parent);
    }

    /// First the stream that was first and no longer is, then the one that is now.
    fn next_stale(&mut self) -> Option<u32> {
        let first = self.first[0];
        if self.reported_first == first {
            return None;
        }
        let before = core::mem::replace(&mut self.reported_first, NONE);
        if before != NONE {
            return Some(before);
        }
        self.reported_first = first;
        Some(first)
    }
}

impl Default for Hwfq {
    fn default() -> Self {
        Self::new(&Tree::default())
    }
}

impl Hwfq {
    pub(crate) fn new(tree: &Tree) -> Self {
        match tree.update() {
            None => Self::Exact(Exact::new(tree)),
            Some(update) => Self::Flat(Flat::new(tree, update)),
        }
    }
}

/// Rank. Exact: 1 bit, whether another stream is first; 64 bits arrival. Flat: that of `wfq`.
impl Rule for Hwfq {
    const OBSERVES: bool = true;

    fn grow(&mut self, streams: usize) {
        match self {
            Self::Exact(exact) => exact.grow(streams),
            Self::Flat(flat) => flat.grow(streams),
        }
    }

    fn reset(&mut self, stream: u32, contract: &Contract) {
        match self {
            Self::Exact(exact) => exact.reset(stream, contract),
            Self::Flat(flat) => flat.reset(stream, contract),
        }
    }

    fn observe_head(&mut self, head: &HeadState, size: Bytes, fresh: bool) {
        match self {
            Self::Exact(exact) => exact.add_head(head, size, fresh),
            Self::Flat(flat) => flat.add_head(head, size, fresh),
        }
    }

    fn rank(&self, head: &HeadState) -> u128 {
        match self {
            Self::Exact(exact) if exact.first[0] == head.stream => 0,
            Self::Exact(_) => 1 << 111 | u128::from(head.arrival.0) << 47,
            Self::Flat(flat) => flat.wfq.rank(head),
        }
    }

    fn observe_dequeued(&mut self, head: &HeadState) {
        match self {
            Self::Exact(exact) => exact.remove_head(head.stream, true),
            Self::Flat(flat) => flat.wfq.observe_dequeued(head),
        }
    }

    fn observe_dropped(&mut self, head: &HeadState) {
        match self {
            Self::Exact(exact) => exact.remove_head(head.stream, false),
            Self::Flat(flat) => flat.wfq.observe_dropped(head),
        }
    }

    fn block(&mut self, block: &mut [StreamIndex]) -> Option<usize> {
        match self {
            Self::Exact(exact) => Some(exact.block(block)),
            Self::Flat(_) => None,
        }
    }

    fn advance(&mut self, now: Instant) {
        if let Self::Flat(flat) = self {
            flat.advance(now);
        }
    }

    fn next_stale(&mut self) -> Option<u32> {
        match self {
            Self::Exact(exact) => exact.next_stale(),
            Self::Flat(_) => None,
        }
    }
}
