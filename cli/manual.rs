//! `selvedge manual DIR`: man pages and shell completions, made from the command line's own definition, for
//! `tools/install.sh`. Only in builds with the feature `manual`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use selvedge_cli_terminal::Failure;

use crate::cli::Cli;

#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// Where to write `man1/` and the completions
    folder: PathBuf,
}

pub(crate) fn command(args: &ManualArgs) -> Result<(), Failure> {
    write(&args.folder).map_err(|why| Failure::failed(format!("{}: {why}", args.folder.display())))
}

fn write(folder: &Path) -> std::io::Result<()> {
    let pages = folder.join("man1");
    fs::create_dir_all(&pages)?;
    let mut command = Cli::command();
    clap_mangen::generate_to(command.clone(), pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "selvedge", folder)?;
    }
    Ok(())
}
