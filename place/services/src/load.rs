//! Programs into the kernel: opened, fixed for a purpose, loaded. All that is loaded goes when the
//! object and its links are dropped, or when the process ends, however it ends: nothing is pinned.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::btf::Btf;
use libbpf_rs::{MapCore, Object, ObjectBuilder, OpenObject, PrintLevel};

use crate::error::ServiceError;
use crate::mapped::Mapped;

/// Lines of libbpf's that an error tells.
const LOG_LINES: usize = 12;

/// Opens an object, lets `fix` change what is to be loaded of it, and loads it.
pub(crate) fn load(
    object: &[u8],
    fix: impl FnOnce(&mut OpenObject) -> libbpf_rs::Result<()>,
) -> Result<Object, ServiceError> {
    listen();
    let mut open = ObjectBuilder::default()
        .name("selvedge_events")
        .and_then(|builder| builder.open_memory(object))
        .map_err(refused)?;
    fix(&mut open).map_err(refused)?;
    open.load().map_err(refused)
}

/// Whether the kernel has this tracepoint.
pub(crate) fn tracepoint(types: &Btf<'_>, name: &str) -> bool {
    let name = format!("btf_trace_{name}");
    types.type_by_name::<libbpf_rs::btf::types::Typedef<'_>>(name.as_str()).is_some()
}

/// The kernel's types.
pub(crate) fn types() -> Result<Btf<'static>, ServiceError> {
    Btf::from_vmlinux().map_err(|_| ServiceError::NoTypes(release()))
}

/// `uname -r`.
pub(crate) fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// A descriptor of our own for an object's map.
pub(crate) fn descriptor(object: &Object, name: &'static str) -> Result<OwnedFd, ServiceError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| ServiceError::Call(name, io::ErrorKind::NotFound.into()))?;
    map.as_fd().try_clone_to_owned().map_err(|error| ServiceError::Call(name, error))
}

/// An object's map, mapped here.
pub(crate) fn mapped(
    object: &Object,
    name: &'static str,
    size: usize,
) -> Result<Mapped, ServiceError> {
    let map = descriptor(object, name)?;
    let size = size.next_multiple_of(rustix::param::page_size());
    Mapped::new(map, size, 0, true).map_err(|error| ServiceError::Call(name, error))
}

thread_local! {
    /// What libbpf has said since the last load.
    static SAID: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Keeps what libbpf says, for the error that may follow.
fn listen() {
    SAID.with_borrow_mut(Vec::clear);
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, line: String| {
        SAID.with_borrow_mut(|said| {
            said.extend(line.lines().map(str::to_owned));
            let surplus = said.len().saturating_sub(LOG_LINES);
            said.drain(..surplus);
        });
    })));
}

pub(crate) fn refused(error: libbpf_rs::Error) -> ServiceError {
    // The verifier's refusals come with a log, and as EACCES or EPERM as well.
    let said = SAID.with_borrow(Vec::len);
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && said < 6 {
        return ServiceError::NotPermitted;
    }
    let mut log = String::new();
    for line in SAID.take() {
        log.push_str("\n  ");
        log.push_str(line.trim_end());
    }
    ServiceError::Refused { why: io::Error::other(format!("{error:#}")), log }
}
