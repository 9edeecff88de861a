//! A snapshot as plain tables, for `--once`.

use selvedge_cli_terminal::Table;
use selvedge_control_config::view::{LinkSnapshot, NodeSnapshot};

use super::figures;

/// The node in a line, its links and its streams in a table each.
pub(super) fn tables(node: &NodeSnapshot) -> String {
    let mut links = Table::default()
        .left(["link", "discipline"])
        .right(["rate", "sent", "offered", "use", "of allowed"])
        .right(["late", "late p99", "waiting"]);
    for link in &node.links {
        links.row([
            link.name.clone(),
            link.discipline.clone(),
            figures::rate(link.rate_bps),
            figures::rate(link.sent_bps),
            figures::rate(link.offered_bps),
            figures::share(used(link)),
            figures::share(link.used_share),
            figures::millis(link.late_p50_ms),
            figures::millis(link.late_p99_ms),
            link.queued_frames.to_string(),
        ]);
    }
    let mut streams = Table::default()
        .left(["stream", "link", "state"])
        .right(["rate", "encoder", "on time", "decodable", "violations", "wait", "wait p99"])
        .right(["not sent", "spared"])
        .left(["dropped"]);
    for stream in &node.streams {
        streams.row([
            stream.name.clone(),
            stream.link.clone(),
            stream.state.to_string(),
            figures::rate(stream.sent_bps),
            stream.encoder_bps.map_or_else(|| "-".to_owned(), figures::rate),
            figures::share(stream.on_time_share),
            figures::share(stream.decodable_share),
            stream.violations.to_string(),
            figures::millis(stream.queueing_mean_ms),
            figures::millis(stream.queueing_p99_ms),
            figures::bytes(stream.dropped_bytes),
            figures::millis(stream.spared_ms),
            figures::drops(&stream.dropped),
        ]);
    }
    let paths = paths(node);
    let mut head = Table::default().left(["node"]).right(["up"]);
    head.row([node.name.clone(), figures::uptime(node.uptime_ms)]);
    format!("{head}\n{links}\n{paths}{streams}")
}

/// The paths of bonds; empty if there are none.
fn paths(node: &NodeSnapshot) -> String {
    let mut table = Table::default()
        .left(["path", "link", "state"])
        .right(["rate", "sent", "loss", "there and back", "waiting"])
        .left(["why"]);
    let all = node.links.iter().flat_map(|link| link.paths.iter().map(move |path| (link, path)));
    let mut is_any = false;
    for (link, path) in all {
        is_any = true;
        let is_measured = path.is_measured();
        let measured = |figure: f64| Some(figure).filter(|_| is_measured);
        let state = match path.active {
            true => "carries",
            false if is_measured => "probed",
            false => "unmeasured",
        };
        table.row([
            path.name.clone(),
            link.name.clone(),
            state.to_owned(),
            figures::rate(path.rate_bps),
            figures::rate(path.sent_bps),
            figures::share(measured(path.loss)),
            figures::millis(measured(path.round_trip_ms)),
            figures::millis(measured(path.queueing_ms)),
            path.detail.clone(),
        ]);
    }
    if is_any { format!("{table}\n") } else { String::new() }
}

/// The share of a link's rate that is used.
pub(super) fn used(link: &LinkSnapshot) -> Option<f64> {
    (link.rate_bps > 0).then(|| link.sent_bps as f64 / link.rate_bps as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::state::tests::studio;

    #[test]
    fn a_snapshot_fits_a_pipe() {
        let expected = "\
node         up
studio  0:01:01

link    discipline         rate         sent      offered     use  of allowed    late  late p99  waiting
uplink  dwcs        3.00 Mbit/s  2.94 Mbit/s  4.10 Mbit/s  98.0 %      99.1 %  0.1 ms    0.7 ms        7

stream  link    state           rate     encoder  on time  decodable  violations     wait  wait p99  not sent  spared  dropped
speech  uplink  running   256 kbit/s           -  100.0 %    100.0 %           0  10.0 ms    180 ms       0 B       -  0
lobby   uplink  running   188 kbit/s  200 kbit/s   61.0 %     61.0 %          12  45.1 ms    180 ms    124 kB  0.3 ms  49: too-late 40, reference-lost 9
door    uplink  starting           0           -        -          -           0        -         -       0 B       -  0
";
        let mut node = studio();
        let lobby = node.streams.iter_mut().find(|stream| stream.name == "lobby");
        lobby.expect("it is there").encoder_bps = Some(200_000);
        assert_eq!(tables(&node), expected);
    }

    #[test]
    fn a_link_without_a_rate_has_no_use() {
        assert_eq!(used(&LinkSnapshot::default()), None);
    }
}
