//! The compiled programs: opened, configured for a purpose, loaded.

use std::io;

use libbpf_rs::{Map, MapCore, MapFlags, MapMut, Object, OpenMapMut};
use selvedge_data_sched::Discipline;
use selvedge_os_bpf::{io_error, release, types};

use crate::error::LoadError;
use crate::setup::{SETUP, STREAMS_MAX, number};

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/qdisc.bpf.o"));

/// The maps that user space uses.
pub(crate) const SETUP_MAP: &str = ".data.setup";
pub(crate) const TABLE_MAP: &str = ".data.table";
pub(crate) const OBSERVED_MAP: &str = ".data.told";
pub(crate) const FILTERS_MAP: &str = "filters";
pub(crate) const FATES_MAP: &str = "fates";
/// The size of the map of fates, in bytes: room for some 30,000 of them.
const FATES: u32 = 1 << 20;
/// The qdisc.
pub(crate) const QDISC_MAP: &str = "selvedge";
/// The room for its name there, including the terminating zero.
pub(crate) const KIND_MAX: usize = 16;
/// `struct state` and `struct slot`.
pub(crate) const STATE: usize = 88;
pub(crate) const SLOT: usize = 104;
pub(crate) const TABLE: usize = STATE + SLOT * STREAMS_MAX;
const OBSERVED_LEN: usize = 8 + 32 * 640;

/// The purpose for which the programs are loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Purpose<'a> {
    pub(crate) discipline: Discipline,
    /// Slots instead of time.
    pub(crate) replaying: bool,
    /// The fate of each packet is reported, in the map of fates.
    pub(crate) reports_fates: bool,
    /// The qdisc's name, if it becomes one.
    pub(crate) kind: Option<&'a str>,
}

/// Loads compiled programs. `each` sees every map before; `wanted` returns for each program whether to load
/// it, given whether the kernel calls it (`struct_ops`).
pub(crate) fn load_with(
    name: &str,
    program: &[u8],
    mut each: impl FnMut(&str, &mut OpenMapMut<'_>) -> Result<(), LoadError>,
    wanted: impl Fn(bool) -> bool,
) -> Result<Object, LoadError> {
    selvedge_os_bpf::load(name, program, |open| {
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            each(&name, &mut map)?;
        }
        for mut program in open.progs_mut() {
            let called = program.section().to_string_lossy().starts_with("struct_ops");
            program.set_autoload(wanted(called));
        }
        Ok(())
    })
}

/// Writes the constants that are fixed when programs are loaded: words at their beginning.
pub(crate) fn fix(map: &mut OpenMapMut<'_>, words: &[u32]) -> Result<(), LoadError> {
    let mut fixed = map.initial_value().map_or_else(Vec::new, <[u8]>::to_vec);
    for (at, word) in words.iter().enumerate() {
        put(&mut fixed, 4 * at, &word.to_ne_bytes());
    }
    map.set_initial_value(&fixed).map_err(refused)
}

/// Loads the qdisc's programs with `setup` as their setup.
pub(crate) fn load(purpose: Purpose<'_>, setup: &[u8]) -> Result<Object, LoadError> {
    supported()?;
    let words =
        [number(purpose.discipline), purpose.replaying.into(), purpose.reports_fates.into()];
    let each = |name: &str, map: &mut OpenMapMut<'_>| {
        let found = map.initial_value().map_or(0, <[u8]>::len);
        match (name, purpose.kind) {
            (name, _) if name.ends_with(".rodata") => fix(map, &words),
            (SETUP_MAP, _) => {
                check(SETUP_MAP, found, SETUP)?;
                map.set_initial_value(setup).map_err(refused)
            }
            (TABLE_MAP, _) => check(TABLE_MAP, found, TABLE),
            (OBSERVED_MAP, _) => check(OBSERVED_MAP, found, OBSERVED_LEN),
            (FATES_MAP, _) if purpose.reports_fates => map.set_max_entries(FATES).map_err(refused),
            (QDISC_MAP, Some(kind)) => {
                let mut id = [0; KIND_MAX];
                put(&mut id, 0, &kind.as_bytes()[..kind.len().min(KIND_MAX - 1)]);
                put(map.initial_value_mut().unwrap_or_default(), 0, &id);
                Ok(())
            }
            (QDISC_MAP, None) => map.set_autocreate(false).map_err(refused),
            _ => Ok(()),
        }
    };
    let wanted = |qdisc| if qdisc { purpose.kind.is_some() } else { purpose.replaying };
    load_with("selvedge", PROGRAM, each, wanted)
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

const fn check(map: &'static str, found: usize, expected: usize) -> Result<(), LoadError> {
    if found == expected { Ok(()) } else { Err(LoadError::Layout { map, found, expected }) }
}

/// Checks that the kernel reports support for BPF qdiscs.
pub(crate) fn supported() -> Result<(), LoadError> {
    let lacks = |missing| LoadError::NoQdiscs { release: release(), missing };
    let btf = types().map_err(|_| lacks("it gives no type information (BTF)"))?;
    let has = |name: &str| {
        btf.type_by_name::<libbpf_rs::btf::types::Struct<'_>>(name).is_some()
            || btf.type_by_name::<libbpf_rs::btf::types::Func<'_>>(name).is_some()
    };
    if !has("bpf_struct_ops_Qdisc_ops") {
        return Err(lacks("no struct_ops of Qdisc_ops"));
    }
    if !has("bpf_qdisc_watchdog_schedule") || !has("bpf_list_front") {
        return Err(lacks("no bpf_qdisc_watchdog_schedule or no bpf_list_front"));
    }
    Ok(())
}

/// The map of this name, which the programs have.
pub(crate) fn map<'a>(object: &'a Object, name: &str) -> Option<Map<'a>> {
    object.maps().find(|map| map.name() == name)
}

/// The same map, for attaching.
pub(crate) fn map_mut<'a>(object: &'a mut Object, name: &str) -> Option<MapMut<'a>> {
    object.maps_mut().find(|map| map.name() == name)
}

/// The whole content of a data map.
pub(crate) fn data(map: &impl MapCore) -> io::Result<Vec<u8>> {
    let found = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(io_error)?;
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// An error of libbpf, with its earlier messages.
pub(crate) fn refused(error: libbpf_rs::Error) -> LoadError {
    selvedge_os_bpf::refused(error).into()
}
