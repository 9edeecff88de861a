//! A camera: `camera PATH ENCODING FILE PERIOD_US`. The file holds frames, each after its length in 4 bytes, big-endian.

use std::error::Error;
use std::io::Read;
use std::path::Path;

use selvedge_comm_frames::{Camera, FrameInfo, Refused, WriteError};
use selvedge_os::clock::Clock;
use selvedge_units::{Duration, Instant};

/// Returns when each frame was written.
pub(crate) fn run(args: &[String]) -> Result<Vec<Instant>, Box<dyn Error>> {
    let [path, encoding, file, period] = args else {
        return Err("PATH ENCODING FILE PERIOD_US".into());
    };
    let period = Duration::from_micros(period.parse()?);
    let mut file = std::fs::File::open(file)?;
    let mut camera = Camera::connect(Path::new(path), encoding)?;
    let (clock, mut written, mut head) = (Clock::shared(), Vec::new(), [0; 4]);
    while file.read_exact(&mut head).is_ok() {
        let mut frame = vec![0; u32::from_be_bytes(head) as usize];
        file.read_exact(&mut frame)?;
        let at = clock.now();
        match camera.write(FrameInfo { at, ..FrameInfo::default() }, &frame) {
            Ok(()) => written.push(at),
            // The node is behind: the frame is left out.
            Err(WriteError::Refused(Refused::Full)) => {}
            Err(error) => return Err(error.into()),
        }
        clock.sleep_until(at + period);
    }
    Ok(written)
}

#[allow(dead_code, reason = "a test calls what it calls")]
fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    run(&args).map(|written| println!("{} frames", written.len()))
}
