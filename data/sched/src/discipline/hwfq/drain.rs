//! The order in which a tree would send the waiting heads, one after the other, if no other arrived: a block
//! of `hwfq`.
//!
//! A stream has no place of its own in a tree: the next turn at a node depends on what the node has sent,
//! frames of the same block included. So the heads are sent as in real service, with all changes on their
//! path noted, and then all changes are undone. The references and the work that they gave out do not matter
//! here: a waiting child keeps its tags until it is sent.

use alloc::vec::Vec;

use super::Exact;
use crate::discipline::fluid::{Phase, Share};
use crate::discipline::heap::NONE;
use crate::discipline::tag;
use crate::record::StreamIndex;

/// A node as it was before a head was sent.
#[derive(Clone, Copy, Debug)]
struct SavedNode {
    node: u32,
    share: Share,
    first: u32,
}

/// The changed nodes; empty between two blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct UndoLog(Vec<SavedNode>);

impl Exact {
    /// Fills `block` and returns the number of streams. O(K depth log children) for a block of K. Allocates
    /// where the block is larger than any before.
    pub(super) fn block(&mut self, block: &mut [StreamIndex]) -> usize {
        let first = self.first[0];
        let mut len = 0;
        for place in block {
            let stream = self.first[0];
            if stream == NONE {
                break;
            }
            *place = StreamIndex(stream);
            self.send(stream);
            len += 1;
        }
        while let Some(SavedNode { node, share, first }) = self.undo.0.pop() {
            self.remove_child(node);
            self.shares[node as usize] = share;
            self.first[node as usize] = first;
            if share.phase == Phase::Waiting {
                self.update_child(node, true);
            }
        }
        self.first[0] = first;
        len
    }

    /// Sends the head of a stream, which then has no other.
    fn send(&mut self, stream: u32) {
        let (size, _) = self.heads[stream as usize];
        let mut node = self.inner + stream;
        while node != 0 {
            let (share, first) = (self.shares[node as usize], self.first[node as usize]);
            self.undo.0.push(SavedNode { node, share, first });
            self.remove_child(node);
            self.shares[node as usize].charge(tag::span(size, share.weight));
            if node < self.inner {
                self.select_child(node);
            } else {
                self.first[node as usize] = NONE;
            }
            let next = self.first[node as usize];
            if next == NONE {
                self.shares[node as usize].phase = Phase::Pending;
            } else {
                let (size, _) = self.heads[next as usize];
                let share = &mut self.shares[node as usize];
                share.finish = tag::after(share.start, tag::span(size, share.weight));
                self.update_child(node, true);
            }
            node = self.parents[node as usize];
        }
        self.select_child(0);
    }
}
