//! `bench readiness`: what it costs to learn which sockets are ready, beside epoll, io_uring and poll.

use std::time::Duration;

use selvedge_cli_terminal::{Failure, Table};
use selvedge_lab_measure::services::readiness::{Costs, readiness};
use serde_json::json;

use super::{Measurement, tenths};

const SOCKETS: [usize; 2] = [1000, 10_000];

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let samples = (seconds * 100).clamp(100, 2000) as usize;
    let mut table = Table::default().right(["sockets"]).left(["way"]).right([
        "look at nothing ns",
        "at one ns",
        "at 64, each ns",
        "sender pays ns",
        "wake-up us",
        "p99 us",
    ]);
    let mut list = Vec::new();
    for sockets in SOCKETS {
        let time = Duration::from_secs(seconds) / SOCKETS.len() as u32;
        for cost in readiness(sockets, samples, time).map_err(Failure::failed)? {
            let Costs { way, idle_ns, one_ns, each_of_64_ns, sending_ns, wake_us } = cost;
            table.row([
                sockets.to_string(),
                way.name().to_owned(),
                format!("{idle_ns:.0}"),
                format!("{one_ns:.0}"),
                format!("{each_of_64_ns:.0}"),
                format!("{sending_ns:.0}"),
                format!("{:.1}", wake_us.0),
                format!("{:.1}", wake_us.1),
            ]);
            list.push(json!({
                "sockets": sockets,
                "way": way.name(),
                "look_idle_ns": tenths(idle_ns),
                "look_one_ns": tenths(one_ns),
                "look_64_each_ns": tenths(each_of_64_ns),
                "sender_pays_ns": tenths(sending_ns),
                "wake_us": tenths(wake_us.0),
                "wake_p99_us": tenths(wake_us.1),
            }));
        }
    }
    let text = format!(
        "UDP sockets on the loopback, medians of {samples} samples, or of as many as could be taken in \
         {seconds} s in all. A look says which are ready, and reads \
         nothing; what the sender pays is beyond the same with nobody watching; a wake-up is from sending \
         to being told.\n{table}"
    );
    Ok(Measurement { name: "readiness", json: list.into(), text })
}
