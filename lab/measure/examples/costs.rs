//! What calls cost, and how late events come under load: `cargo run --release -p selvedge-lab-measure --example costs`.

use std::os::unix::fs::DirBuilderExt;
use std::process::Command;

use selvedge_lab_measure::call::{calls, peer, preference};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(spec) = std::env::args().nth(1) {
        return Ok(peer(&spec)?);
    }
    let directory = std::env::temp_dir().join(format!("selvedge-costs-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
    let program = std::env::current_exe()?;
    let start = |spec: &str| {
        let mut command = Command::new(&program);
        command.arg(spec);
        command
    };
    let costs = calls(&directory, &start, 51);
    let late = preference(&directory, &start, 5000);
    std::fs::remove_dir_all(&directory)?;
    println!("{:#?}\n{:#?}", costs?, late?);
    Ok(())
}
