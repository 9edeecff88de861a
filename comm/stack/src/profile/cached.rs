//! Cached figures: measured when they are first needed, and kept in the user's state directory
//! (`$XDG_STATE_HOME/selvedge/stack-profile.json`). They are measured again when they are old, or
//! stem from another processor or another build of this program.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use selvedge_units::Duration;
use serde::{Deserialize, Serialize};

use super::measured::ModuleProfile;
use super::whole::Profile;

/// Debug and release builds have files of their own, since their figures differ.
const FILE: &str = if cfg!(debug_assertions) {
    "selvedge/stack-profile-debug.json"
} else {
    "selvedge/stack-profile.json"
};
/// Figures that are older than this are measured again.
const FRESH: Duration = Duration::from_secs(7 * 24 * 3600);
/// A bound on each figure, one second; a file that exceeds it is ignored.
const LONGEST: f64 = 1e9;
/// A longer file was not written by this program.
const FILE_MAX: u64 = 1 << 16;
const ROUNDS: usize = 3;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct CachedProfile {
    /// The processor and the build that the figures belong to.
    of: String,
    #[serde(flatten)]
    profile: Profile,
}

/// The cost of modules, pipes and the kernel on this machine. A process measures at most once, and
/// most processes not at all.
#[must_use]
pub fn cached() -> Arc<Profile> {
    static COSTS: OnceLock<Arc<Profile>> = OnceLock::new();
    Arc::clone(COSTS.get_or_init(|| match place() {
        Some(place) => kept_at(&place, &of(), || Profile::measured(ROUNDS)).into(),
        None => Profile::measured(ROUNDS).into(),
    }))
}

/// Saves figures that were measured just now. Returns the file's path; `None` if there is no state
/// directory.
pub fn keep(profile: &Profile) -> std::io::Result<Option<PathBuf>> {
    let Some(place) = place() else { return Ok(None) };
    write(&place, &CachedProfile { of: of(), profile: profile.clone() })?;
    Ok(Some(place))
}

fn kept_at(place: &Path, of: &str, measure: impl FnOnce() -> Profile) -> Profile {
    if let Some(kept) = read(place).filter(|kept| kept.of == of) {
        return kept.profile;
    }
    let kept = CachedProfile { of: of.to_owned(), profile: measure() };
    // Without a writable place each process measures anew.
    if let Err(error) = write(place, &kept) {
        tracing::debug!(%error, "the profile of modules is not kept");
    }
    kept.profile
}

/// The saved figures, if they are fresh and valid.
#[allow(clippy::disallowed_methods, reason = "the age of a file is wall-clock time")]
fn read(place: &Path) -> Option<CachedProfile> {
    let about = fs::metadata(place).ok()?;
    let age = SystemTime::now().duration_since(about.modified().ok()?).unwrap_or_default();
    if age > FRESH.into() || about.len() > FILE_MAX {
        return None;
    }
    let kept: CachedProfile = serde_json::from_slice(&fs::read(place).ok()?).ok()?;
    let sensible = |figure: f64| (0.0..LONGEST).contains(&figure.abs());
    let Profile { modules, pipes, call, ring, slave, wake_up } = &kept.profile;
    let of_module = |module: &ModuleProfile| [module.down, module.up, module.critical];
    let mut figures = modules
        .iter()
        .flat_map(of_module)
        .flatten()
        .chain(*call)
        .chain(ring.iter().copied().flatten())
        .chain([*slave])
        .chain(*wake_up);
    let pipes = [pipes.unlocked, pipes.locked, pipes.same, pipes.other];
    // A file of an older build has no figures of rings or wake-ups.
    let whole = *ring != [[0.0; 2]; 2] && *wake_up != [0.0; 2];
    let sound =
        whole && !modules.is_empty() && figures.all(sensible) && pipes.into_iter().all(sensible);
    sound.then_some(kept)
}

/// Replaces the file atomically, since another process may read it meanwhile.
fn write(place: &Path, kept: &CachedProfile) -> std::io::Result<()> {
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = place.with_extension(format!("{}.new", std::process::id()));
    fs::write(&new, serde_json::to_vec_pretty(kept)?)?;
    fs::rename(&new, place).inspect_err(|_| _ = fs::remove_file(&new))
}

fn place() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join(FILE))
}

fn of() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name"));
    let processor = name.and_then(|line| line.split(':').nth(1)).unwrap_or("").trim();
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    format!("{processor}, {} {build}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::PipeProfile;

    fn profile(figure: f64) -> Profile {
        let (figures, critical) = ([figure, 1.0], [0.0; 2]);
        let module = ModuleProfile { module: "ui".into(), down: figures, up: figures, critical };
        let pipes = PipeProfile { unlocked: 20.0, locked: 40.0, same: 8.0, other: 150.0 };
        let ring = [[70.0, 30.0]; 2];
        Profile {
            modules: vec![module],
            pipes,
            call: [1000.0, 100.0],
            ring,
            slave: 700.0,
            wake_up: [6e4, 9e5],
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the age of a file is wall-clock time")]
    fn figures_are_kept_until_they_are_of_something_else_or_make_no_sense() {
        let folder = std::env::temp_dir().join(format!("stack-profile-{}", std::process::id()));
        let place = folder.join("deep/profile.json");
        let first = |of: &str, figure| kept_at(&place, of, || profile(figure)).modules[0].down[0];
        assert_eq!(first("a, release", 5.0), 5.0);
        assert_eq!(first("a, release", 6.0), 5.0, "kept");
        assert_eq!(first("b, release", 7.0), 7.0, "another processor");
        for nonsense in ["", "{", "[]", r#"{"of":"b, release","modules":[]}"#] {
            fs::write(&place, nonsense).unwrap();
            assert_eq!(first("b, release", 8.0), 8.0, "{nonsense}");
        }
        let huge = CachedProfile { of: "b, release".into(), profile: profile(1e12) };
        write(&place, &huge).unwrap();
        assert_eq!(first("b, release", 9.0), 9.0);
        let old = SystemTime::now() - FRESH.to_std() - Duration::from_secs(60).to_std();
        fs::File::options().write(true).open(&place).unwrap().set_modified(old).unwrap();
        assert_eq!(first("b, release", 10.0), 10.0, "old");
        // No other file is left in the directory.
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
