//! The commands that became `selvedge-lab`, for one release more: each runs that program, which lies
//! beside this one, with what was typed.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use selvedge_cli_terminal::Failure;

/// What was typed behind the command, whatever it is.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs `selvedge-lab` with these words, and what was typed behind them.
pub(crate) fn command(words: &[&str], args: &LabArgs, verbose: u8) -> Result<(), Failure> {
    let words = words.iter().map(OsString::from);
    run(words.chain(args.arguments.iter().cloned()), verbose)
}

/// Runs `selvedge-lab` with these words.
pub(crate) fn run(words: impl IntoIterator<Item = OsString>, verbose: u8) -> Result<(), Failure> {
    let own = std::env::current_exe().map_err(Failure::failed)?;
    let program = own.with_file_name("selvedge-lab");
    if !program.exists() {
        return Err(Failure::input("the command is now selvedge-lab; `make lab` builds it"));
    }
    let mut command = Command::new(&program);
    command.args((0..verbose).map(|_| "-v")).args(words);
    // Returns only if the program can't be run.
    Err(Failure::failed(format!("{}: {}", program.display(), command.exec())))
}
