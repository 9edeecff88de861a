//! Preparing a service before it is loaded: the choice of programs, the settings, and the meaning of names.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use libbpf_rs::OpenObject;

use crate::error::ServiceError;
use crate::layout::{GATHERED, KINDS, Settings, TALLY};

/// Adapts the object before it is loaded.
pub(super) fn fix(
    open: &mut OpenObject,
    points: &[(&str, &str)],
    settings: &Settings,
    has_posts: bool,
) -> libbpf_rs::Result<()> {
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let is_run = ["tick", "start_timer"].contains(&&*name);
        program.set_autoload(is_run || points.iter().any(|(one, _)| *one == name));
    }
    for mut map in open.maps_mut() {
        let expected = match map.name().to_string_lossy().as_ref() {
            ".data.settings" => {
                map.set_initial_value(&settings.bytes())?;
                Settings::SIZE
            }
            ".data.gathered" => GATHERED * KINDS,
            ".data.tally" => TALLY,
            ".rodata.posting" => {
                map.set_initial_value(&u32::from(has_posts).to_ne_bytes())?;
                4
            }
            "posts" => {
                map.set_autocreate(has_posts)?;
                continue;
            }
            _ => continue,
        };
        let found = map.initial_value().map_or(0, <[u8]>::len);
        assert_eq!(found, expected, "layout.rs is raise.h in Rust");
    }
    Ok(())
}

/// The number of this thread's network namespace; 0 (all of them) if the system does not return it.
pub(super) fn network() -> u32 {
    std::fs::metadata("/proc/thread-self/ns/net").map_or(0, |file| file.ino() as u32)
}

/// The number of a control group of version 2.
pub(super) fn cgroup(path: &Path) -> Result<u64, ServiceError> {
    const CGROUP2: i64 = 0x6367_7270;
    let failed = |why| ServiceError::Cgroup { path: path.to_owned(), why };
    let file = std::fs::File::open(path).map_err(failed)?;
    let system = rustix::fs::fstatfs(&file).map_err(|errno| failed(errno.into()))?;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between machines")]
    if system.f_type as i64 != CGROUP2 {
        return Err(failed(io::Error::other("it lies on another file system")));
    }
    Ok(file.metadata().map_err(failed)?.ino())
}
