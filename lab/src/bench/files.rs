//! `bench files`: streams of a media file a core, beside nginx and FFmpeg on the same file.

use std::path::PathBuf;

use selvedge_cli_terminal::{Failure, Table};
use selvedge_lab_measure::files::{Server, Serving};
use selvedge_lab_measure::median;
use selvedge_units::Duration;
use serde_json::json;

use super::Measurement;

const CLIP: &str = "car-detection.mp4";
const ROUNDS: usize = 3;
/// Who serves, and how many streams: a process for each is more than a processor does for many.
const SERVERS: [(&str, Server, usize); 3] = [
    ("coprocessor, packed file", Server::Coprocessor, 60),
    ("nginx, sendfile", Server::Nginx, 60),
    ("ffmpeg -c copy", Server::Ffmpeg, 10),
];

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../clips")).join(CLIP);
    let serving = Serving::prepare(&file).map_err(Failure::failed)?;
    let lasts = Duration::from_secs(seconds.min(10));
    let mut all = vec![Vec::new(); SERVERS.len()];
    for _ in 0..ROUNDS {
        for (shares, (_, server, streams)) in all.iter_mut().zip(SERVERS) {
            shares.push(serving.measure(server, streams, lasts).map_err(Failure::failed)?);
        }
    }
    let share = |shares: &[f64]| median(shares.iter().copied());
    let ours = share(&all[0]);
    let mut table = Table::default().left([""]).right(["streams", "a core", "of ours"]);
    let mut rows = Vec::new();
    for ((name, _, streams), shares) in SERVERS.into_iter().zip(&all) {
        let one = share(shares);
        table.row([
            name.to_owned(),
            streams.to_string(),
            format!("{:.0}", 1.0 / one),
            format!("{:.2}", ours / one),
        ]);
        rows.push(json!({ "server": name, "streams": streams, "streams_a_core": 1.0 / one }));
    }
    let text = format!(
        "Streams of {CLIP}, {}, at its own pace, over the loopback; medians of {ROUNDS} rounds.\n{table}",
        serving.rate
    );
    Ok(Measurement { name: "files", json: json!({ "clip": CLIP, "servers": rows }), text })
}
