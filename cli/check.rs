//! `selvedge check`: all that can be known of a node file before anything is started.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use selvedge_cli_terminal::{Align, Failure, Table, input};
use selvedge_control_config::{
    self, ConfigErrors, ConfigFault, LONGEST_FILE, LinkSummary, NodeConfig, Parsed, Summary,
};

use crate::trace::admit::{self, LinkReport, Media};
use crate::wake_ups::{Cost, WakeUps};

#[derive(Debug, Args)]
pub(crate) struct NodeFileArgs {
    /// The node file
    #[arg(value_name = "NODE.toml")]
    pub(crate) file: PathBuf,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A node file, read; relative paths in it are relative to its folder.
pub(crate) struct NodeFile {
    pub(crate) config: NodeConfig,
    pub(crate) map: selvedge_control_config::SourceMap,
    pub(crate) base: PathBuf,
    /// Its name, for messages.
    pub(crate) name: String,
}

/// Reads a node file.
pub(crate) fn read(path: &Path) -> Result<NodeFile, Failure> {
    let name = path.display().to_string();
    let text = input::text(path, LONGEST_FILE as u64)
        .map_err(|why| Failure::input(format!("{name}: {why}")))?;
    let Parsed { config, map } = selvedge_control_config::parse(&text, &name)
        .map_err(|errors| Failure::input(lines(&errors)))?;
    let base = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    Ok(NodeFile { config, map, base, name })
}

/// The errors as lines without the last line feed.
pub(crate) fn lines(errors: &ConfigErrors) -> String {
    errors.to_string().trim_end().to_owned()
}

impl NodeFile {
    /// Errors in the value of one key of each stream named, at their places in the file.
    pub(crate) fn errors(&self, of: impl IntoIterator<Item = (String, String)>) -> ConfigErrors {
        let mut errors = ConfigErrors::new(&self.name);
        for (key, why) in of {
            errors.push_key(&self.map, &key, ConfigFault::Machine(why));
        }
        errors
    }
}

pub(crate) fn command(args: &NodeFileArgs) -> Result<(), Failure> {
    let file = read(&args.file)?;
    let mut summary = file.config.summary();
    let measured = media(&file, &mut summary)?;
    let admission = admit::links(&file.config, &measured);
    let wake_ups = WakeUps::measure().map_or_else(Vec::new, |late| late.costs(&file.config));
    let mut out = std::io::stdout().lock();
    if args.json {
        let checked = Checked { summary: &summary, admission, wake_ups };
        writeln!(out, "{}", serde_json::to_string(&checked).map_err(Failure::failed)?)?;
    } else {
        write!(out, "{}", table(&file.name, &summary))?;
        for LinkReport { link, report } in admission {
            writeln!(out, "\n{link} ({}): {}", report.discipline, report.text)?;
        }
        for cost in wake_ups {
            writeln!(out, "\n{}.", cost.text())?;
        }
    }
    Ok(())
}

/// All that is printed as JSON.
#[derive(Serialize)]
struct Checked<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    /// Whether its streams fit, for each link of whose streams all media are measured.
    admission: Vec<LinkReport>,
    /// What late wake-ups cost each link that the node paces itself.
    wake_ups: Vec<Cost>,
}

/// Without GStreamer only the presence of files can be told.
#[cfg(not(feature = "gstreamer"))]
fn media(file: &NodeFile, _summary: &mut Summary) -> Result<Vec<Option<Media>>, Failure> {
    let mut wrong = Vec::new();
    for stream in &file.config.streams {
        let selvedge_control_config::SourceUri::File { path, .. } = &stream.source else {
            continue;
        };
        if let Err(error) = std::fs::metadata(file.base.join(path)) {
            wrong.push((
                format!("stream.{}.source", stream.spec.name),
                format!("\"{path}\": {error}"),
            ));
        }
    }
    if wrong.is_empty() {
        Ok(vec![None; file.config.streams.len()])
    } else {
        Err(Failure::input(lines(&file.errors(wrong))))
    }
}

