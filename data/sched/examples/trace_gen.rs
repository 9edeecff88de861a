//! Writes the committed vectors: the traces of `tests/oracle/vectors.rs`, and the expected lines from the slow oracle
//! of the tests.
//!
//! ```text
//! cargo run -p selvedge-data-sched --features trace --example trace_gen -- --vectors vectors
//! cargo run -p selvedge-data-sched --features trace --example trace_gen -- --expected 7
//! ```
//!
//! (`selvedge trace gen` prints traces of any kind.)

#[path = "../tests/oracle/mod.rs"]
mod oracle;
#[path = "../tests/oracle/vectors.rs"]
mod vectors;

use std::error::Error;
use std::path::Path;
use std::{env, fs};

use selvedge_data_sched::trace::generate::{self, GenerateOptions};

const USAGE: &str = "trace_gen --expected SEED | --vectors FOLDER";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--expected", seed] => {
            let made = generate::trace(&GenerateOptions::of(seed.parse()?));
            print!("{}", oracle::plain(&made).expected());
        }
        ["--vectors", folder] => {
            for (name, made) in (1..=vectors::VECTORS).map(vectors::vector) {
                let trace = oracle::plain(&made);
                fs::write(Path::new(folder).join(format!("{name}.json")), trace.json())?;
                fs::write(Path::new(folder).join(format!("{name}.jsonl")), trace.expected())?;
            }
        }
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
