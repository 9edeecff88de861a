//! Makes trace files and the lines expected of them, from seeds, by the slow oracle of the tests.
//!
//! ```text
//! cargo run -p selvedge-sched --features trace --example trace_gen -- --seed 7
//! cargo run -p selvedge-sched --features trace --example trace_gen -- --seed 7 --expected
//! cargo run -p selvedge-sched --features trace --example trace_gen -- --vectors vectors
//! ```

#[path = "../tests/oracle/mod.rs"]
mod oracle;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use oracle::generate;

const USAGE: &str = "trace_gen --seed N [--expected] | --vectors FOLDER";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--seed", seed] => print!("{}", generate::trace(seed.parse()?).1.json()),
        ["--seed", seed, "--expected"] => {
            print!("{}", generate::trace(seed.parse()?).1.expected());
        }
        ["--vectors", folder] => {
            for (name, trace) in (1..=generate::VECTORS).map(generate::trace) {
                fs::write(Path::new(folder).join(format!("{name}.json")), trace.json())?;
                fs::write(Path::new(folder).join(format!("{name}.jsonl")), trace.expected())?;
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
