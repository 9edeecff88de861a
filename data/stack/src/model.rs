//! The configuration model of section 4.1: the performance of a spread of modules over elements.
//!
//! The communication infrastructure is a network of queues: elements serve pipes round-robin, and a
//! pipe holds the messages of one stream at one module. From the modules' costs and the streams'
//! contracts, [`Evaluation`] computes every symbol of the section. All values are integers;
//! quotients are rounded up, to the disadvantage of the stream.
//!
//! # Where the paper is inconsistent, and how this model resolves it
//! - `X_ave` and `X_avg` are the same. `U` lacks its argument: it is `U(p)`.
//! - `Wait_max(i, j)`, "the waiting time incurred on a message in stream i by some message of
//!   stream j", is printed with `Exec*(C, p, i)`, i's own time. But i waits for j's execution, so
//!   it is `Exec*(C, p, j)`; the same in `Wait_avg`.
//! - `prob(i, j)` is printed as `1 / ceil(X_avg(i) / X_avg(j))`: then a message would hardly ever wait for a
//!   stream that is busier than its own, and always for one that hardly sends. With the indices exchanged it
//!   is right: a message of j comes in one of `ceil(X_avg(j) / X_avg(i))` of i's inter-arrival times.
//! - `omega(i, k)` is printed with j on its right side: it is i. Its `X(i)` has no subscript: it is
//!   `X_max` for the worst case and `X_avg` for the average, and so are `Lambda` and `L`.
//! - `Lambda` sums over `Calc(C, i)`, which is nowhere defined: it is `Proc(C, i)`.
//! - `L(i)` takes `omega(i, 0)` where the loss burst covers the whole burst, which would be a
//!   negative wait: `omega(i, 0)` is 0, as is `omega(i, 1)`.
//! - `X`, `Wait` and `U` leave open how pipes are charged to elements. Here a module's input costs
//!   a pipe's get unless it is shepherded, and its output a hand-over, see [`Evaluation::exec`].
//!
//! - The slaves of data-parallel encryption are in the paper's measurements and not in its model.
//!   Here these worker threads shorten their master's `Exec` ([`Cost::among`]). All masters that
//!   may exist at once share them evenly, and their total load must not exceed what they give, as
//!   condition (1) requires of elements.
//!
//! - The paper's elements poll, so its `Lambda` has no wake-up. Here threads sleep, and `Lambda` has one
//!   [`WakeUp`] for each element in `Proc(C, i)`.
//!
//! [`Formulas::Printed`] uses `Wait` and `prob` literally, to compare both.

mod cost;
mod evaluation;
#[cfg(test)]
mod tests;

pub use cost::{Cost, Interface, Machine, Overheads, Slaves, WakeUp};
pub use evaluation::{Evaluation, Formulas, Latency};

use selvedge_units::Duration;

use crate::contract::Contract;
use crate::elements::ElementSet;

/// A stream of a configuration, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub usize);

/// One direction of a connection: its contract, its modules' costs and their elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Current traffic and quality.
    pub contract: Contract,
    /// The part of `D_max` that the network and the other host take.
    pub remote_delay: Duration,
    /// The modules in the order in which a message passes them.
    pub modules: Vec<Cost>,
    /// The elements that serve each module, one set for each. An empty set: not yet assigned.
    pub assigned: Vec<ElementSet>,
    /// Whether it was assigned by hand, so that no decision assigns it anew.
    pub is_pinned: bool,
}

impl Stream {
    /// A stream that is not assigned.
    #[must_use]
    pub fn new(contract: Contract, modules: Vec<Cost>) -> Self {
        let assigned = vec![ElementSet::EMPTY; modules.len()];
        Self { contract, remote_delay: Duration::ZERO, modules, assigned, is_pinned: false }
    }

    /// Assigns all modules to these elements.
    pub fn assign_all(&mut self, elements: ElementSet) {
        self.assigned.fill(elements);
    }

    /// `Proc(C, i)`: the elements that serve any of its modules.
    #[must_use]
    pub fn elements(&self) -> ElementSet {
        self.assigned.iter().fold(ElementSet::EMPTY, |all, &one| all.or(one))
    }

    /// The part of `D_max` that is left for this host.
    #[must_use]
    pub const fn allowed(&self) -> Duration {
        Duration(self.contract.quality.delay.0.saturating_sub(self.remote_delay.0))
    }
}
