//! The committed vectors: a seed's trace is of a discipline and a kind by its place.

use selvedge_data_sched::Discipline;
use selvedge_data_sched::replay::Trace;
use selvedge_data_sched::trace::generate::{GenerateOptions, Kind, SHARING, trace};

/// The disciplines that look at heads alone, in the order of the vectors' seeds.
const BY_HEAD: [Discipline; 5] =
    [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf, Discipline::Priority, Discipline::Fifo];

/// Each of the disciplines by head gets the first 14 kinds. Each of those that share gets the first eight, so
/// that it meets every feature.
const KINDS_BY_HEAD: u64 = 14;
const KINDS_SHARING: u64 = 8;
const VECTORS_BY_HEAD: u64 = BY_HEAD.len() as u64 * KINDS_BY_HEAD;

/// The number of vectors; their seeds are 1 to this.
pub(crate) const VECTORS: u64 = VECTORS_FRIENDLY + HARD.len() as u64 * HARD_EACH;

const VECTORS_FRIENDLY: u64 = VECTORS_BY_HEAD + SHARING.len() as u64 * KINDS_SHARING;
/// Disciplines with vectors of sets whose windows fail at little load, [`HARD_EACH`] for each.
const HARD: [Discipline; 4] =
    [Discipline::Dwcs, Discipline::Dwcs98, Discipline::Edf, Discipline::Vds];
const HARD_EACH: u64 = 3;

/// The trace of a vector's seed (at least 1), and its name: `07-dwcs98-arrivals`.
pub(crate) fn vector(seed: u64) -> (String, Trace) {
    let pick = |place: u64, disciplines: &[Discipline], kinds: u64| {
        let count = disciplines.len() as u64;
        let kind = Kind::ALL[(place / count % kinds) as usize];
        (disciplines[(place % count) as usize], kind)
    };
    let place = seed.saturating_sub(1);
    let (discipline, kind) = if place < VECTORS_BY_HEAD {
        pick(place, &BY_HEAD, KINDS_BY_HEAD)
    } else if place < VECTORS_FRIENDLY {
        pick(place - VECTORS_BY_HEAD, &SHARING, KINDS_SHARING)
    } else {
        (HARD[(place - VECTORS_FRIENDLY) as usize % HARD.len()], Kind::Adversarial)
    };
    let wanted = GenerateOptions {
        discipline: Some(discipline),
        kind: Some(kind),
        ..GenerateOptions::of(seed)
    };
    (format!("{seed:02}-{discipline}-{}", kind.name()), trace(&wanted))
}
