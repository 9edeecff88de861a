//! `[link.NAME.tree.NODE]`: the inner nodes of the tree by which `hwfq` shares a link (Aurora final
//! report, section 2, "3.4 QoS"), from the file to the scheduler's [`Tree`].
//!
//! The file lists nodes in any order; here parents come before children, as the scheduler requires.

use std::collections::HashMap;

use selvedge_data_sched::{Tree, TreeNode};

use super::ConfigFault;
use super::quote::cut;
use super::section::{Entry, Reader, Section};

pub(super) const KNOWN: &[&str] = &["parent", "weight"];
/// The most inner nodes of a link's tree.
pub const NODES_MAX: usize = 4096;
const EXAMPLE: &str = "[link.uplink.tree.video] with weight = 3";

/// The nodes of a link's tree by name, for the streams that hang below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Nodes(Vec<String>);

impl Nodes {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    /// The number of the node that an entry names, from 1; an unknown name is reported.
    pub(super) fn find<'t>(&self, reader: &mut Reader<'t>, entry: &Entry<'t>) -> Option<u32> {
        let names: Vec<&str> = self.0.iter().map(String::as_str).collect();
        find(reader, entry, &names).map(|at| at as u32 + 1)
    }
}

/// A node as the file has it.
struct ListedNode<'t> {
    section: Section<'t>,
    /// The place of its parent in the list; `None`: the link.
    parent: Option<usize>,
    weight: u32,
}

/// The nodes of a link, parents first, and their names; none if the file has none. Mistakes have
/// been reported.
pub(super) fn read<'t>(
    reader: &mut Reader<'t>,
    link: &Section<'t>,
) -> (Vec<TreeNode>, Vec<String>) {
    let Some(table) = reader.section(link, "tree", EXAMPLE) else { return Default::default() };
    if table.is_empty() {
        reader.report(table.at, &table.path, ConfigFault::NoNodes);
    }
    let mut sections = reader.sections(&table, EXAMPLE);
    if sections.len() > NODES_MAX {
        let mistake = ConfigFault::TooManyNodes { count: sections.len(), most: NODES_MAX };
        reader.report(sections[NODES_MAX].at, &table.path, mistake);
        sections.truncate(NODES_MAX);
    }
    let names: Vec<&str> = sections.iter().map(|section| section.name).collect();
    let listed: Vec<ListedNode<'_>> =
        sections.into_iter().map(|section| node(reader, section, &names)).collect();
    in_order(reader, &listed)
}

fn node<'t>(reader: &mut Reader<'t>, section: Section<'t>, names: &[&str]) -> ListedNode<'t> {
    reader.name(section.at, &section.path, section.name);
    reader.refuse_unknown(&section, KNOWN);
    let entry = reader.entry(&section, "parent");
    let parent = entry.and_then(|entry| find(reader, &entry, names));
    let weight = reader.integer(&section, "weight", 1..=1000).unwrap_or(1);
    ListedNode { section, parent, weight }
}

/// The place of the node that an entry names.
fn find<'t>(reader: &mut Reader<'t>, entry: &Entry<'t>, names: &[&str]) -> Option<usize> {
    if names.is_empty() {
        reader.report_value(entry, ConfigFault::NoTree);
        return None;
    }
    reader.find(entry, ("node of this link's tree", "parent = \"video\""), names)
}

/// Parents before children, otherwise in the order of the file. Nodes that hang below themselves are
/// reported, one of each cycle. O(nodes).
fn in_order(reader: &mut Reader<'_>, listed: &[ListedNode<'_>]) -> (Vec<TreeNode>, Vec<String>) {
    let mut placed: HashMap<usize, u32> = HashMap::new();
    let (mut nodes, mut names) = (Vec::new(), Vec::new());
    let mut in_cycle = vec![false; listed.len()];
    for start in 0..listed.len() {
        // Up to a node that is placed already, or the link; then down again.
        let mut way = Vec::new();
        let mut above = Some(start);
        while let Some(at) = above.filter(|at| !placed.contains_key(at) && !in_cycle[*at]) {
            if way.len() > listed.len() {
                break;
            }
            way.push(at);
            above = listed[at].parent;
        }
        if way.len() > listed.len() {
            report_cycle(reader, listed, start, &mut in_cycle);
            continue;
        }
        if above.is_some_and(|at| in_cycle[at]) {
            way.iter().for_each(|&at| in_cycle[at] = true);
            continue;
        }
        for &at in way.iter().rev() {
            let parent = listed[at].parent.map_or(0, |parent| placed[&parent]);
            nodes.push(TreeNode { parent, weight: listed[at].weight });
            names.push(listed[at].section.name.to_owned());
            placed.insert(at, nodes.len() as u32);
        }
    }
    (nodes, names)
}

/// Reports the cycle that the way up from a node ends in, at its first node in the file.
fn report_cycle(
    reader: &mut Reader<'_>,
    listed: &[ListedNode<'_>],
    start: usize,
    in_cycle: &mut [bool],
) {
    let mut at = start;
    while !in_cycle[at] {
        in_cycle[at] = true;
        at = listed[at].parent.unwrap_or(at);
    }
    // `at` is in the cycle: once around.
    let mut around = vec![at];
    while let Some(next) = listed[around[around.len() - 1]].parent.filter(|&next| next != at) {
        around.push(next);
    }
    let first = around.iter().copied().min().unwrap_or(at);
    let parent = listed[first].parent.unwrap_or(first);
    let section = &listed[first].section;
    let mistake = ConfigFault::Cycle(cut(listed[parent].section.name));
    let key = section.path_of("parent");
    reader.errors.push_key(&reader.map, &key, mistake);
}

/// The tree of these nodes.
pub(super) fn planted(nodes: Vec<TreeNode>, remap: Option<selvedge_units::Duration>) -> Tree {
    Tree::new(nodes, remap).expect("parents come first; weights and remap are above 0")
}
