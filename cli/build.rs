//! The commit from which the program is built, for `--version`: of the clone, or, without one, what SELVEDGE_COMMIT says.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SELVEDGE_COMMIT");
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let stated = std::env::var("SELVEDGE_COMMIT").ok();
    let commit = stated.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=SELVEDGE_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// What git prints, without the end of the line; `None` if there is no git or no clone.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
