//! So many decisions and nothing else, for counting instructions (`tools/instructions.sh`):
//!
//! ```text
//! cargo run -p selvedge-sched --features bench --example decisions -- dwcs 1024 10000
//! ```

use std::env;
use std::process::ExitCode;

use selvedge_sched::Discipline;
use selvedge_sched::bench::{Load, run};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    if words == ["--list"] {
        Discipline::ALL.iter().for_each(|discipline| println!("{discipline}"));
        return ExitCode::SUCCESS;
    }
    let parsed = match words.as_slice() {
        [discipline, streams, decisions] => {
            Discipline::from_name(discipline).zip(streams.parse().ok()).zip(decisions.parse().ok())
        }
        _ => None,
    };
    let Some(((discipline, streams), decisions)) = parsed else {
        eprintln!("decisions DISCIPLINE STREAMS DECISIONS | --list");
        return ExitCode::from(2);
    };
    println!("{}", run(Load { discipline, streams, ties: false }, decisions));
    ExitCode::SUCCESS
}
