//! What rings cost beside the kernel's bare calls: `cargo run --release -p selvedge-lab-measure --example rings`.
//! The same as `selvedge-lab bench events`, without the rest of the program.

use std::os::unix::fs::DirBuilderExt;
use std::process::Command;

use selvedge_lab_measure::local::{BenchPath, channel, measure, peer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(spec) = std::env::args().nth(1) {
        return Ok(peer(&spec)?);
    }
    let directory = std::env::temp_dir().join(format!("selvedge-rings-{}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
    let program = std::env::current_exe()?;
    let start = |spec: &str| {
        let mut command = Command::new(&program);
        command.arg(spec);
        command
    };
    let found = measure(&directory, &start, &BenchPath::ALL, (11, 300, 2_000_000), &mut |_| {});
    let costs = channel(&directory, &start, 21);
    std::fs::remove_dir_all(&directory)?;
    for one in found? {
        println!("{:16} {one:?}", one.path.name());
    }
    println!("{:#?}", costs?);
    Ok(())
}
