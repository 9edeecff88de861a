//! What `make install` copies, and the unit that runs a node as a service.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use support::{Folder, skipped};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PROGRAM: &str = env!("CARGO_BIN_EXE_selvedge");

fn install(order: &str, variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(format!("{ROOT}/tools/install.sh"));
    command.arg(order).envs(variables.iter().copied()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// All files in a folder and below it.
fn files(folder: &Path) -> Vec<String> {
    let found = Command::new("find").arg(folder).args(["-type", "f"]).output().unwrap();
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

#[cfg(feature = "manual")]
#[test]
fn what_is_installed_works_and_is_removed_whole() {
    let folder = Folder::new();
    let built = folder.path().join("built");
    let to = folder.path().join("root");
    fs::create_dir(&built).unwrap();
    for name in ["selvedge", "selvedge-manual"] {
        symlink(PROGRAM, built.join(name)).unwrap();
    }
    let variables = [("BUILT", &*built), ("DESTDIR", &*to), ("PREFIX", Path::new("/opt/x"))];
    let missing = install("install", &variables);
    assert_eq!(missing.status.code(), Some(1));
    assert!(said(&missing).contains("selvedge-coproc is not there"), "{}", said(&missing));
    assert!(!to.exists());
    for name in
        ["selvedge-coproc", "libgstselvedge.so", "libselvedge_frames.so", "libselvedge_frames.a"]
    {
        fs::write(built.join(name), "").unwrap();
    }
    let done = install("install", &variables);
    assert!(done.status.success(), "{}", said(&done));
    let at = |path: &str| to.join("opt/x").join(path);
    let version = Command::new(at("bin/selvedge")).arg("--version").output().unwrap();
    let version = said(&version);
    assert!(version.starts_with("selvedge 0.") && version.contains(" ("), "{version}");
    let page = fs::read_to_string(at("share/man/man1/selvedge-receive.1")).unwrap();
    assert!(page.contains("selvedge receive") && page.contains("\\-\\-secret"), "{page}");
    assert!(!at("share/man/man1/selvedge-manual.1").exists());
    let bash = fs::read_to_string(at("share/bash-completion/completions/selvedge")).unwrap();
    assert!(bash.contains("selvedge__subcmd__receive") || bash.contains("selvedge__receive"));
    let header = fs::read_to_string(at("include/selvedge_frames.h")).unwrap();
    assert!(header.contains("selvedge_viewer_read"));
    assert!(at("lib/python3/dist-packages/selvedge_frames.py").exists());
    let unit = fs::read_to_string(at("lib/systemd/system/selvedge@.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/x/bin/selvedge run /etc/selvedge/%i.toml"), "{unit}");
    let others = at("share/man/man1/other.1");
    fs::write(&others, "").unwrap();
    let removed = install("uninstall", &variables);
    assert!(removed.status.success(), "{}", said(&removed));
    assert_eq!(files(&to), [others.display().to_string()]);
    let again = install("uninstall", &variables);
    assert_eq!(again.status.code(), Some(1), "{}", said(&again));
}

#[test]
fn a_path_that_is_not_absolute_is_refused() {
    let folder = Folder::new();
    let refused = install("install", &[("PREFIX", Path::new("here")), ("DESTDIR", folder.path())]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("absolute"), "{}", said(&refused));
    assert_eq!(files(folder.path()), Vec::<String>::new());
}

#[test]
fn the_unit_exposes_little() {
    let folder = Folder::new();
    let unit = fs::read_to_string(format!("{ROOT}/tools/package/selvedge@.service")).unwrap();
    let path = folder.path().join("selvedge@x.service");
    fs::write(&path, unit.replace("@PREFIX@", "/usr")).unwrap();
    // In tenths: the goal is 2.0.
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", "--threshold=20"])
        .arg(&path)
        .output();
    let Ok(judged) = judged else {
        skipped("the_unit_exposes_little", "needs systemd-analyze (Debian package systemd)");
        return;
    };
    assert!(judged.status.success(), "{}", said(&judged));
    assert!(said(&judged).contains("Overall exposure level"), "{}", said(&judged));
}
