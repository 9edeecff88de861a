//! The generated traces of the crate, in the plain form of the oracle.

use selvedge_sched::replay::Arrivals;
pub(crate) use selvedge_sched::trace::generate::VECTORS;
use selvedge_sched::trace::generate::vector;
use selvedge_stream::{Kind, Late};

use super::{Stream, Trace};

/// The trace of a seed, and a name for it: `07-dwcs98-arrivals`.
pub(crate) fn trace(seed: u64) -> (String, Trace) {
    let (name, trace) = vector(seed);
    (name, plain(&trace))
}

/// Weights and sizes are left out: no discipline of the oracle looks at them.
pub(crate) fn plain(trace: &selvedge_sched::replay::Trace) -> Trace {
    let streams = trace.streams.iter().map(|stream| {
        let contract = &stream.contract;
        let window = contract.windows.of(Kind::Data);
        Stream {
            id: stream.id.clone(),
            period: contract.period.0,
            window: (window.lose.into(), window.of.into()),
            send_late: contract.late == Late::Send,
            work_conserving: contract.work_conserving,
            first_deadline: stream.first_deadline.map(|first| first.0),
            priority: contract.priority.into(),
        }
    });
    let arrivals = match &trace.arrivals {
        Arrivals::Backlogged => None,
        Arrivals::Listed(listed) => {
            Some(listed.iter().map(|a| (a.at.0, a.stream.0 as usize)).collect())
        }
    };
    Trace {
        discipline: trace.discipline.name(),
        ticks: trace.ticks,
        streams: streams.collect(),
        arrivals,
    }
}
