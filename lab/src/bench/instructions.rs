//! Instructions a decision: from the committed table, or counted now by valgrind.
//!
//! They are exact: the same program executes the same instructions each time, whatever else the
//! machine does.

use std::io;
use std::process::Command;

use selvedge_cli_terminal::Failure;
use selvedge_data_sched::Discipline;
use selvedge_lab_measure::Load;
use selvedge_lab_measure::decide::run;

use super::peer::output;
use crate::cli::CountArgs;

const TABLE: &str = include_str!("../../instructions.txt");
/// Counted over so many decisions.
const DECISIONS: u64 = 10_000;
/// With more streams, valgrind takes minutes to begin.
const STREAMS_MAX: u32 = 65_536;

/// Why valgrind gave no count.
#[derive(Debug, thiserror::Error)]
enum CountError {
    /// This program's file is not known, or valgrind does not start.
    #[error(transparent)]
    Start(#[from] io::Error),
    /// It ended without a count.
    #[error(
        "valgrind does not say how many instructions {0} takes; is the program built for another \
         processor than plain x86-64?"
    )]
    Silent(Discipline),
    /// Its count is no number.
    #[error("valgrind counts \"{count}\" instructions for {discipline}, which is no number")]
    NoNumber { discipline: Discipline, count: String },
}

/// Where the counts come from.
pub(super) enum Source {
    Table,
    /// Counted, of this program.
    Valgrind,
}

impl Source {
    /// Valgrind if that is what is asked for, and it is there.
    pub(super) fn new(count: bool) -> Result<Self, Failure> {
        if !count {
            return Ok(Self::Table);
        }
        output(Command::new("valgrind").arg("--version"))
            .map_err(|why| Failure::failed(format!("--instructions needs valgrind: {why}")))?;
        Ok(Self::Valgrind)
    }

    /// Instructions a decision, if they are known.
    pub(super) fn count(
        &self,
        discipline: Discipline,
        streams: u32,
    ) -> Result<Option<f64>, Failure> {
        match self {
            Self::Table => Ok(counted_instructions(discipline, streams)),
            Self::Valgrind if streams > STREAMS_MAX => Ok(None),
            Self::Valgrind => counted(discipline, streams).map(Some).map_err(Failure::failed),
        }
    }
}

/// What to say of them.
pub(super) fn origin(source: &Source) -> String {
    match source {
        Source::Table => {
            let made = TABLE.lines().find_map(|line| line.strip_prefix("rustc "));
            format!("as committed, for plain x86-64 by rustc {}", made.unwrap_or("unknown"))
        }
        Source::Valgrind => "of this program, by valgrind".to_owned(),
    }
}

fn counted_instructions(discipline: Discipline, streams: u32) -> Option<f64> {
    let row = [discipline.name(), &streams.to_string()];
    let mut found = TABLE.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(..2)? == row).then(|| words.get(2)?.parse().ok())?
    });
    found.next()
}

/// By the difference between many decisions and none.
fn counted(discipline: Discipline, streams: u32) -> Result<f64, CountError> {
    let program = std::env::current_exe()?;
    let total = |decisions: u64| {
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(&program);
        command.args(["bench", "decide", "--count"]);
        command.arg(format!("{}:{streams}:{decisions}", discipline.name()));
        let done = command.output()?;
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        let refs = stderr.lines().find_map(|line| line.split_once("refs:"));
        let count = refs.ok_or(CountError::Silent(discipline))?.1.trim();
        let no_number = |_| CountError::NoNumber { discipline, count: count.to_owned() };
        count.replace(',', "").parse::<u64>().map_err(no_number)
    };
    let (some, more) = (total(DECISIONS)?, total(2 * DECISIONS)?);
    Ok(super::tenths(more.saturating_sub(some) as f64 / DECISIONS as f64))
}

/// What is counted.
pub(super) fn work(count: CountArgs) -> u64 {
    let CountArgs { discipline, streams, decisions } = count;
    run(Load { discipline, streams, ties: false }, decisions)
}
