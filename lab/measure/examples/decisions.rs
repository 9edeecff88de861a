//! So many decisions and nothing else, for counting instructions (`tools/instructions.sh`):
//!
//! ```text
//! cargo run -p selvedge-lab-measure --no-default-features --example decisions -- dwcs 1024 10000
//! ```
//!
//! With `overloaded` behind, at twofold overload: prints how many frames went and how many missed.

use std::env;
use std::process::ExitCode;

use selvedge_data_sched::Discipline;
use selvedge_lab_measure::Load;
use selvedge_lab_measure::decide::{run, run_overloaded};

fn main() -> ExitCode {
    let mut words: Vec<String> = env::args().skip(1).collect();
    if words == ["--list"] {
        Discipline::ALL.iter().for_each(|discipline| println!("{discipline}"));
        return ExitCode::SUCCESS;
    }
    let overloaded = words.pop_if(|word| word == "overloaded").is_some();
    let parsed = match words.as_slice() {
        [discipline, streams, decisions] => {
            Discipline::from_name(discipline).zip(streams.parse().ok()).zip(decisions.parse().ok())
        }
        _ => None,
    };
    let Some(((discipline, streams), decisions)) = parsed else {
        eprintln!("decisions DISCIPLINE STREAMS DECISIONS [overloaded] | --list");
        return ExitCode::from(2);
    };
    let load = Load { discipline, streams, ties: false };
    if overloaded {
        let (sent, missed) = run_overloaded(load, decisions);
        println!("{sent} {missed}");
    } else {
        println!("{}", run(load, decisions));
    }
    ExitCode::SUCCESS
}
