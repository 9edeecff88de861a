//! The flat approximation of `hwfq`: one `wfq` of all streams, each with the weight that the tree maps to it,
//! mapped anew periodically. It is Ndiaye's algorithm as described in the Aurora final report, section 2,
//! "3.4 QoS".
//!
//! A mapping has two passes. Children before parents, it finds the nodes that have a waiting stream. Parents
//! before children, it gives each of those its share of its parent's rate, by weight among the active ones. A
//! stream that does not wait gets the share that it owns with all streams active, so that it has at least
//! that when it returns. The first instant at or after each multiple of the period maps; a mapped weight
//! holds from a stream's next frame on.
//!
//! Rates are fractions of 2^62 rounded down, and a weight is the upper 32 bits of one, at least 1, so shares
//! are exact to 2^-32 of the link.

use alloc::vec;
use alloc::vec::Vec;

use selvedge_data_stream::Contract;
use selvedge_units::{Bytes, Duration, Instant};

use super::tree::Tree;
use super::wfq::Wfq;
use super::{HeadState, Rule};

/// The link's rate.
const WHOLE: u64 = 1 << 62;

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// The sums of its children's weights: all of them, and the active ones.
    all: u64,
    active: u64,
    /// Its rate with all streams active, and its present rate.
    owned: u64,
    rate: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    parent: u32,
    /// As in the contract; 0: no stream.
    weight: u32,
    mapped: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Flat {
    tree: Tree,
    update: Duration,
    pub(crate) wfq: Wfq,
    nodes: Vec<Node>,
    streams: Vec<Stream>,
    /// When the next mapping is due.
    due: Instant,
    /// Whether a stream or weight was added since the last mapping.
    changed: bool,
}

/// `weight` parts out of `sum` of a rate.
fn part(rate: u64, weight: u32, sum: u64) -> u64 {
    (u128::from(rate) * u128::from(weight) / u128::from(sum.max(1))) as u64
}

impl Flat {
    pub(crate) fn new(tree: &Tree, update: Duration) -> Self {
        Self {
            nodes: vec![Node::default(); tree.nodes().len() + 1],
            tree: tree.clone(),
            update,
            wfq: Wfq::default(),
            streams: Vec::new(),
            due: Instant::ZERO,
            changed: false,
        }
    }

    pub(crate) fn grow(&mut self, streams: usize) {
        self.wfq.grow(streams);
        self.streams.resize(streams, Stream::default());
    }

    pub(crate) fn reset(&mut self, stream: u32, contract: &Contract) {
        self.wfq.reset(stream, contract);
        let parent = self.tree.place(contract.parent);
        self.streams[stream as usize] =
            Stream { parent, weight: contract.weight.max(1), mapped: 1 };
        self.changed = true;
    }

    pub(crate) fn add_head(&mut self, head: &HeadState, size: Bytes, fresh: bool) {
        let stream = &mut self.streams[head.stream as usize];
        if stream.weight != head.weight.max(1) {
            stream.weight = head.weight.max(1);
            self.changed = true;
        }
        if self.changed {
            self.map();
        }
        let mapped = self.streams[head.stream as usize].mapped;
        self.wfq.add_head(head.stream, mapped, size, fresh);
    }

    pub(crate) fn advance(&mut self, now: Instant) {
        if now >= self.due {
            self.due = Instant(now.0 - now.0 % self.update.0) + self.update;
            self.map();
        }
    }

    /// O(streams and nodes).
    fn map(&mut self) {
        self.changed = false;
        self.nodes.fill(Node::default());
        for (stream, index) in self.streams.iter().zip(0..) {
            let node = &mut self.nodes[stream.parent as usize];
            node.all += u64::from(stream.weight);
            node.active += if self.wfq.has_frame(index) { u64::from(stream.weight) } else { 0 };
        }
        for (at, inner) in self.tree.nodes().iter().enumerate().rev() {
            let active = self.nodes[at + 1].active > 0;
            let parent = &mut self.nodes[inner.parent as usize];
            parent.all += u64::from(inner.weight);
            parent.active += if active { u64::from(inner.weight) } else { 0 };
        }
        (self.nodes[0].owned, self.nodes[0].rate) = (WHOLE, WHOLE);
        for (at, inner) in self.tree.nodes().iter().enumerate() {
            let parent = self.nodes[inner.parent as usize];
            let node = &mut self.nodes[at + 1];
            node.owned = part(parent.owned, inner.weight, parent.all);
            node.rate = part(parent.rate, inner.weight, parent.active);
        }
        for (stream, index) in self.streams.iter_mut().zip(0..) {
            let node = self.nodes[stream.parent as usize];
            let rate = if self.wfq.has_frame(index) {
                part(node.rate, stream.weight, node.active)
            } else {
                part(node.owned, stream.weight, node.all)
            };
            stream.mapped = u32::try_from(rate >> 30).unwrap_or(u32::MAX).max(1);
        }
    }
}
