//! Sources that are absent when `check` looks for them: cameras and network sources; and names of
//! receivers and far ends that do not resolve. A node starts without them and tries again, so they are not mistakes
//! of the file.

use std::net::ToSocketAddrs;

use selvedge_cli_terminal::Failure;
use selvedge_control_config::StreamConfig;
use selvedge_control_config::feasibility::Remark;
use selvedge_media::output::resolve;

use crate::node_file::NodeFile;

/// How long a network source may take to deliver its first frame.
#[cfg(feature = "gstreamer")]
const ANSWER: selvedge_units::Duration = selvedge_units::Duration::from_secs(10);

/// The absent parts of a node file, and where the file names them: each source of the kind is opened,
/// each name looked up, all at once.
pub(crate) fn absent(file: &NodeFile) -> Vec<Remark> {
    let fails = |stream: &StreamConfig| {
        let unknown = stream.output.as_ref().and_then(|to| resolve(to).err());
        let of_stream = |key| format!("stream.{}.{key}", stream.spec.name);
        let silent = silent(file, stream).map(|why| (of_stream("source"), why));
        let unknown = unknown.map(|error| (of_stream("to"), error.to_string()));
        [silent, unknown, unknown_far_end(file, stream)]
    };
    let streams = &file.config.streams;
    let failures: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = streams.iter().map(|s| scope.spawn(|| fails(s))).collect();
        let joined = handles.into_iter().map(|handle| handle.join().expect("opening never panics"));
        joined.collect()
    });
    let located = |(stream, (key, why)): (&StreamConfig, (String, String))| {
        let stream = stream.spec.name.clone();
        let text = file.located(&key, &format!("{why}; the node starts and tries again"));
        Remark { stream, text }
    };
    let failures = streams.iter().zip(failures);
    let failures = failures.flat_map(|(s, why)| why.into_iter().flatten().map(move |why| (s, why)));
    failures.map(located).collect()
}

/// Why the name of the far end of a stream's link does not resolve, if so, and the link's key.
fn unknown_far_end(file: &NodeFile, stream: &StreamConfig) -> Option<(String, String)> {
    let link = &file.config.links[stream.link];
    // A tunnel at a far end waits for whom the near end connects.
    let far = stream.far.as_ref().filter(|_| link.bond.is_some())?;
    let why = far.to_socket_addrs().err()?;
    let key = format!("link.{}.to", link.name);
    Some((key, format!("\"{far}\" does not resolve: {why}")))
}

/// Why a source that may be absent delivers nothing, if so.
#[cfg(feature = "gstreamer")]
fn silent(file: &NodeFile, stream: &StreamConfig) -> Option<String> {
    use selvedge_control_config::SourceUri;
    use selvedge_media::isolated::{SourceProcess, SourceRequest};
    use selvedge_media::{Source, inspect::PAYLOAD_MAX};

    let (uri, base) = (&stream.source, &*file.base);
    let error = match uri {
        SourceUri::Camera(_) => Source::open(uri, base, PAYLOAD_MAX).err(),
        SourceUri::Network(_) => {
            let request = SourceRequest {
                uri,
                base,
                payload_max: PAYLOAD_MAX,
                thumbnails: false,
                units: false,
                expected: selvedge_units::Duration::ZERO,
            };
            let program = std::path::Path::new("/proc/self/exe");
            let process = SourceProcess::start(program, &request);
            process
                .and_then(|mut it| it.open(ANSWER, &std::sync::atomic::AtomicBool::new(false)))
                .err()
        }
        _ => None,
    };
    error.map(|error| error.to_string())
}

#[cfg(not(feature = "gstreamer"))]
const fn silent(_file: &NodeFile, _stream: &StreamConfig) -> Option<String> {
    None
}

/// A failure with all of them, if there are any.
pub(crate) fn required(absent: &[Remark]) -> Result<(), Failure> {
    match absent {
        [] => Ok(()),
        some => {
            let lines = some.iter().map(|one| one.text.as_str()).collect::<Vec<_>>();
            Err(Failure::Failed(lines.join("\n")))
        }
    }
}
