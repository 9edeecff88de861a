//! The names that commands had in the last release, for one release more: each does what it did, and
//! its new name goes to standard error. Commands that moved to `selvedge-lab` run that program, which
//! lies beside this one, with the given arguments.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::{Args, Subcommand};
use selvedge_cli_terminal::Failure;

use crate::trace::admit::{self, AdmitArgs};
use crate::trace::replay::{self, Engine, ReplayArgs};

#[derive(Subcommand)]
pub(crate) enum OldCommand {
    /// Now `selvedge trace replay`
    #[command(hide = true)]
    Schedule(ReplayArgs),
    /// Now `selvedge trace admit`
    #[command(hide = true)]
    Admit(AdmitArgs),
    /// Now `selvedge-lab bench`
    #[command(hide = true, disable_help_flag = true)]
    Bench(LabArgs),
    /// Now `selvedge-lab repro`
    #[command(hide = true, disable_help_flag = true)]
    Repro(LabArgs),
}

/// What was typed behind the command, whatever it is.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

pub(crate) fn command(command: &OldCommand, verbose: u8) -> Result<(), Failure> {
    match command {
        OldCommand::Schedule(args) if args.engine == Engine::Rtl => {
            renamed("selvedge schedule --engine rtl", "selvedge-lab schedule");
            lab(schedule_words(args), verbose)
        }
        OldCommand::Schedule(args) => {
            renamed("selvedge schedule", "selvedge trace replay");
            replay::command(args)
        }
        OldCommand::Admit(args) => {
            renamed("selvedge admit", "selvedge trace admit");
            admit::command(args)
        }
        OldCommand::Bench(args) => to_lab("selvedge bench", &["bench"], args, verbose),
        OldCommand::Repro(args) => to_lab("selvedge repro", &["repro"], args, verbose),
    }
}

/// The arguments of `selvedge-lab` for a replay by the simulated hardware.
fn schedule_words(args: &ReplayArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["schedule".into(), "--engine".into(), "rtl".into()];
    if let Some(discipline) = &args.discipline {
        words.extend(["--discipline".into(), discipline.into()]);
    }
    words.extend(["--".into(), args.file.clone().into()]);
    words
}

/// Runs the command of `selvedge-lab` that replaced `old`, with these words and the arguments given.
pub(crate) fn to_lab(
    old: &str,
    words: &[&str],
    args: &LabArgs,
    verbose: u8,
) -> Result<(), Failure> {
    renamed(old, &format!("selvedge-lab {}", words.join(" ")));
    let words = words.iter().map(OsString::from);
    lab(words.chain(args.arguments.iter().cloned()), verbose)
}

/// Names the new name of an old one.
fn renamed(old: &str, new: &str) {
    eprintln!("selvedge: `{old}` is now `{new}`; the next release has the new name only");
}

/// Runs `selvedge-lab` with these words.
fn lab(words: impl IntoIterator<Item = OsString>, verbose: u8) -> Result<(), Failure> {
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
