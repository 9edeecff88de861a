//! `selvedge manual DIR`: man pages and shell completions, made from the command line's own definition, for
//! `tools/install.sh`. Only in builds with the feature `manual`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::Shell;
use selvedge_cli_terminal::Failure;

#[derive(Debug, Args)]
pub(crate) struct ManualArgs {
    /// Where to write `man1/` and the completions
    folder: PathBuf,
}

/// Writes the manual of the program whose command line this is.
pub(crate) fn command(args: &ManualArgs, program: clap::Command) -> Result<(), Failure> {
    write(&args.folder, program)
        .map_err(|why| Failure::failed(format!("{}: {why}", args.folder.display())))
}

fn write(folder: &Path, mut program: clap::Command) -> std::io::Result<()> {
    let pages = folder.join("man1");
    fs::create_dir_all(&pages)?;
    clap_mangen::generate_to(program.clone(), pages)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut program, "selvedge", folder)?;
    }
    Ok(())
}
