//! Prints the frames of an H.264 byte stream whose access units begin with delimiters, one a line:
//! kind, `r` if others may refer to it, bytes, and how far back its references are. It makes the frame
//! lists of experiments: `cargo run --example frames -- FILE`.

use std::io::Write;

use selvedge_media::picture::{PictureReader, h264};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give a file")?;
    let bytes = std::fs::read(path)?;
    let delimiter = |window: &[u8]| matches!(window, [0, 0, 0, 1, 9]);
    let mut starts: Vec<_> =
        (0..bytes.len().saturating_sub(4)).filter(|&at| delimiter(&bytes[at..at + 5])).collect();
    starts.push(bytes.len());
    let mut reader = h264::H264Reader::default();
    let mut out = std::io::stdout().lock();
    for unit in starts.windows(2).map(|range| &bytes[range[0]..range[1]]) {
        let picture = reader.push(unit).ok_or("a unit without a slice")?;
        let refs = picture.refs.ok_or("a slice header that can't be read")?;
        let back = refs.distances().map(|back| back.to_string()).collect::<Vec<_>>();
        let mark = if picture.referenced { "r" } else { "" };
        let kind = picture.kind.name();
        writeln!(
            out,
            "{kind}{mark} {} {}",
            unit.len() - h264::delimiter_len(unit),
            back.join(",")
        )?;
    }
    Ok(())
}
