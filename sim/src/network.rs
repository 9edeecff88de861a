//! A network as it is built: hosts, links between them, flows, and the endpoints that send and receive them.
//!
//! Routes have the fewest hops; of two such, the link that was added first is taken.

use std::any::Any;

use selvedge_data_net_line::{Line, LineModel, Random};

use crate::endpoint::Endpoint;
use crate::packet::{Datagram, EndpointId, FlowId, HostId};
use crate::results::{Flow, HopResult};

const HOSTS_MAX: usize = 1_000;
const LINKS_MAX: usize = 4_000;
/// Each has 6 kB of histograms, and a port.
const FLOWS_MAX: usize = 20_000;
const PORT_MIN: u16 = 1_024;
/// No hop, no endpoint.
pub(crate) const NONE: u32 = u32::MAX;

/// Why a network cannot be as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// There is more of something than there may be.
    #[error("more than {1} {0}; split the network, or leave some out")]
    TooMany(&'static str, usize),
    /// A number is another network's.
    #[error("this network has no {0} {1}; use the numbers that it gave")]
    Unknown(&'static str, u64),
    /// A link or flow ends where it begins.
    #[error("\"{0}\" begins and ends at the host \"{1}\"; give it two hosts")]
    SameHost(String, String),
    /// Two endpoints want to receive a flow.
    #[error("the flow \"{0}\" has a receiver; give the other one a flow of its own")]
    Received(String),
    /// No links lead from a flow's first host to its second.
    #[error("\"{0}\": no links lead from the host \"{1}\" to the host \"{2}\"; add one")]
    Unreachable(String, String, String),
}

/// A direction of a link.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) result: HopResult,
    pub(crate) line: Line<Datagram>,
    /// Packets in it when it was looked at last, and packets that it dropped.
    pub(crate) packets: u64,
    pub(crate) dropped: u64,
}

/// A network under a seed: at most 1000 hosts, 4000 links, 20000 flows and as many endpoints; more are
/// errors, as are numbers of another network's. Each link and each [`Self::random`] has random numbers of
/// its own, so what is added changes no other's.
#[derive(Default)]
pub struct Network {
    seed: u64,
    pub(crate) hosts: Vec<String>,
    pub(crate) hops: Vec<Hop>,
    pub(crate) flows: Vec<Flow>,
    /// Which endpoint receives each flow, or [`NONE`].
    pub(crate) receivers: Vec<u32>,
    pub(crate) endpoints: Vec<Box<dyn Endpoint>>,
}

fn check(count: usize, most: usize, what: &'static str) -> Result<(), NetworkError> {
    if count < most { Ok(()) } else { Err(NetworkError::TooMany(what, most)) }
}

impl Network {
    /// A network of nothing.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The stream of random numbers of this name.
    #[must_use]
    pub fn random(&self, name: &str) -> Random {
        Random::named(self.seed, name)
    }

    /// Adds a host.
    pub fn host(&mut self, name: &str) -> Result<HostId, NetworkError> {
        check(self.hosts.len(), HOSTS_MAX, "hosts")?;
        self.hosts.push(name.to_owned());
        Ok(HostId(self.hosts.len() as u32 - 1))
    }

    /// Adds a link between two hosts: its first model leads from the first to the second, the other back.
    pub fn link(
        &mut self,
        name: &str,
        ends: [HostId; 2],
        [there, back]: [LineModel; 2],
    ) -> Result<(), NetworkError> {
        check(self.hops.len() / 2, LINKS_MAX, "links")?;
        self.check_ends(name, ends)?;
        let [first, second] = ends;
        for (from, to, model, way) in
            [(first, second, there, "there"), (second, first, back, "back")]
        {
            let line = Line::new(model, self.seed, &format!("{name} {way}"));
            let result = HopResult { link: name.to_owned(), from, to, ..HopResult::default() };
            self.hops.push(Hop { result, line, packets: 0, dropped: 0 });
        }
        Ok(())
    }

    /// Adds a flow from a host to another.
    pub fn flow(&mut self, name: &str, from: HostId, to: HostId) -> Result<FlowId, NetworkError> {
        check(self.flows.len(), FLOWS_MAX, "flows")?;
        self.check_ends(name, [from, to])?;
        let number = self.flows.len();
        let port = PORT_MIN + number as u16;
        self.flows.push(Flow { name: name.to_owned(), from, to, port, ..Flow::default() });
        self.receivers.push(NONE);
        Ok(FlowId(number as u64))
    }

    /// Adds a flow and the flow of its answers, which has the same name and port.
    pub fn flow_and_answers(
        &mut self,
        name: &str,
        [from, to]: [HostId; 2],
    ) -> Result<[FlowId; 2], NetworkError> {
        let flows = [self.flow(name, from, to)?, self.flow(name, to, from)?];
        let [there, back] = flows.map(|flow| flow.0 as usize);
        self.flows[back].port = self.flows[there].port;
        Ok(flows)
    }

    /// Adds an endpoint that receives these flows, which have no other receiver; it may send any. Where a
    /// flow has no receiver, its packets are counted and are gone.
    pub fn attach(
        &mut self,
        endpoint: Box<dyn Endpoint>,
        receives: &[FlowId],
    ) -> Result<EndpointId, NetworkError> {
        check(self.endpoints.len(), FLOWS_MAX, "endpoints")?;
        let id = EndpointId(self.endpoints.len() as u32);
        receives.iter().try_for_each(|flow| self.receive(id, *flow))?;
        self.endpoints.push(endpoint);
        Ok(id)
    }

