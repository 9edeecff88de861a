//! A link that is shared by a tree of weights.

use selvedge_data_sched::{Discipline, Scheduler, Tree};

use super::{Link, LinkParams};

impl Link {
    /// A link without streams; under `hwfq` its streams hang below the nodes of `tree`, as their
    /// contracts' `parent` states. Other disciplines ignore it.
    #[must_use]
    pub fn with_tree(params: LinkParams, tree: &Tree) -> Self {
        let mut link = Self::new(params);
        if params.discipline == Discipline::Hwfq {
            link.scheduler = Scheduler::with_tree(tree);
        }
        link
    }
}
