//! The setup of a qdisc: streams, filters, rate; also as the bytes that the programs read (`struct setup` of
//! `bpf/dwcs.h`).

use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stream::{Class, Contract, Late, Window, Windows};
use selvedge_units::{Bitrate, Duration, Instant};
use thiserror::Error;

use crate::filter::Filter;

/// The most streams of a device, including the one for the rest.
pub const STREAMS_MAX: usize = 256;
/// The most inner nodes that a device's tree of weights can have.
pub(crate) const NODES_MAX: usize = 255;
/// The longest name, in bytes.
pub(crate) const NAME_MAX: usize = 31;
/// `struct contract`, and the fields before the first one in `struct setup`.
pub(crate) const CONTRACT: usize = 88;
pub(crate) const SETUP_HEAD: usize = 56;
/// The fields behind the last one: the tree of weights, with the link as its first node.
const TREE_AT: usize = SETUP_HEAD + CONTRACT * STREAMS_MAX;
/// The offset of the discipline's number.
pub(crate) const DISCIPLINE_AT: usize = TREE_AT + 12;
pub(crate) const SETUP: usize = TREE_AT + 16 + 8 * (NODES_MAX + 1);
/// The name of the stream for packets that no filter matches.
pub(crate) const REST: &str = "(rest)";

/// A stream of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSetup {
    /// Its name, at most 31 bytes.
    pub name: String,
    /// Its contract; a packet is a frame, so the window counts packets.
    pub contract: Contract,
    /// The first packet's deadline, if it does not follow from the contract.
    pub first_deadline: Option<Instant>,
    /// How many packets may wait; a further packet is dropped and counted as overflow.
    pub limit: u32,
    /// Whether a time stated by the sender (`SO_TXTIME`, on `CLOCK_MONOTONIC` or `CLOCK_TAI`) is the packet's
    /// deadline.
    pub by_txtime: bool,
    /// The filters that match its packets.
    pub filters: Vec<Filter>,
}

impl StreamSetup {
    /// A stream with this contract: 1000 packets may wait, and stated times are deadlines.
    #[must_use]
    pub fn new(name: &str, contract: Contract) -> Self {
        Self {
            name: name.to_owned(),
            contract,
            first_deadline: None,
            limit: 1000,
            by_txtime: true,
            filters: Vec::new(),
        }
    }
}

/// The settings of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The discipline.
    pub discipline: Discipline,
    /// The tree by which `hwfq` shares the device.
    pub tree: Tree,
    /// The rate, headers of the device included; `None`: as fast as the device takes packets.
    pub rate: Option<Bitrate>,
    /// How much time a late wake-up may catch up on, idle time included: packets go earlier than the rate
    /// allows by at most this.
    pub burst: Duration,
    /// How much more than that, if packets waited meanwhile.
    pub catch_up: Duration,
    /// The streams, without the one for the rest.
    pub streams: Vec<StreamSetup>,
    /// The contract of all other packets. Default: one in 10 ms is due, any may be late, none is
    /// dropped for that.
    pub rest: Contract,
}

/// Why a setup is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SetupError {
    /// Too many streams.
    #[error("{0} streams; a device can have {most}", most = STREAMS_MAX - 1)]
    TooMany(usize),
    /// More nodes than a tree can have here.
    #[error("{0} nodes; a device's tree takes at most {most}: hang streams below fewer", most = NODES_MAX)]
    Nodes(usize),
    /// A name that is empty or does not fit.
    #[error("\"{0}\" is not a stream's name here; 1 to 31 bytes, no control characters")]
    Name(String),
    /// Two streams of the same name.
    #[error("there are two streams \"{0}\"")]
    SameName(String),
    /// Two streams with the same filter.
    #[error("{filter} is a filter of \"{one}\" and of \"{other}\"; a packet has one stream")]
    SameFilter {
        /// The filter.
        filter: Filter,
        /// A stream.
        one: String,
        /// The other.
        other: String,
    },
    /// A window for each kind of frame.
    #[error(
        "stream \"{0}\" has a window for each kind of frame, which the kernel can't tell apart; \
         give one window for all, such as \"1/5\""
    )]
    PerKind(String),
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            discipline: Discipline::Dwcs,
            tree: Tree::default(),
            rate: None,
            burst: Duration::from_millis(1),
            catch_up: Duration::ZERO,
            streams: Vec::new(),
            rest: Contract {
                late: Late::Send,
                ..Contract::new(Duration::from_millis(10), Window { lose: 1, of: 1 })
            },
        }
    }
}

