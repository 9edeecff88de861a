//! What was measured under each load, as the table and the plots of Figures 5 and 6.

use super::{Measured, Placement};
use crate::outcome::{Cell, Outcome, Table};
use crate::plot::{Axis, Plot, Series};

/// Both experiments' table and plots.
pub(in super::super) fn show(placement: Placement, all: &[Measured]) -> Outcome {
    let where_ = match placement {
        Placement::Inline => "in the producers' process",
        Placement::Coprocessor => "in a coprocessor",
    };
    let mut outcome = Outcome::default();
    let mut table = Table::new(
        format!("Two streams of 260 kbit/s, scheduled {where_}"),
        &[
            "web load wanted",
            "processors busy",
            "stream 1, kbit/s",
            "stream 2, kbit/s",
            "queueing delay, s",
            "lateness p99.9, us",
            "longest, us",
            "a bare real-time thread's p99.9, us",
            "taken",
        ],
    );
    for one in all {
        table.row([
            Cell::from(format!("{:.0} %", one.load * 100.0).as_str()),
            Cell::from(format!("{:.0} %", one.cpu * 100.0).as_str()),
            Cell::rounded(one.rates[0], 1),
            Cell::rounded(one.rates[1], 1),
            Cell::rounded(one.delay, 3),
            Cell::rounded(one.late.0, 0),
            Cell::rounded(one.late.1, 0),
            Cell::rounded(one.floor, 0),
            Cell::from(u64::from(one.taken)),
        ]);
    }
    outcome.tables.push(table);
    let series = |of: fn(&Measured) -> Vec<(f64, f64)>| -> Vec<Series> {
        let line = |one: &Measured| Series {
            name: if one.load > 0.0 {
                format!("{:.0} % web load", one.load * 100.0)
            } else {
                "no load".to_owned()
            },
            points: of(one),
            marked: false,
            broad: one.load == 0.0,
        };
        all.iter().map(line).collect()
    };
    outcome.plots.push(Plot {
        title: format!("Bandwidth of both streams, scheduled {where_}"),
        x: Axis::linear("seconds"),
        y: Axis::linear("kbit/s"),
        series: series(|one| one.by_second.clone()),
    });
    outcome.plots.push(Plot {
        title: format!("Queueing delay of both streams, scheduled {where_}"),
        x: Axis::linear("seconds"),
        y: Axis::linear("mean delay, s"),
        series: series(|one| one.delays.clone()),
    });
    outcome.note(
        "Lateness: by how much a packet comes later after the one before it than the link's rate \
         has it. The producers keep 128 frames ahead of the link; the queueing delay is from a \
         frame's offering to its packet at the receiving socket, by the kernel's stamp. Taken: \
         where a real-time thread that does nothing is itself held up for a millisecond, the machine \
         was kept from us, and it is measured again, three times at most.",
    );
    outcome
}
