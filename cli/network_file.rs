//! A network as the commands read it: a file, or one that comes with Selvedge, by its name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use selvedge_cli_terminal::{Failure, input};
use selvedge_control_config::network::{
    self, FILES_MAX, FileError, NetworkConfig, SHIPPED, shipped,
};
use selvedge_control_config::{FilePart, LONGEST_FILE, SourceUri};
use selvedge_units::nearest;

use crate::clip;
use crate::node_file::lines;

/// How captures begin: pcap of microseconds and nanoseconds in both byte orders, and pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
];

/// Reads a network: the file of this path, or else the shipped network of this name.
pub(crate) fn read(network: &str) -> Result<NetworkConfig, Failure> {
    let path = Path::new(network);
    if !path.exists()
        && let Some(shipped) = shipped(network)
    {
        let mut none = |_: &str| Err(FileError::Unreadable("it names no files".to_owned()));
        return network::parse(shipped.text, network, &mut none)
            .map_err(|errors| Failure::input(lines(&errors)));
    }
    let text = input::text(path, LONGEST_FILE as u64).map_err(|why| {
        let names = SHIPPED.iter().map(|one| one.name);
        let hint = match nearest(network, names.clone()) {
            Some(name) => format!("; did you mean {name}?"),
            None => format!("; without a file there are {}", names.collect::<Vec<_>>().join(", ")),
        };
        Failure::input(format!("{network}: {why}{hint}"))
    })?;
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    let mut files = |name: &str| bytes(&base.join(name));
    network::parse(&text, network, &mut files).map_err(|errors| Failure::input(lines(&errors)))
}

/// What is in a file that a network names; of a clip it is the list of its frames.
fn bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |why: std::io::Error| FileError::Unreadable(why.to_string());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILES_MAX.0 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let is_capture = bytes.first_chunk().is_some_and(|magic| CAPTURES.contains(magic));
    if std::str::from_utf8(&bytes).is_err() && !is_capture {
        return frames(path);
    }
    if bytes.len() as u64 > FILES_MAX.0 { Err(FileError::TooLong(FILES_MAX)) } else { Ok(bytes) }
}

fn frames(path: &Path) -> Result<Vec<u8>, FileError> {
    let path =
        path.to_str().ok_or_else(|| FileError::Unreadable("its name is not UTF-8".into()))?;
    let uri = SourceUri::File { path: path.into(), repeat: false, part: FilePart::First };
    let clip =
        clip::read(&uri, Path::new("")).map_err(|why| FileError::Unreadable(why.to_string()))?;
    Ok(clip.list.to_string().into_bytes())
}