impl Setup {
    /// Whether the setup is valid.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self) -> Result<(), SetupError> {
        if self.tree.nodes().len() > NODES_MAX {
            return Err(SetupError::Nodes(self.tree.nodes().len()));
        }
        if self.streams.len() >= STREAMS_MAX {
            return Err(SetupError::TooMany(self.streams.len()));
        }
        let mut filters = std::collections::HashMap::new();
        let mut names = std::collections::HashSet::new();
        for StreamSetup { name, contract, filters: mine, .. } in &self.streams {
            if name.is_empty() || name.len() > NAME_MAX || name.chars().any(char::is_control) {
                return Err(SetupError::Name(name.clone()));
            }
            if !names.insert(name) || name == REST {
                return Err(SetupError::SameName(name.clone()));
            }
            if matches!(contract.windows, Windows::PerKind(_)) {
                return Err(SetupError::PerKind(name.clone()));
            }
            for &filter in mine {
                if let Some(one) = filters.insert(filter, name.clone()).filter(|one| one != name) {
                    return Err(SetupError::SameFilter { filter, one, other: name.clone() });
                }
            }
        }
        Ok(())
    }

    /// The streams, and then the one for the rest.
    pub(crate) fn all(&self) -> impl Iterator<Item = StreamSetup> {
        let rest =
            StreamSetup { by_txtime: false, limit: 10_000, ..StreamSetup::new(REST, self.rest) };
        self.streams.iter().cloned().chain([rest])
    }

    /// `struct setup`, for a device, and for a node's process or (0) to stay.
    pub(crate) fn bytes(&self, netns: u64, ifindex: u32, pid: u32) -> Vec<u8> {
        let kinds = self.streams.iter().flat_map(|stream| &stream.filters);
        let streams: Vec<StreamSetup> = self.all().collect();
        let head = Header {
            discipline: self.discipline,
            rest: self.streams.len() as u32,
            filters: kinds.fold(0, |bits, filter| bits | 1 << filter.kind()),
            // Bits to bytes, rounded up: no rate becomes "none".
            rate: self.rate.map_or(0, |rate| rate.0.div_ceil(8).max(1)),
            burst: self.burst.0,
            catch_up: self.catch_up.0,
            netns,
            ifindex,
            pid,
        };
        head.bytes(&streams, &self.tree)
    }
}

/// The discipline's number in the programs.
pub(crate) const fn number(discipline: Discipline) -> u32 {
    match discipline {
        Discipline::Dwcs => 0,
        Discipline::Dwcs98 => 1,
        Discipline::Edf => 2,
        Discipline::Priority => 3,
        Discipline::Fifo => 4,
        Discipline::Vds => 5,
        Discipline::Wfq => 6,
        Discipline::Sfq => 7,
        Discipline::Drr => 8,
        Discipline::Hwfq => 9,
        Discipline::Mixed => 10,
    }
}

/// The fields before the contracts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub(crate) discipline: Discipline,
    pub(crate) rest: u32,
    pub(crate) filters: u32,
    pub(crate) rate: u64,
    pub(crate) burst: u64,
    pub(crate) catch_up: u64,
    pub(crate) netns: u64,
    pub(crate) ifindex: u32,
    pub(crate) pid: u32,
}

impl Header {
    /// `struct setup` with these streams below this tree.
    pub(crate) fn bytes(&self, streams: &[StreamSetup], tree: &Tree) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(SETUP);
        for word in [streams.len() as u32, leaves(streams.len()), self.rest, self.filters] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [self.rate, self.burst, self.netns] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.ifindex.to_ne_bytes());
        bytes.extend(self.pid.to_ne_bytes());
        bytes.extend(self.catch_up.to_ne_bytes());
        for stream in streams {
            contract(&mut bytes, stream, tree);
        }
        bytes.resize(TREE_AT, 0);
        bytes.extend(tree.update().map_or(0, |update| update.0).to_ne_bytes());
        for word in [tree.nodes().len() as u32, number(self.discipline), 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        for node in tree.nodes() {
            bytes.extend(node.parent.to_ne_bytes());
            bytes.extend(node.weight.to_ne_bytes());
        }
        bytes.resize(SETUP, 0);
        bytes
    }
}

