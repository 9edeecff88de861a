//! The tree of weights of a trace: `tree`, the nodes, and `remap`, the period in which a flat approximation
//! maps them. From the text to the scheduler's [`Tree`].

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use selvedge_units::{Duration, nearest};

use super::error::{Fault, TraceError, shorten};
use super::json::{Object, Value};
use crate::{Tree, TreeNode};

const NODE: [&str; 3] = ["id", "parent", "weight"];

/// The nodes read so far: their names and numbers, from 1.
#[derive(Default)]
pub(super) struct Nodes(BTreeMap<String, u32>);

impl Nodes {
    /// The number of the node that a `parent` field names.
    pub(super) fn find(&self, value: &Value<'_, '_>) -> Result<u32, TraceError> {
        let id = value.string()?;
        self.0.get(&id).copied().ok_or_else(|| {
            let suggestion = nearest(&id, self.0.keys().map(|id| &**id)).map(Into::into);
            value.error(Fault::UnknownNode { id: shorten(&id), suggestion })
        })
    }

    fn add(&mut self, value: &Value<'_, '_>, number: u32) -> Result<(), TraceError> {
        let id = value.string()?;
        if id.is_empty() {
            return Err(value.error(Fault::EmptyNode));
        }
        if self.0.contains_key(&id) {
            return Err(value.error(Fault::DuplicateNode(shorten(&id))));
        }
        self.0.insert(id, number);
        Ok(())
    }
}

/// The tree of a trace; without one, a tree without nodes.
pub(super) fn tree(top: &Object<'_, '_>) -> Result<(Tree, Nodes), TraceError> {
    let mut nodes = Nodes::default();
    let mut listed = Vec::new();
    if let Some(value) = top.get("tree") {
        let elements = value.list()?;
        if elements.len() > Tree::NODES_MAX {
            return Err(value.error(Fault::Nodes { found: elements.len(), max: Tree::NODES_MAX }));
        }
        for (index, raw) in elements.into_iter().enumerate() {
            let object = value.element(index, raw).object(&NODE)?;
            let parent = object.optional("parent", |value| nodes.find(value))?.unwrap_or(0);
            let weight = object.optional("weight", |value| value.number(1, u32::MAX))?.unwrap_or(1);
            listed.push(TreeNode { parent, weight });
            let number = u32::try_from(listed.len()).expect("at most NODES_MAX");
            nodes.add(&object.required("id", "\"id\": \"video\"")?, number)?;
        }
    }
    let update = top.optional("remap", |value| value.number(1, u64::MAX))?.map(Duration);
    let tree = Tree::new(listed, update).expect("each parent came before, each weight is above 0");
    Ok((tree, nodes))
}
