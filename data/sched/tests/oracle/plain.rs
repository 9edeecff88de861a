//! The crate's generated traces in the oracle's own terms. Data alone: the oracle shares no rule.

use selvedge_data_sched::replay::{Arrivals, Trace as Made};
use selvedge_data_stream::{Kind, Late};

use super::{Stream, Trace};

/// A trace of the crate in the oracle's form.
pub(crate) fn plain(made: &Made) -> Trace {
    let streams = made.streams.iter().map(|stream| {
        let contract = &stream.contract;
        let window = contract.windows.of(Kind::Data);
        let mut plain = Stream::plain(&*stream.id, contract.period.0);
        plain.window = (window.lose.into(), window.of.into());
        plain.send_late = contract.late == Late::Send;
        plain.work_conserving = contract.work_conserving;
        plain.first_deadline = stream.first_deadline.map(|deadline| deadline.0);
        plain.priority = contract.priority.into();
        plain.weight = contract.weight.into();
        plain.class = contract.class.name();
        plain.parent = contract.parent as usize;
        plain
    });
    let arrivals = match &made.arrivals {
        Arrivals::Backlogged => None,
        Arrivals::Listed(listed) => {
            let plain = listed.iter().map(|a| (a.at.0, a.stream.0 as usize, a.size.0));
            Some(plain.collect())
        }
    };
    let nodes = made.tree.nodes().iter().map(|node| (node.parent as usize, node.weight.into()));
    Trace {
        discipline: made.discipline.name(),
        ticks: made.ticks,
        streams: streams.collect(),
        arrivals,
        nodes: nodes.collect(),
        remap: made.tree.update().map(|update| update.0),
    }
}