/// Opens every file and notes what it needs. Other sources may be absent until the node runs, but
/// what they are made of must make sense.
#[cfg(feature = "gstreamer")]
fn media(file: &NodeFile, summary: &mut Summary) -> Result<Vec<Option<Media>>, Failure> {
    use selvedge_control_config::SourceUri;
    use selvedge_media::inspect;
    use selvedge_place_coprocessor::feeder::Feeder;
    use selvedge_units::{Bytes, Duration};

    let mut wrong = Vec::new();
    let mut measured = vec![None; file.config.streams.len()];
    for (stream, measured) in file.config.streams.iter().zip(&mut measured) {
        let SourceUri::File { path, .. } = &stream.source else {
            if let SourceUri::Record { path, repeat, .. } = &stream.source {
                if let Err(error) = Feeder::open(&file.base.join(path), *repeat) {
                    wrong.push((format!("stream.{}.source", stream.spec.name), error.to_string()));
                }
            } else if let Err(error) = inspect::description(&stream.source) {
                wrong.push((format!("stream.{}.source", stream.spec.name), error.to_string()));
            }
            continue;
        };
        match inspect::frames(&file.base.join(path)) {
            Ok(frames) => {
                let total: Bytes = frames.iter().map(|f| f.size).sum();
                let lasts = frames.last().map_or(Duration::ZERO, |f| f.decode_time);
                let period = Duration(lasts.0 / (frames.len() as u64).max(2).saturating_sub(1));
                summary.offer(&stream.spec.name, total / (lasts + period));
                let largest = frames.iter().map(|f| f.size).max().unwrap_or_default();
                let gap = |pair: &[inspect::WireFrame]| {
                    pair[1].decode_time.0.saturating_sub(pair[0].decode_time.0)
                };
                let closest = frames.windows(2).map(gap).min().map_or(period, Duration);
                let mean = Bytes(total.0.div_ceil(frames.len().max(1) as u64));
                *measured = Some(Media { mean, period, largest, closest });
            }
            Err(error) => {
                wrong.push((format!("stream.{}.source", stream.spec.name), error.to_string()))
            }
        }
    }
    if wrong.is_empty() { Ok(measured) } else { Err(Failure::input(lines(&file.errors(wrong)))) }
}

fn table(file: &str, summary: &Summary) -> String {
    let unknown = || "?".to_owned();
    let rate = |bps: u64| format!("{:.0} kbit/s", bps as f64 / 1e3);
    let share = |share: Option<f64>| share.map_or_else(unknown, |s| format!("{:.0} %", s * 100.0));
    let mut links = Table::new(&[
        ("link", Align::Left),
        ("rate", Align::Right),
        ("discipline", Align::Left),
        ("selection", Align::Left),
        ("streams", Align::Right),
        ("needed", Align::Right),
    ]);
    for link in &summary.links {
        links.row([
            link.name.clone(),
            rate(link.rate_bps),
            link.discipline.clone(),
            if link.selection { "yes" } else { "no" }.to_owned(),
            link.streams.to_string(),
            share(link.share),
        ]);
    }
    let mut streams = Table::new(&[
        ("stream", Align::Left),
        ("link", Align::Left),
        ("source", Align::Left),
        ("to", Align::Left),
        ("period", Align::Right),
        ("window", Align::Left),
        ("delay", Align::Right),
        ("needs", Align::Right),
        ("of link", Align::Right),
        ("memory", Align::Right),
    ]);
    for stream in &summary.streams {
        streams.row([
            stream.name.clone(),
            stream.link.clone(),
            stream.source.clone(),
            stream.to.clone(),
            stream.period_ms.map_or_else(|| "auto".to_owned(), |ms| format!("{ms} ms")),
            stream.window.clone(),
            format!("{} ms", stream.delay_ms),
            stream.offered_bps.map_or_else(unknown, rate),
            share(stream.share),
            format!("{:.1} MB", stream.memory_bytes as f64 / 1e6),
        ]);
    }
    let carried = |stream: &selvedge_control_config::StreamSummary| {
        let stack = stream.stack.as_ref()?;
        Some(format!(
            "\n{} goes by {}: packets of at most {} B, and {} B of headers on each.",
            stream.name, stack.line, stack.packet_bytes, stack.header_bytes
        ))
    };
    let stacks: String = summary.streams.iter().filter_map(carried).collect();
    let stacks = if stacks.is_empty() { stacks } else { format!("{stacks}\n") };
    let trees: String = summary.links.iter().filter_map(tree).collect();
    let listen = &summary.listen;
    let memory = summary.memory_bytes as f64 / 1e6;
    format!(
        "{file} is right: node \"{}\", page at http://{listen}/, at most {memory:.1} MB of frames \
         waiting.\n\n{links}\n{streams}{stacks}{trees}",
        summary.name
    )
}

/// How a link is shared, if it is by a tree.
fn tree(link: &LinkSummary) -> Option<String> {
    if link.tree.is_empty() {
        return None;
    }
    let mut table = Table::new(&[
        ("shared by", Align::Left),
        ("", Align::Left),
        ("below", Align::Left),
        ("weight", Align::Right),
        ("owns", Align::Right),
    ]);
    for owner in &link.tree {
        table.row([
            owner.name.clone(),
            if owner.stream { "stream" } else { "node" }.to_owned(),
            owner.parent.clone().unwrap_or_else(|| link.name.clone()),
            owner.weight.to_string(),
            format!("{:.1} %", owner.owns * 100.0),
        ]);
    }
    Some(format!("\n{table}"))
}
