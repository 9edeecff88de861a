//! What this host would refuse of a node file's stacks, found by connecting its streams over the loopback.

use std::path::Path;

use selvedge_comm_stack::endpoint::{ConnectError, Connection, Endpoint, Options};
use selvedge_control_config::{LinkConfig, NodeConfig, carried};
use selvedge_data_stack::contract::Promise;
use selvedge_units::Duration;

use crate::contract_terms::{ContractTerms, LinkRate, refused};
use crate::stack_spec::{EndSpec, StackSpec};

/// The most streams of a link that are connected to find what this host refuses.
const REHEARSED_MAX: usize = 64;

/// Why this host would refuse the stack of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackRefusal {
    /// The stream's place in the node file.
    pub stream: usize,
    /// What the link grants it, and what the host lacks.
    pub why: String,
}

/// The first stream of each link with reserved processor time whose stack this host would refuse now. The streams are
/// connected over the loopback, as they would be to their receivers. Links whose time can't be reserved here are left
/// out: their contracts are estimates.
#[must_use]
pub fn refused_stacks(config: &NodeConfig) -> Vec<StackRefusal> {
    let of_link = |(at, link): (usize, &LinkConfig)| {
        link.stack_share?;
        let here = at_loopback(EndSpec::new(link, Path::new("")).reserving())?;
        here.view().reservation?;
        let there = at_loopback(Options::default())?;
        let mut connections = Vec::new();
        let streams = config.streams.iter().enumerate().filter(|(_, stream)| stream.link == at);
        let first = streams.take(REHEARSED_MAX).find_map(|(n, stream)| {
            let stack = stream.stack.as_ref()?;
            let spec = StackSpec::new(config, stream, Path::new(""))?;
            let packet = carried(stack, link, stream.spec.to).message;
            let terms = ContractTerms::new(&spec, packet, LinkRate::new(link.rate));
            let [mut out, back] = terms.contracts(terms.share());
            // The other end has no reserved time; what it refuses says nothing.
            out.quality.promise = Promise::Wanted;
            match here.connect(there.address(), &stack.to_string(), out, back) {
                Ok(connection) => {
                    connections.extend([Some(connection), there.accept(Duration::ZERO)]);
                    None
                }
                Err(why @ ConnectError::Local(_)) => {
                    Some(StackRefusal { stream: n, why: refused(terms.share(), &why) })
                }
                Err(_) => None,
            }
        });
        Connection::close_all(connections.into_iter().flatten().collect());
        first
    };
    config.links.iter().enumerate().filter_map(of_link).collect()
}

fn at_loopback(options: Options) -> Option<Endpoint> {
    Endpoint::bind(([127, 0, 0, 1], 0).into(), options).ok()
}
