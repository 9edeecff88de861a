//! Other processes for experiments in real time: this program, run as `selvedge-lab bench events --peer`, and a
//! directory for the two to meet in.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::experiment::RunError;

/// The program: this one, or one beside it.
fn program() -> Option<PathBuf> {
    const NAME: &str = "selvedge-lab";
    let own = std::env::current_exe().ok()?;
    if own.file_name().is_some_and(|name| name == NAME) {
        return Some(own);
    }
    // Programs that are tests lie one folder deeper.
    let folder = own.parent()?;
    [folder, folder.parent()?].iter().map(|folder| folder.join(NAME)).find(|path| path.is_file())
}

/// A directory of this user's alone, removed afterwards.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(id: &str) -> Result<Self, RunError> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("selvedge-{id}-{}", std::process::id()));
        let done = std::fs::DirBuilder::new().mode(0o700).create(&path);
        done.map_err(|why| RunError::Peer(format!("{}: {why}", path.display())))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How another process is started.
pub(crate) fn start() -> Result<impl Fn(&str) -> Command, RunError> {
    let missing =
        || RunError::Peer("the program \"selvedge-lab\" is not beside this one".to_owned());
    let program = program().ok_or_else(missing)?;
    Ok(move |spec: &str| {
        let mut command = Command::new(&program);
        command.args(["bench", "events", "--peer", spec]);
        command
    })
}
