//! A network as the commands read it: a file, or one that comes with Selvedge, by its name.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use selvedge_cli_terminal::{Failure, input};
use selvedge_control_config::LONGEST_FILE;
use selvedge_control_config::network::{
    self, FILES_MAX, FileError, NetworkConfig, SHIPPED, shipped,
};
use selvedge_units::nearest;

use crate::node_file::lines;

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

/// What is in a file that a network names.
fn bytes(path: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |why: std::io::Error| FileError::Unreadable(why.to_string());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(FILES_MAX.0 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILES_MAX.0 { Err(FileError::TooLong(FILES_MAX)) } else { Ok(bytes) }
}
