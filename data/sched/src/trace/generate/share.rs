//! The fields that the disciplines that share a link read: weights, classes, sizes and a tree. They are drawn
//! last, so that the rest of a trace does not depend on them.

use alloc::vec::Vec;

use selvedge_data_stream::Class;
use selvedge_units::{Bytes, Duration};

use super::kind::Theme;
use super::{GenerateOptions, Random};
use crate::replay::{Arrivals, Trace};
use crate::{Discipline, Tree, TreeNode};

/// The disciplines that remember what they have sent.
pub const SHARING: [Discipline; 6] = [
    Discipline::Vds,
    Discipline::Wfq,
    Discipline::Sfq,
    Discipline::Drr,
    Discipline::Hwfq,
    Discipline::Mixed,
];

/// Quanta that cover frames of 40 to 1500 bytes at once, or in a few rounds.
const QUANTA: [u32; 3] = [300, 500, 1500];
const EXTREMES: [u32; 4] = [1, 2, u32::MAX - 1, u32::MAX];
/// A class picked from these: fair streams are as many as the others.
const CLASSES: [Class; 4] = [Class::Fair, Class::Fair, Class::Edf, Class::Priority];

/// Gives a trace the fields that its sharing discipline reads.
pub(super) fn share(random: &mut Random, theme: &Theme, trace: &mut Trace) {
    for stream in &mut trace.streams {
        let contract = &mut stream.contract;
        contract.weight = match theme {
            Theme { weighted: true, .. } => contract.weight,
            Theme { extreme: true, .. } => random.pick(&EXTREMES),
            _ if trace.discipline == Discipline::Drr => random.pick(&QUANTA),
            _ => weight(random, 8),
        };
        if trace.discipline == Discipline::Mixed {
            contract.class = random.pick(&CLASSES);
        }
    }
    if let Arrivals::Listed(listed) = &mut trace.arrivals {
        for arrival in listed.iter_mut().filter(|_| !theme.weighted) {
            if random.one_in(2) {
                arrival.size = Bytes(random.within(40, 1500));
            }
        }
    }
    if trace.discipline == Discipline::Hwfq {
        let nodes = random.within(1, 4) as u32;
        let nodes = tree(random, nodes, if theme.extreme { u32::MAX } else { 8 }, trace);
        let remap = Some(random.within(1, 9)).filter(|_| random.one_in(2));
        trace.tree = planted(nodes, remap.map(Duration));
    }
}

/// Replaces those fields by the requested ones, whatever the discipline: a trace may be replayed under
/// another. Each request draws from numbers of its own, so that none changes the rest.
pub(super) fn wishes(wanted: &GenerateOptions, trace: &mut Trace) {
    let random = |wish: u64| Random::new(wanted.seed ^ wish.rotate_right(8));
    if let Some(most) = wanted.weight_max {
        let mut random = random(1);
        for stream in &mut trace.streams {
            stream.contract.weight = weight(&mut random, most.max(1));
        }
    }
    if !wanted.classes.is_empty() {
        let mut random = random(2);
        for stream in &mut trace.streams {
            stream.contract.class = random.pick(&wanted.classes);
        }
    }
    let mut nodes = trace.tree.nodes().to_vec();
    if let Some(count) = wanted.nodes {
        let count = count.min(Tree::NODES_MAX as u32);
        nodes = tree(&mut random(3), count, wanted.weight_max.unwrap_or(8).max(1), trace);
    }
    let update = match wanted.remap {
        Some(slots) => Some(Duration(slots)).filter(|span| span.0 > 0),
        None => trace.tree.update(),
    };
    trace.tree = planted(nodes, update);
}

fn weight(random: &mut Random, most: u32) -> u32 {
    random.within(1, u64::from(most)) as u32
}

/// `count` nodes; each, and then each stream, below the link or an earlier node.
fn tree(random: &mut Random, count: u32, weight_max: u32, trace: &mut Trace) -> Vec<TreeNode> {
    let node = |n: u32, random: &mut Random| {
        let parent = random.within(0, u64::from(n)) as u32;
        TreeNode { parent, weight: weight(random, weight_max) }
    };
    let nodes = (0..count).map(|n| node(n, random)).collect();
    for stream in &mut trace.streams {
        stream.contract.parent = random.within(0, u64::from(count)) as u32;
    }
    nodes
}

fn planted(nodes: Vec<TreeNode>, update: Option<Duration>) -> Tree {
    Tree::new(nodes, update).expect("parents come first, weights and updates are above 0")
}
