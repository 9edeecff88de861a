//! A summary of a valid node file, as plain data: for `selvedge check` and its `--json`.

use selvedge_data_stream::{Contract, Kind, Window, Windows};
use selvedge_units::{Bitrate, Bytes};
use serde::Serialize;

use super::{LinkConfig, NodeConfig, PathConfig, SetSummary, StreamConfig, carried};

/// A node in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Where its page, API and metrics are.
    pub listen: String,
    /// The address of its page.
    pub page: String,
    /// Its links, in the order of the file.
    pub links: Vec<LinkSummary>,
    /// Its streams, in the order of the file.
    pub streams: Vec<StreamSummary>,
    /// The most memory that waiting frames of all streams take, in bytes.
    pub memory_bytes: u64,
}

/// A link in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkSummary {
    /// Its name.
    pub name: String,
    /// Its rate, headers included.
    pub rate_bps: u64,
    /// The discipline that orders its streams.
    pub discipline: String,
    /// Whether frames are dropped early so that others can be decoded.
    pub selection: bool,
    /// How many streams it carries.
    pub streams: usize,
    /// The shares of the link under a tree of weights: inner nodes, then streams. Empty without a tree.
    pub tree: Vec<TreeOwner>,
    /// The rate that its streams offer as a fraction of its rate, where that of each is known.
    pub share: Option<f64>,
    /// Whether its rate is measured while it is used; then `rate_bps` is the one that it begins with.
    pub measured: bool,
    /// Where its bond leads, whose rate is measured; `None`: each stream has its own receiver.
    pub bond: Option<String>,
    /// The paths of its bond.
    pub paths: Vec<PathSummary>,
}

/// A path of a bond in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathSummary {
    /// Its name.
    pub name: String,
    /// The device by which it leaves; `None`: as routes say.
    pub device: Option<String>,
    /// The address from which it is sent; `None`: any.
    pub address: Option<String>,
    /// Where it reaches the far end; `None`: where the link does.
    pub to: Option<String>,
    /// What it carries at most; `None`: as measured.
    pub rate_bps: Option<u64>,
    /// Whether it carries only what no free path brings in time.
    pub metered: bool,
    /// What it may carry in a calendar month; `None`: any.
    pub budget_bytes: Option<u64>,
    /// Whether it carries packets only while no other path brings them in time.
    pub spare: bool,
}

impl PathSummary {
    fn new(path: &PathConfig) -> Self {
        Self {
            name: path.name.clone(),
            device: path.device.clone(),
            address: path.address.map(|address| address.to_string()),
            to: path.to.clone(),
            rate_bps: path.rate.map(|rate| rate.0),
            metered: path.is_metered,
            budget_bytes: path.budget.map(|budget| budget.0),
            spare: path.is_spare,
        }
    }
}

/// A node of a link's tree, or a stream that hangs below one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TreeOwner {
    /// Its name.
    pub name: String,
    /// Whether it is a stream.
    pub stream: bool,
    /// The node that it hangs below; `None`: the link itself.
    pub parent: Option<String>,
    /// Its share against its siblings.
    pub weight: u32,
    /// Its fraction of the link while all streams have something to send.
    pub owns: f64,
}

/// A stream in short.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamSummary {
    /// Its name.
    pub name: String,
    /// Its link's name.
    pub link: String,
    /// Where it comes from.
    pub source: String,
    /// Where it goes.
    pub to: String,
    /// The stack that carries its packets; `None`: plain RTP.
    pub stack: Option<StackSummary>,
    /// Its period in milliseconds; `None`: taken from the media.
    pub period_ms: Option<f64>,
    /// Its window or windows, as [`windows_text`] writes them.
    pub window: String,
    /// From a frame's arrival to its deadline, in milliseconds.
    pub delay_ms: f64,
    /// The rate of its media, headers included, once known ([`Summary::offer`]).
    pub offered_bps: Option<u64>,
    /// That rate as a fraction of its link's.
    pub share: Option<f64>,
    /// The sets of its streamlets; empty without any.
    pub sets: Vec<SetSummary>,
    /// The most memory that its waiting frames take, in bytes.
    pub memory_bytes: u64,
}

/// A stack in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackSummary {
    /// Its line.
    pub line: String,
    /// The largest packet of a frame, in bytes.
    pub packet_bytes: u64,
    /// The headers that its modules add to each packet, in bytes.
    pub header_bytes: u64,
    /// Whether the link has a secret or a key, so that all is sealed.
    pub encrypted: bool,
}

