//! The parameters by which a stream's source is opened, again and again: from the node file to the
//! threads of sources.

use std::path::{Path, PathBuf};

use selvedge_control_config::{LinkConfig, StreamConfig, bonded, carried, reported};
use selvedge_data_stream::rtp;
use selvedge_media::output::kind;
use selvedge_place_engine::engine::payload_max;
use selvedge_units::Bytes;

/// The parameters by which a source is opened.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "gstreamer"), expect(dead_code, reason = "recordings are opened once"))]
pub(crate) struct SourceSpec {
    pub(crate) stream: StreamConfig,
    /// Relative paths are relative to it.
    pub(crate) base: PathBuf,
    /// The largest RTP payload of its packets.
    pub(crate) payload_max: usize,
    /// The program that runs a network source in a separate process.
    pub(crate) isolates_by: Option<PathBuf>,
    /// Whether whole units are needed beside packets, for a receiver that takes packets of its own.
    pub(crate) units: bool,
}

impl SourceSpec {
    /// For a stream of this link.
    pub(crate) fn new(
        stream: &StreamConfig,
        link: &LinkConfig,
        base: &Path,
        isolates_by: Option<&Path>,
    ) -> Self {
        Self {
            stream: stream.clone(),
            base: base.to_owned(),
            payload_max: payload_of(stream, link),
            isolates_by: isolates_by.map(Path::to_owned),
            units: !stream.takes_rtp(),
        }
    }
}

impl SourceSpec {
    /// With packets that fit the links of all receivers of its source, among these streams and their links.
    pub(crate) fn fit_for<'a>(
        self,
        streams: impl Iterator<Item = (&'a StreamConfig, &'a LinkConfig)>,
    ) -> Self {
        let all: Vec<_> = streams.filter(|(other, _)| self.stream.shares_source(other)).collect();
        let units = self.units || all.iter().any(|(other, _)| !other.takes_rtp());
        let of_rtp = all.iter().filter(|(other, _)| other.takes_rtp());
        let least = of_rtp.map(|(other, link)| payload_of(other, link)).min();
        Self { payload_max: least.unwrap_or(self.payload_max), units, ..self }
    }
}

/// The largest RTP payload that a stream's packets may have.
fn payload_of(stream: &StreamConfig, link: &LinkConfig) -> usize {
    if let Some(stack) = &stream.stack {
        return payload_max(carried(stack, link, stream.spec.to).message, Bytes(0));
    }
    if stream.far.is_some() {
        return payload_max(bonded(link, stream.spec.to).message, Bytes(0));
    }
    if stream.is_reported {
        return payload_max(reported(link, stream.spec.to).message, Bytes(0));
    }
    // Others make packets of their own of whole units.
    match stream.output.as_ref().filter(|to| to.takes_rtp()).map(|to| (to, kind(to))) {
        Some((to, Ok(kind))) => payload_max(kind.fit(to, link.mtu).1, Bytes(0)),
        _ => payload_max(link.mtu, rtp::ip_udp(stream.spec.to)),
    }
}