    /// Makes an endpoint receive another flow, too.
    ///
    /// # Errors
    /// [`NetworkError::Unknown`], [`NetworkError::Received`].
    pub fn receive(&mut self, id: EndpointId, flow: FlowId) -> Result<(), NetworkError> {
        let number = flow.0 as usize;
        let receiver = self.receivers.get_mut(number);
        let receiver = receiver.ok_or(NetworkError::Unknown("flow", flow.0))?;
        if *receiver != NONE {
            return Err(NetworkError::Received(self.flows[number].name.clone()));
        }
        *receiver = id.0;
        Ok(())
    }

    /// An endpoint, if it is of this type.
    pub fn endpoint_mut<T: Endpoint>(&mut self, id: EndpointId) -> Option<&mut T> {
        let endpoint: &mut dyn Any = self.endpoints.get_mut(id.0 as usize)?.as_mut();
        endpoint.downcast_mut()
    }

    fn check_ends(&self, name: &str, ends: [HostId; 2]) -> Result<(), NetworkError> {
        let host = |id: HostId| {
            let host = self.hosts.get(id.0 as usize);
            host.ok_or_else(|| NetworkError::Unknown("host", id.0.into()))
        };
        let [first, _] = [host(ends[0])?, host(ends[1])?];
        if ends[0] != ends[1] {
            return Ok(());
        }
        Err(NetworkError::SameHost(name.to_owned(), first.clone()))
    }

    /// Which hop leads from each host on the way to each: first the host that is gone to, then the host that
    /// is come from. Rows of hosts that no flow goes to are empty.
    pub(crate) fn routes(&self) -> Result<Vec<Vec<u32>>, NetworkError> {
        let mut routes = vec![Vec::new(); self.hosts.len()];
        for flow in &self.flows {
            let row: &mut Vec<u32> = &mut routes[flow.to.0 as usize];
            if row.is_empty() {
                *row = self.routes_to(flow.to);
            }
            if row[flow.from.0 as usize] == NONE {
                let [from, to] = [flow.from, flow.to].map(|id| self.hosts[id.0 as usize].clone());
                return Err(NetworkError::Unreachable(flow.name.clone(), from, to));
            }
        }
        Ok(routes)
    }

    /// The hosts from which it is one hop, then those from which it is two, and so on: of the hops that lead
    /// from a host to a nearer one, the first is found. O(hops times the longest way).
    fn routes_to(&self, to: HostId) -> Vec<u32> {
        let (mut row, mut away) = (vec![NONE; self.hosts.len()], vec![NONE; self.hosts.len()]);
        away[to.0 as usize] = 0;
        let (mut distance, mut is_found) = (0, true);
        while is_found {
            is_found = false;
            for (number, hop) in self.hops.iter().enumerate() {
                let [from, to] = [hop.result.from, hop.result.to].map(|id| id.0 as usize);
                if away[to] == distance && away[from] == NONE {
                    (away[from], row[from]) = (distance + 1, number as u32);
                    is_found = true;
                }
            }
            distance += 1;
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network of hosts named by letters, with links between pairs of them.
    fn network(hosts: &str, links: &[&str]) -> (Network, Vec<HostId>) {
        let mut network = Network::new(1);
        let ids: Vec<_> = hosts.chars().map(|c| network.host(&c.to_string()).unwrap()).collect();
        for name in links {
            let ends: Vec<_> = name.chars().map(|c| ids[hosts.find(c).unwrap()]).collect();
            let model = LineModel::default();
            network.link(name, [ends[0], ends[1]], [model.clone(), model]).unwrap();
        }
        (network, ids)
    }

    #[test]
    fn routes_have_the_fewest_hops_and_then_the_earlier_link() {
        // Two ways of two hops from a to d, and one of three that was added before; a circle.
        let (mut network, ids) =
            network("abcdef", &["ae", "ef", "fd", "ac", "ab", "bd", "cd", "ab"]);
        network.flow("flow", ids[0], ids[3]).unwrap();
        let row = network.routes().unwrap().swap_remove(3);
        let links: Vec<_> = row.iter().map(|hop| network.hops.get(*hop as usize)).collect();
        let names: Vec<_> =
            links.iter().map(|hop| hop.map_or("-", |hop| &hop.result.link)).collect();
        assert_eq!(names, ["ac", "bd", "cd", "-", "ef", "fd"]);
    }

    #[test]
    fn what_cannot_be_is_named() {
        let (mut two, ids) = network("abc", &["ab"]);
        let model = LineModel::default();
        let mut error = |ends| two.link("x", ends, [model.clone(), model.clone()]).unwrap_err();
        assert_eq!(
            error([ids[1], ids[1]]).to_string(),
            "\"x\" begins and ends at the host \"b\"; give it two hosts"
        );
        let other = error([ids[0], HostId(7)]);
        assert_eq!(other, NetworkError::Unknown("host", 7));
        let flow = two.flow("f", ids[0], ids[1]).unwrap();
        assert!(two.routes().is_ok());
        two.flow("g", ids[0], ids[2]).unwrap();
        let error = two.routes().unwrap_err().to_string();
        assert_eq!(error, "\"g\": no links lead from the host \"a\" to the host \"c\"; add one");
        for n in 3..HOSTS_MAX {
            two.host(&n.to_string()).unwrap();
        }
        let error = two.host("too many").unwrap_err();
        assert_eq!(error, NetworkError::TooMany("hosts", HOSTS_MAX));
        assert_eq!(flow, FlowId(0));
    }
}
