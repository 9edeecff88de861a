//! `bench dataplane`: frames a second through queues, decisions and a sink that takes everything,
//! on one core; beside DPDK's `rte_sched` where that is installed.

use selvedge_cli_terminal::{Failure, Table};
use selvedge_data_sched::Discipline;
use selvedge_lab_measure::Load;
use selvedge_lab_measure::dataplane::dataplane;
use serde_json::json;

use super::peer::RteSched;
use super::{Measurement, samples, tenths};
use crate::cli::BenchArgs;

const STREAMS: [u32; 4] = [32, 1024, 4096, 65_536];
const DISCIPLINES: [Discipline; 2] = [Discipline::Dwcs, Discipline::Edf];

pub(super) fn measure(args: &BenchArgs) -> Result<Measurement, Failure> {
    let samples = samples(args.seconds, STREAMS.len() * DISCIPLINES.len() * 2);
    let peer = RteSched::build();
    let mut table = Table::default().left(["discipline"]).right([
        "streams",
        "ns a frame",
        "million frames/s",
        "rte_sched's",
    ]);
    let mut list = Vec::new();
    let mut reason = None;
    for streams in STREAMS {
        // Just before ours, on the same core or not as the system likes.
        let its = match &peer {
            Ok(peer) => peer.measure(streams).map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        for discipline in DISCIPLINES {
            let done = dataplane(Load { discipline, streams, ties: args.ties }, samples);
            table.row([
                discipline.name().to_owned(),
                streams.to_string(),
                format!("{:.1}", done.ns),
                format!("{:.1}", done.per_second / 1e6),
                its.as_ref().map_or_else(|_| "-".to_owned(), |mfps| format!("{mfps:.1}")),
            ]);
            let mut row = json!({
                "discipline": discipline.name(),
                "streams": streams,
                "ns": tenths(done.ns),
                "mfps": tenths(done.per_second / 1e6),
                "rte_sched_mfps": its.as_ref().ok().map(|mfps| tenths(*mfps)),
            });
            if let Err(why) = &its {
                row["rte_sched_missing"] = json!(why);
                reason = Some(why.clone());
            }
            list.push(row);
        }
    }
    let reason = reason.map_or_else(String::new, |why| format!("rte_sched not measured: {why}\n"));
    let text = format!(
        "Enqueue, decide, dequeue, count; bursts of 32, 2 frames a stream waiting, one core; \
         medians of\n{samples} samples of 0.3 ms. Beside it DPDK's rte_sched, which keeps no \
         deadlines and no windows.\n{table}{reason}"
    );
    Ok(Measurement { name: "dataplane", json: json!(list), text })
}
