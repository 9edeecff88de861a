//! How much of a link's rate is used while frames wait, at rates from 1.5 to 300 Mbit/s, on a machine as it
//! is and beside two endless loops. Arguments: runs (5), seconds of each (5), bytes of `burst` (a packet),
//! bytes of `catch_up` (the default). With `wake-ups` in place of them, it prints how late the engine's thread
//! woke up at 10 Mbit/s beside two loops: the thousandths of that, in microseconds.
//!
//! `cargo run --release -p selvedge-lab-measure --no-default-features --features pacing --example pacing`

use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_lab_measure::pacing::{PacingError, paced};
use selvedge_units::{Bitrate, Bytes, Duration};

const RATES_KBPS: [u64; 5] = [1_500, 10_000, 19_000, 100_000, 300_000];
/// What is offered, in percent of the rate.
const OFFERED: u64 = 110;

fn main() -> Result<(), PacingError> {
    if std::env::args().nth(1).as_deref() == Some("wake-ups") {
        let link = LinkConfig::new("pacing", Bitrate::from_mbps(10), Discipline::Dwcs);
        let lateness = paced(&link, OFFERED, Duration::from_secs(10), 2)?.lateness;
        let late = |n| lateness.quantile(f64::from(n) / 1000.0).unwrap_or_default();
        (0..=1000).for_each(|n| println!("{}", late(n).0 / 1000));
        return Ok(());
    }
    let number = |n: usize| std::env::args().nth(n).and_then(|text| text.parse::<u64>().ok());
    let (runs, seconds) = (number(1).unwrap_or(5), number(2).unwrap_or(5));
    println!(
        "link_used_while_frames_wait, and how late wake-ups were: p10, p50, p90, p99, at most"
    );
    for loops in [0, 2] {
        for rate in RATES_KBPS.map(Bitrate::from_kbps) {
            let mut link = LinkConfig::new("pacing", rate, Discipline::Dwcs);
            link.burst = number(3).map_or(link.burst, Bytes).max(link.mtu);
            link.catch_up = number(4).map(Bytes);
            for run in 1..=runs {
                let paced = paced(&link, OFFERED, Duration::from_secs(seconds), loops)?;
                let late = |share| paced.lateness.quantile(share).unwrap_or_default().0 / 1000;
                let late =
                    [0.1, 0.5, 0.9, 0.99, 1.0].map(|share| late(share).to_string()).join(", ");
                println!("{rate}, {loops} loops, run {run}: {:.4}; {late} us", paced.used);
            }
        }
    }
    Ok(())
}
