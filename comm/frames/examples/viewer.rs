//! A viewer: `viewer PATH FILE FRAMES`. Writes so many frames into the file, each after its length in 4 bytes, big-endian.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use selvedge_comm_frames::Viewer;
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

/// Returns when each frame was read.
pub(crate) fn run(
    args: &[String],
    connected: impl FnOnce(),
) -> Result<Vec<Instant>, Box<dyn Error>> {
    let [path, file, wanted] = args else { return Err("PATH FILE FRAMES".into()) };
    let wanted: usize = wanted.parse()?;
    let mut file = std::fs::File::create(file)?;
    let mut viewer = Viewer::connect(Path::new(path))?;
    connected();
    let (clock, mut read, mut frame) = (Clock::shared(), Vec::new(), Vec::new());
    while read.len() < wanted && viewer.read(Duration::from_secs(10), &mut frame)?.is_some() {
        read.push(clock.now());
        file.write_all(&u32::try_from(frame.len())?.to_be_bytes())?;
        file.write_all(&frame)?;
    }
    Ok(read)
}

#[allow(dead_code, reason = "a test calls what it calls")]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let read = run(&args, || println!("connected"))?;
    println!("{} frames", read.len());
    Ok(())
}
