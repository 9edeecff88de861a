//! Whether a node file is feasible: the measured media of its sources, and the misfits with its links,
//! each with a change of the file that helps. For `check` and `run`.

use selvedge_cli_terminal::Failure;
use selvedge_control_config::feasibility::{self, Misfit, Offer, Remark, Shortfall};
use selvedge_control_config::stream_table;
use serde::Serialize;

use crate::node_file::{NodeFile, lines};
use crate::trace::admit::Media;

/// The facts about the streams of a node file, in its order.
pub(crate) struct Measured {
    /// Those of the files that were read.
    pub(crate) media: Vec<Option<Media>>,
    /// The same, including streams whose encoders' rates are stated.
    pub(crate) offers: Vec<Option<Offer>>,
}

/// Whether the streams of a node file fit its links.
#[derive(Debug, Serialize)]
pub(crate) struct Fit {
    /// The links that can't meet their requirements.
    pub(crate) infeasible: Vec<Misfit>,
    /// Facts that are known only once the node runs.
    pub(crate) unknown: Vec<Remark>,
}

impl Fit {
    pub(crate) fn new(file: &NodeFile, offers: &[Option<Offer>]) -> Self {
        Self {
            infeasible: feasibility::misfits(&file.config, offers),
            unknown: feasibility::unknown(&file.config, offers),
        }
    }

    /// The misfits, at their places in the file, and what to change; no lines if all fits.
    pub(crate) fn complaints(&self, file: &NodeFile) -> Vec<String> {
        let of_link = |misfit: &Misfit| {
            let shortfalls =
                misfit.shortfalls.iter().map(|Shortfall { key, text, .. }| file.located(key, text));
            let remedy = format!("{}: link {} does not fit; {misfit}", file.name, misfit.link);
            shortfalls.chain([remedy]).collect::<Vec<_>>()
        };
        self.infeasible.iter().flat_map(of_link).collect()
    }
}

/// A failure with all these complaints, if there are any.
pub(crate) fn required(complaints: &[String]) -> Result<(), Failure> {
    if complaints.is_empty() { Ok(()) } else { Err(Failure::Failed(complaints.join("\n"))) }
}

/// Without GStreamer only the presence of files can be checked.
#[cfg(not(feature = "gstreamer"))]
pub(crate) fn measured(file: &NodeFile, _most: usize) -> Result<Measured, Failure> {
    let mut wrong = Vec::new();
    for stream in &file.config.streams {
        let selvedge_control_config::SourceUri::File { path, .. } = &stream.source else {
            continue;
        };
        if let Err(error) = std::fs::metadata(file.base.join(path)) {
            wrong.push((
                format!("{}.source", stream_table(&stream.spec.name)),
                format!("\"{path}\": {error}"),
            ));
        }
    }
    if !wrong.is_empty() {
        return Err(Failure::input(lines(&file.errors(wrong))));
    }
    let streams = file.config.streams.len();
    Ok(Measured { media: vec![None; streams], offers: vec![None; streams] })
}

