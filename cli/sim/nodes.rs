//! The node files of a simulation, and the frames of the clips that their streams play.

use std::path::Path;

use selvedge_cli_terminal::Failure;
use selvedge_control_config::network::NetworkConfig;
use selvedge_sim::scenario::{Clip, NodeAt, ScenarioError};

use crate::clip;
use crate::node_file::{self, NodeFile, lines};

/// The host that has the node of `--node`.
const NEAR: &str = "near";

/// A node file at a host.
pub(super) struct Node {
    host: usize,
    file: NodeFile,
    clips: Vec<Clip>,
}

impl Node {
    /// What is wrong with a stream of this node in its file, if that is what the error says.
    pub(super) fn mistake(&self, error: &ScenarioError) -> Option<String> {
        let ScenarioError::Stream { host, stream, fault } = error else { return None };
        let key = format!("stream.{stream}.{}", fault.key());
        (*host == self.host).then(|| lines(&self.file.errors([(key, fault.to_string())])))
    }

    pub(super) fn at(&self) -> NodeAt<'_> {
        NodeAt { host: self.host, config: &self.file.config, clips: self.clips.clone() }
    }
}

/// Reads the node files that a network names, relative to its own file, and the one of `--node`.
pub(super) fn read(
    network: &NetworkConfig,
    at: &Path,
    near: Option<&Path>,
) -> Result<Vec<Node>, Failure> {
    let base = at.parent().unwrap_or_else(|| Path::new(""));
    let mut nodes = Vec::new();
    for (host, about) in network.hosts.iter().enumerate() {
        let named = about.node.as_ref().map(|path| base.join(path));
        let given = near.filter(|_| about.name == NEAR);
        if let Some(path) = given.or(named.as_deref()) {
            nodes.push(node(host, path)?);
        }
    }
    if near.is_some() && !network.hosts.iter().any(|host| host.name == NEAR) {
        let why = "--node: the network has no host \"near\"; name a node file at one of its hosts instead";
        return Err(Failure::input(why));
    }
    Ok(nodes)
}

fn node(host: usize, path: &Path) -> Result<Node, Failure> {
    let file = node_file::read(path)?;
    let mut wrong = Vec::new();
    let mut clips = Vec::new();
    for stream in &file.config.streams {
        match clip::read(&stream.source, &file.base) {
            Ok(clip) => clips.push(clip),
            Err(why) => {
                wrong.push((format!("stream.{}.source", stream.spec.name), why.to_string()));
            }
        }
    }
    if wrong.is_empty() {
        Ok(Node { host, file, clips })
    } else {
        Err(Failure::input(lines(&file.errors(wrong))))
    }
}