/// The number of leaves in a tournament of this number of streams.
fn leaves(streams: usize) -> u32 {
    streams.next_power_of_two().min(STREAMS_MAX) as u32
}

/// `struct contract`.
fn contract(bytes: &mut Vec<u8>, stream: &StreamSetup, tree: &Tree) {
    let StreamSetup { name, contract, first_deadline, limit, by_txtime, .. } = stream;
    let mut id = [0; NAME_MAX + 1];
    let len = name.len().min(NAME_MAX);
    id[..len].copy_from_slice(&name.as_bytes()[..len]);
    bytes.extend(id);
    let Window { lose, of } = contract.windows.of(selvedge_data_stream::Kind::Data);
    for word in [
        contract.period.0,
        contract.delay.map_or(0, |delay| delay.0.max(1)),
        first_deadline.map_or(0, |deadline| deadline.0),
    ] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(limit.to_ne_bytes());
    bytes.extend(contract.priority.to_ne_bytes());
    bytes.extend(lose.min(of).to_ne_bytes());
    bytes.extend(of.to_ne_bytes());
    bytes.extend([
        u8::from(contract.late == Late::Send),
        u8::from(contract.work_conserving),
        u8::from(first_deadline.is_some()),
        u8::from(*by_txtime),
    ]);
    let class = match contract.class {
        Class::Edf => 0,
        Class::Priority => 1,
        Class::Fair => 2,
    };
    // A node that does not exist means the link.
    let parent = if contract.parent as usize <= tree.nodes().len() { contract.parent } else { 0 };
    let renewed = 0_u32;
    for word in [renewed, contract.weight, parent, class] {
        bytes.extend(word.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(name: &str, filters: &[Filter]) -> StreamSetup {
        let contract = Contract::new(Duration::from_millis(40), Window { lose: 1, of: 5 });
        StreamSetup { filters: filters.to_vec(), ..StreamSetup::new(name, contract) }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        let check = |setup: Setup| setup.check().map_err(|error| error.to_string());
        let with = |streams: Vec<StreamSetup>| Setup { streams, ..Setup::default() };
        assert_eq!(check(with(vec![stream("a", &[Filter::Port(1)])])), Ok(()));
        let twice = vec![stream("a", &[Filter::Port(1)]), stream("b", &[Filter::Port(1)])];
        assert!(
            check(with(twice)).unwrap_err().contains("port=1 is a filter of \"a\" and of \"b\"")
        );
        assert!(check(with(vec![stream("a", &[]), stream("a", &[])])).is_err());
        assert!(check(with(vec![stream("", &[])])).is_err());
        assert!(check(with(vec![stream(&"x".repeat(32), &[])])).is_err());
        let nodes = vec![selvedge_data_sched::TreeNode { parent: 0, weight: 1 }; NODES_MAX + 1];
        let tree = Tree::new(nodes, None).unwrap();
        let wide = Setup { discipline: Discipline::Hwfq, tree, ..Setup::default() };
        assert!(check(wide).unwrap_err().starts_with("256 nodes; "));
        let many = (0..STREAMS_MAX).map(|n| stream(&n.to_string(), &[])).collect();
        assert!(check(with(many)).unwrap_err().contains("255"));
        let mut kinds = stream("a", &[]);
        kinds.contract.windows =
            Windows::PerKind([Window::NONE; selvedge_data_stream::Kind::COUNT]);
        assert!(check(with(vec![kinds])).unwrap_err().contains("1/5"));
    }

    #[test]
    fn the_bytes_have_the_length_that_the_programs_expect() {
        let setup = Setup { streams: vec![stream("a", &[Filter::Port(1)])], ..Setup::default() };
        let bytes = setup.bytes(1, 2, 0);
        assert_eq!(bytes.len(), SETUP);
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4), word(8), word(12)), (2, 2, 1, 1 << 3));
        assert_eq!(&bytes[SETUP_HEAD..SETUP_HEAD + 2], b"a\0");
    }
}
