//! The cost of this machine's late wake-ups to a link, for `check` and `doctor`: measured for a
//! fifth of a second on a thread that requests the same scheduling from the kernel as the engine's.

use selvedge_cli_terminal::Table;
use selvedge_control_config::{LinkConfig, NodeConfig, Placement};
use selvedge_data_link::{Paced, default_catch_up};
use selvedge_os::probe;
use selvedge_place_engine::engine::spin;
use selvedge_units::{Bitrate, Bytes, Duration};
use serde::Serialize;

/// The duration of the measurement.
const LASTS: Duration = Duration::from_millis(200);

/// How late a thread woke up, the earliest first; at least once.
pub(crate) struct WakeUps(Vec<Duration>);

/// The cost to a link.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    /// The link's name.
    link: String,
    rate_bps: u64,
    /// How late the link's thread wakes up, less the time for which it polls the clock.
    late_p50_ms: f64,
    late_p99_ms: f64,
    late_most_ms: f64,
    /// The share of the rate that is lost while frames wait, without catch-up.
    lost_without_catch_up: f64,
    catch_up_bytes: u64,
    /// The part of it that is lost with the link's `catch_up`.
    lost: f64,
}

impl WakeUps {
    /// Measures; `None` if no thread or event can be created.
    pub(crate) fn measure() -> Option<Self> {
        let mut late = probe::lateness(LASTS).ok()?;
        late.sort_unstable();
        (!late.is_empty()).then_some(Self(late))
    }

    /// The cost to a link; `shortest` is the shortest delay of its streams.
    pub(crate) fn cost(&self, link: &LinkConfig, shortest: Option<Duration>) -> Cost {
        let spin = spin(link);
        let late: Vec<Duration> = self.0.iter().map(|late| *late - spin).collect();
        let at = |percent: usize| late[(late.len() * percent).div_ceil(100) - 1].as_millis_f64();
        let catch_up =
            link.catch_up.unwrap_or_else(|| default_catch_up(link.rate, link.mtu, shortest));
        let paced = Paced { rate: link.rate, mtu: link.mtu, burst: link.burst, catch_up };
        Cost {
            link: link.name.clone(),
            rate_bps: link.rate.0,
            late_p50_ms: at(50),
            late_p99_ms: at(99),
            late_most_ms: at(100),
            lost_without_catch_up: Paced { catch_up: Bytes(0), ..paced }.lost(&late),
            catch_up_bytes: catch_up.0,
            lost: paced.lost(&late),
        }
    }

    /// The costs to those links of a node that it paces itself.
    pub(crate) fn costs(&self, node: &NodeConfig) -> Vec<Cost> {
        let delays = |n: usize| {
            let streams = node.streams.iter().filter(move |stream| stream.link == n);
            streams.filter_map(|stream| stream.spec.contract.delay).min()
        };
        let links = node.links.iter().enumerate();
        let paced =
            links.filter(|(_, link)| link.placement != Placement::Kernel && !link.is_measured());
        paced.map(|(n, link)| self.cost(link, delays(n))).collect()
    }
}

impl Cost {
    /// A line of text.
    pub(crate) fn text(&self) -> String {
        let [half, most] = [self.late_p50_ms, self.late_most_ms].map(|ms| format!("{ms:.2} ms"));
        format!(
            "{}: wake-ups here are {half} late at the median, {most} at worst; at {} that \
             costs {} of the link without catching up, {} with {:.0} kB of it",
            self.link,
            Bitrate(self.rate_bps),
            percent(self.lost_without_catch_up),
            percent(self.lost),
            self.catch_up_bytes as f64 / 1e3,
        )
    }
}

/// The costs to some links.
pub(crate) fn table(costs: &[Cost]) -> Table {
    let mut table = Table::default()
        .left(["wake-ups on a link of"])
        .right(["late", "late p99", "cost"])
        .right(["with catch_up of", "cost"]);
    for cost in costs {
        table.row([
            cost.link.clone(),
            format!("{:.2} ms", cost.late_p50_ms),
            format!("{:.2} ms", cost.late_p99_ms),
            percent(cost.lost_without_catch_up),
            format!("{:.0} kB", cost.catch_up_bytes as f64 / 1e3),
            percent(cost.lost),
        ]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_data_sched::Discipline;

    #[test]
    fn a_link_is_told_what_its_wake_ups_cost() {
        let mut late = vec![Duration::from_micros(100); 99];
        late.push(Duration::from_millis(5));
        let link = LinkConfig::new("up", Bitrate::from_mbps(12), Discipline::Dwcs);
        let text = WakeUps(late.clone()).cost(&link, Some(Duration::from_secs(1))).text();
        assert_eq!(
            text,
            "up: wake-ups here are 0.10 ms late at the median, 5.00 ms at worst; at 12 Mbit/s that \
             costs 13.0 % of the link without catching up, 0.0 % with 30 kB of it"
        );
        // A tenth of 10 ms is caught up.
        let fast = LinkConfig::new("up", Bitrate::from_mbps(100), Discipline::Dwcs);
        let cost = WakeUps(late.clone()).cost(&fast, Some(Duration::from_millis(10)));
        assert_eq!(cost.catch_up_bytes, 12_500);
        assert!(cost.lost > 0.2 && cost.lost < cost.lost_without_catch_up);
        // The engine polls the clock for the last 100 us.
        let exact = LinkConfig { catch_up: Some(Bytes(0)), ..fast };
        let cost = WakeUps(late).cost(&exact, None);
        assert!(cost.late_p50_ms.abs() < 1e-9 && (cost.late_most_ms - 4.9).abs() < 1e-9);
    }
}