/// Opens every file and measures at most this number of its frames. Other sources may be absent until
/// the node runs, but their descriptions must be valid.
#[cfg(feature = "gstreamer")]
pub(crate) fn measured(file: &NodeFile, most: usize) -> Result<Measured, Failure> {
    use selvedge_control_config::{FilePart, SourceUri, StreamConfig};
    use selvedge_media::{Source, SourceError, inspect};
    use selvedge_place_coprocessor::feeder::Feeder;
    use selvedge_units::Duration;

    let mut found = Measured { media: Vec::new(), offers: Vec::new() };
    let mut wrong = Vec::new();
    let streams = &file.config.streams;
    for (n, stream) in streams.iter().enumerate() {
        let mut media = None;
        // Receivers of the same packets of one source, which is opened once.
        let is_same = |other: &StreamConfig| {
            other.shares_source(stream) && other.takes_rtp() && stream.takes_rtp()
        };
        if let Some(first) = streams[..n].iter().position(is_same)
            && let (Some(&media), Some(&offer)) = (found.media.get(first), found.offers.get(first))
        {
            found.media.push(media);
            found.offers.push(offer);
            continue;
        }
        let key = |error: SourceError| (error.key(), error.to_string());
        let looked_at = match &stream.source {
            SourceUri::File { part: FilePart::Encoded(_), .. } => {
                let opened = Source::open(&stream.source, &file.base, inspect::PAYLOAD_MAX);
                opened.map(drop).map_err(key)
            }
            SourceUri::File { .. } => {
                let mtu = file.config.links[stream.link].mtu;
                let to = stream.output.as_ref().map(|to| (to, mtu));
                inspect::frames_to(&stream.source, &file.base, to, most)
                    .map(|frames| media = Some(of_frames(&frames)))
                    .map_err(key)
            }
            SourceUri::Record { path, repeat, .. } => {
                let opened = Feeder::open(&file.base.join(path), *repeat);
                opened.map(drop).map_err(|error| ("source", error.to_string()))
            }
            SourceUri::Bond { .. }
            | SourceUri::Streamlets
            | SourceUri::Tunnel(_)
            | SourceUri::Shared { .. } => Ok(()),
            other => inspect::description(other, &file.base).map_err(key),
        };
        // Each streamlet gets every frame.
        let media = stream.slot.iter().fold(media, |media, slot| {
            media.map(|media: Media| media.for_each_of(u64::from(slot.count())))
        });
        match looked_at {
            Err((key, why)) => {
                wrong.push((format!("{}.{key}", stream_table(&stream.spec.name)), why))
            }
            Ok(()) => wrong.extend(not_carried(file, stream)),
        }
        let stated = || {
            let (rate, period) = inspect::nominal(&stream.source)?;
            let all = stream.slot.as_ref().map_or(1, |slot| u64::from(slot.count()));
            let each = Duration((period.0 / all).max(1));
            Some(Offer { mean: rate * period, period: each, largest: None })
        };
        let seen = |media: Media| {
            let Media { mean, period, largest, .. } = media;
            Offer { mean, period, largest: Some(largest) }
        };
        found.offers.push(media.map(seen).or_else(stated));
        found.media.push(media);
    }
    if wrong.is_empty() { Ok(found) } else { Err(Failure::input(lines(&file.errors(wrong)))) }
}

/// Whether a stream's output can't carry the encoding of its file, or not beside that of another stream
/// before it: key and reason. Other sources are checked when the node starts.
#[cfg(feature = "gstreamer")]
fn not_carried(
    file: &NodeFile,
    stream: &selvedge_control_config::StreamConfig,
) -> Option<(String, String)> {
    use selvedge_control_config::{SourceUri, StreamConfig};
    use selvedge_media::output::{OutputKind, kind};
    use selvedge_media::{Source, inspect::PAYLOAD_MAX};

    let to = stream.output.as_ref()?;
    let codec_of = |stream: &StreamConfig| {
        let is_here = matches!(stream.source, SourceUri::File { .. } | SourceUri::Test(_));
        let opened = is_here.then(|| Source::open(&stream.source, &file.base, PAYLOAD_MAX));
        Some(opened?.ok()?.info().codec)
    };
    let codec = codec_of(stream)?;
    let before = file.config.streams.iter().take_while(|other| other.spec.name != stream.spec.name);
    let other = before.filter(|other| stream.shares_output(other)).last();
    let other = other.and_then(|other| Some((&*other.spec.name, codec_of(other)?)));
    let joined = other.map_or(Ok(()), |other| OutputKind::join(codec, other));
    let error = kind(to).and_then(|kind| kind.check(codec)).and(joined).err()?;
    Some((format!("{}.to", stream_table(&stream.spec.name)), error.to_string()))
}

#[cfg(feature = "gstreamer")]
fn of_frames(frames: &[selvedge_media::inspect::WireFrame]) -> Media {
    use selvedge_units::{Bytes, Duration};

    let total: Bytes = frames.iter().map(|f| f.size).sum();
    let lasts = frames.last().map_or(Duration::ZERO, |f| f.decode_time);
    let period = Duration(lasts.0 / (frames.len() as u64).max(2).saturating_sub(1));
    let largest = frames.iter().map(|f| f.size).max().unwrap_or_default();
    let gap = |pair: &[selvedge_media::inspect::WireFrame]| {
        pair[1].decode_time.0.saturating_sub(pair[0].decode_time.0)
    };
    let closest = frames.windows(2).map(gap).min().map_or(period, Duration);
    let mean = Bytes(total.0.div_ceil(frames.len().max(1) as u64));
    Media { mean, period, largest, closest, rate: total / (lasts + period) }
}
