//! The remarks of `check` on the sound of files: which streams are synchronised, and sound that no
//! stream sends.

use selvedge_control_config::StreamConfig;
use selvedge_control_config::feasibility::Remark;

use crate::node_file::NodeFile;

/// A note for each stream of a file that has both pictures and sound, and for each that shares an output.
pub(crate) fn notes(file: &NodeFile) -> Vec<Remark> {
    let streams = &file.config.streams;
    let pairs: Vec<_> =
        streams.iter().map(|s| selvedge_node::picture_of(&file.config, s)).collect();
    let mut notes = Vec::new();
    for (n, (stream, picture)) in streams.iter().zip(&pairs).enumerate() {
        let text = match picture {
            Some(picture) => {
                let picture = &streams[*picture].spec.name;
                Some(format!("it keeps within 40 ms of {picture}: both are of one file"))
            }
            None if pairs.contains(&Some(n)) => None,
            None => unsent(file, stream),
        };
        let before = streams[..n].iter().find(|other| stream.shares_output(other));
        let joined = before.map(|other| {
            let (to, other) = (stream.receiver(), &other.spec.name);
            format!("it goes to {to} together with {other}: both say so")
        });
        let texts = text.into_iter().chain(joined);
        notes.extend(texts.map(|text| Remark { stream: stream.spec.name.clone(), text }));
    }
    notes
}

/// This build can't see the contents of a file.
#[cfg(not(feature = "gstreamer"))]
fn unsent(_file: &NodeFile, _stream: &StreamConfig) -> Option<String> {
    None
}

/// What to do about sound in a file that is not sent beside the pictures.
#[cfg(feature = "gstreamer")]
fn unsent(file: &NodeFile, stream: &StreamConfig) -> Option<String> {
    use selvedge_control_config::{FilePart, SourceUri};
    use selvedge_media::{Source, SourceError, inspect::PAYLOAD_MAX};

    let SourceUri::File { path, part: FilePart::First | FilePart::Encoded(_), .. } = &stream.source
    else {
        return None;
    };
    let of = |part| SourceUri::File { path: path.clone(), repeat: false, part };
    let open = |part| Source::open(&of(part), &file.base, PAYLOAD_MAX);
    let (encoding, option) = match open(FilePart::Sound) {
        Ok(sound) => (sound.info().encoding().to_owned(), "sound"),
        Err(SourceError::SoundUnsupported { codec, .. }) => (codec, "l16"),
        Err(_) => return None,
    };
    // A file of sound alone is sent as it is.
    if open(FilePart::First).is_ok_and(|first| first.info().codec.is_audio()) {
        return None;
    }
    Some(format!(
        "its file has sound, too ({encoding}), which no stream sends; to send it, add a stream with \
         source = \"file:{path}?{option}\""
    ))
}
