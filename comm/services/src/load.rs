//! Loading programs into the kernel: open, adapt, load. All loaded programs end when the object and
//! its links are dropped, or when the process ends, however it ends: nothing is pinned.

use std::io;

use libbpf_rs::btf::Btf;
use libbpf_rs::{MapCore, MapHandle, Object, OpenObject};

use selvedge_os::memory::{Access, Mapping};
use selvedge_os_bpf::io_error;

use crate::error::ServiceError;

/// Opens an object, lets `fix` adapt it, and loads it.
pub(crate) fn load(
    object: &[u8],
    fix: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Object, ServiceError> {
    selvedge_os_bpf::load("selvedge_events", object, |open| fix(open).map_err(refused))
}

/// An error of libbpf, with the messages before it.
pub(crate) fn refused(error: libbpf_rs::Error) -> ServiceError {
    selvedge_os_bpf::refused(error).into()
}

/// Whether the kernel has this tracepoint.
pub(crate) fn tracepoint(types: &Btf<'_>, name: &str) -> bool {
    let name = format!("btf_trace_{name}");
    types.type_by_name::<libbpf_rs::btf::types::Typedef<'_>>(name.as_str()).is_some()
}

/// An object's map, by a descriptor of its own.
pub(crate) fn handle(object: &Object, name: &'static str) -> Result<MapHandle, ServiceError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| ServiceError::Call(name, io::ErrorKind::NotFound.into()))?;
    MapHandle::try_from(&map).map_err(|error| ServiceError::Call(name, io_error(error)))
}

/// An object's map, mapped here.
pub(crate) fn mapped(
    object: &Object,
    name: &'static str,
    size: usize,
) -> Result<Mapping, ServiceError> {
    let map = handle(object, name)?;
    let size = size.next_multiple_of(rustix::param::page_size());
    Mapping::new(map, 0, size, Access::ReadWrite).map_err(|error| ServiceError::Call(name, error))
}