impl NodeConfig {
    /// The node in short. No stream's rate is known yet: the file does not contain it.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let on_link = |index| self.streams.iter().filter(|stream| stream.link == index).count();
        let links = self.links.iter().enumerate().map(|(index, link)| LinkSummary {
            name: link.name.clone(),
            rate_bps: link.rate.0,
            discipline: link.discipline.name().to_owned(),
            selection: link.selection,
            streams: on_link(index),
            tree: self.owners(index),
            share: None,
            measured: link.is_measured(),
            bond: link.bond.as_ref().map(|bond| bond.to.to_string()),
            paths: link
                .bond
                .iter()
                .flat_map(|bond| bond.paths.iter().map(PathSummary::new))
                .collect(),
        });
        let link_name = |stream: &StreamConfig| {
            self.links.get(stream.link).map(|link| link.name.clone()).unwrap_or_default()
        };
        let streams = self.streams.iter().map(|stream| StreamSummary {
            name: stream.spec.name.clone(),
            link: link_name(stream),
            source: stream.source.to_string(),
            to: stream.receiver(),
            stack: stream.stack.as_ref().zip(self.links.get(stream.link)).map(|(stack, link)| {
                let fit = carried(stack, link, stream.spec.to);
                StackSummary {
                    line: stack.to_string(),
                    packet_bytes: fit.message.0,
                    header_bytes: fit.headers.0,
                    encrypted: link.is_encrypted(),
                }
            }),
            period_ms: stream.spec.declared_period().map(|period| period.as_millis_f64()),
            window: windows_text(&stream.spec.contract.windows),
            delay_ms: stream.spec.contract.delay.map_or(0.0, |delay| delay.as_millis_f64()),
            offered_bps: None,
            share: None,
            sets: stream
                .slot
                .as_ref()
                // The flows of a tunnel have no deadlines of their own.
                .filter(|_| !stream.is_tunnel())
                .map_or_else(Vec::new, |slot| slot.summary(stream.spec.declared_period())),
            memory_bytes: stream.memory().0,
        });
        Summary {
            name: self.name.clone(),
            listen: self.page.listen.to_string(),
            page: self.page.url(self.page.listen),
            links: links.collect(),
            streams: streams.collect(),
            memory_bytes: self.streams.iter().map(StreamConfig::memory).sum::<Bytes>().0,
        }
    }

    /// The shares of a link that has a tree. Nodes without a stream below them own nothing. O(nodes +
    /// streams).
    fn owners(&self, link: usize) -> Vec<TreeOwner> {
        let LinkConfig { tree, nodes: names, .. } = &self.links[link];
        let nodes = tree.nodes();
        if nodes.is_empty() {
            return Vec::new();
        }
        let streams = || self.streams.iter().filter(|stream| stream.link == link);
        // For each node, the weights of its children that have something to send; 0 is the link.
        let mut below = vec![0_u64; nodes.len() + 1];
        streams().for_each(|stream| {
            below[stream.spec.contract.parent as usize] += u64::from(stream.spec.contract.weight)
        });
        for (n, node) in nodes.iter().enumerate().rev() {
            if below[n + 1] > 0 {
                below[node.parent as usize] += u64::from(node.weight);
            }
        }
        let mut owned = vec![1.0; nodes.len() + 1];
        let name = |n: u32| n.checked_sub(1).map(|n| names[n as usize].clone());
        let mut owners = Vec::with_capacity(nodes.len());
        for (n, node) in (1..).zip(nodes) {
            let (parent, weight) = (node.parent as usize, node.weight);
            let part = f64::from(weight) / below[parent] as f64;
            owned[n] = if below[n] > 0 { owned[parent] * part } else { 0.0 };
            let (name, parent) = (names[n - 1].clone(), name(node.parent));
            owners.push(TreeOwner { name, stream: false, parent, weight, owns: owned[n] });
        }
        owners.extend(streams().map(|stream| {
            let Contract { parent, weight, .. } = stream.spec.contract;
            let part = f64::from(weight) / below[parent as usize] as f64;
            TreeOwner {
                name: stream.spec.name.clone(),
                stream: true,
                parent: name(parent),
                weight,
                owns: owned[parent as usize] * part,
            }
        }));
        owners
    }
}

impl Summary {
    /// Records the rate of a stream's media, headers included, and its share of its link. The link's
    /// own share is known once those of all its streams are. Does nothing if there is no such stream.
    /// O(streams).
    pub fn offer(&mut self, stream: &str, rate: Bitrate) {
        let Some(stream) = self.streams.iter_mut().find(|s| s.name == stream) else { return };
        let Some(link) = self.links.iter_mut().find(|link| link.name == stream.link) else {
            return;
        };
        stream.offered_bps = Some(rate.0);
        if link.measured {
            return;
        }
        stream.share = Some(rate.0 as f64 / link.rate_bps as f64);
        let on_link = self.streams.iter().filter(|stream| stream.link == link.name);
        link.share = on_link.map(|stream| stream.share).sum();
    }
}

/// Windows in one line: `1/5`, or by kind `I 0/1, P 1/8, B 1/2, other 0/1`, where kinds that are no
/// pictures of a group stand together if their windows are equal.
#[must_use]
pub fn windows_text(windows: &Windows) -> String {
    let by_kind = match windows {
        Windows::Whole(window) => return window.to_string(),
        Windows::PerKind(by_kind) => by_kind,
    };
    let named = |kinds: &[Kind]| -> Vec<String> {
        kinds.iter().map(|&kind| format!("{} {}", kind.name(), by_kind[kind as usize])).collect()
    };
    let (pictures, others) = Kind::ALL.split_at(3);
    let first: Window = by_kind[others[0] as usize];
    let mut parts = named(pictures);
    if others.iter().all(|&kind| by_kind[kind as usize] == first) {
        parts.push(format!("other {first}"));
    } else {
        parts.extend(named(others));
    }
    parts.join(", ")
}
