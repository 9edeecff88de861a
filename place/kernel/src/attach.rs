//! Gives a device the qdisc, and takes it back. The parts that outlive this process are pinned in the BPF
//! file system, in `selvedge/N` for the qdisc `selvedgeN`: the registration, and the maps with the streams.
//! The device's root qdisc shows which is its.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, MapHandle, Object};
use selvedge_os::netlink::Netlink;
use selvedge_os_bpf::{ProgramError, io_error};
use selvedge_units::Instant;

use crate::error::AttachError;
use crate::object::{self, FILTERS_MAP, Purpose, QDISC_MAP, SETUP_MAP, TABLE_MAP, map, map_mut};
use crate::qdisc::{self, Qdisc};
use crate::replay;
use crate::setup::Setup;

/// Where BPF objects are kept.
const BPF_FS: &str = "/sys/fs/bpf";
/// Locked while a qdisc is given or taken.
const TURN: &str = "/run/selvedge-kernel.lock";
const BPF_FS_MAGIC: i64 = 0xcafe_4a11;
/// The qdisc's name without its number.
pub(crate) const KIND: &str = "selvedge";
/// The most qdiscs of a machine: two digits, and time to try them all.
pub(crate) const QDISCS_MAX: u32 = 1000;
/// The files of a pinned qdisc; the registration last, since the others need it.
pub(crate) const PINS: [(&str, &str); 3] =
    [("setup", SETUP_MAP), ("table", TABLE_MAP), ("filters", FILTERS_MAP)];
const LINK: &str = "qdisc";

/// A device, and its root qdisc.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) ifindex: u32,
    pub(crate) netns: u64,
    pub(crate) netlink: Netlink,
}

impl Device {
    /// Looks a device up.
    pub(crate) fn find(name: &str) -> Result<Self, AttachError> {
        let netlink = Netlink::open().map_err(|why| failed("asking for devices", why))?;
        let no_device = || {
            let mut devices: Vec<String> = fs::read_dir("/sys/class/net")
                .into_iter()
                .flatten()
                .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
                .collect();
            devices.sort();
            AttachError::NoDevice { name: name.to_owned(), devices: devices.join(", ") }
        };
        let ifindex = netlink.index(name).map_err(|_| no_device())?;
        let netns = fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino());
        Ok(Self { name: name.to_owned(), ifindex, netns, netlink })
    }

    /// The number of the qdisc, if the root has one of ours; otherwise the kind of the other.
    pub(crate) fn ours(&self) -> Result<u32, AttachError> {
        let root = self.root()?;
        let kind = root.map_or_else(|| "none".to_owned(), |root| root.kind);
        number(&kind).ok_or_else(|| AttachError::NotAttached { device: self.name.clone(), kind })
    }

    /// Takes the qdisc of this kind from it.
    fn take(&self, kind: &str) -> Result<(), AttachError> {
        let taken = qdisc::delete(&self.netlink, self.ifindex, kind);
        taken.map_err(|why| failed(format!("taking the qdisc from {}", self.name), why))
    }

    fn root(&self) -> Result<Option<Qdisc>, AttachError> {
        qdisc::root(&self.netlink, self.ifindex).map_err(|why| failed("asking for qdiscs", why))
    }
}

/// `selvedgeN`: N.
fn number(kind: &str) -> Option<u32> {
    kind.strip_prefix(KIND)?.parse().ok()
}

/// The folder of a qdisc's pins.
pub(crate) fn folder(number: u32) -> PathBuf {
    Path::new(BPF_FS).join(KIND).join(number.to_string())
}

pub(crate) fn failed(what: impl Into<String>, why: io::Error) -> AttachError {
    match why.kind() {
        io::ErrorKind::PermissionDenied => AttachError::Load(ProgramError::NotPermitted.into()),
        _ => AttachError::Device { what: what.into(), why },
    }
}

/// Gives a device the qdisc. It stays when this process ends; besides the device, only the pins in the BPF
/// file system keep it. Under a second.
///
/// # Errors
/// If the setup is invalid, there is no such device, it has a qdisc that somebody set up, the right is
/// missing, or the kernel has no BPF qdiscs. Nothing is changed then.
pub fn attach(device: &str, setup: &Setup) -> Result<(), AttachError> {
    attach_for(device, setup, None).map(drop)
}

/// The same for a node of this process: the fate of each packet is reported, and if the process dies without
/// giving the qdisc back, the next `attach` may take its place.
pub(crate) fn attach_for_node(device: &str, setup: &Setup) -> Result<NodeQdisc, AttachError> {
    attach_for(device, setup, Some(std::process::id())).map(NodeQdisc)
}

fn attach_for(device: &str, setup: &Setup, node: Option<u32>) -> Result<Registered, AttachError> {
    setup.check()?;
    let device = Device::find(device)?;
    let _turn = turn()?;
    let (discipline, reports_fates) = (setup.discipline, node.is_some());
    let purpose = Purpose { discipline, replaying: false, reports_fates, kind: None };
    let bytes = setup.bytes(device.netns, device.ifindex, node.unwrap_or(0));
    register(device, purpose, &bytes)?.keep(setup)
}

/// A qdisc that a device has as long as a node needs it.
#[derive(Debug)]
pub(crate) struct NodeQdisc(Registered);

impl NodeQdisc {
    /// The programs and their maps.
    pub(crate) const fn object(&self) -> &Object {
        &self.0.object
    }

    /// Gives the device back its previous qdisc.
    pub(crate) fn restore(self) -> Result<(), AttachError> {
        let _turn = turn()?;
        // Another program may have taken it from the device already, and given it another.
        let taken = match self.0.device.ours() {
            Ok(number) if number == self.0.number => self.0.take(),
            _ => Ok(()),
        };
        unpin(&folder(self.0.number));
        taken
    }
}

/// A qdisc that the kernel knows, but that no device has yet; removed when dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    pub(crate) device: Device,
    pub(crate) number: u32,
    pub(crate) object: Object,
    pub(crate) link: Link,
}

/// Loads the programs and registers the qdisc, under a free name.
pub(crate) fn register(
    device: Device,
    purpose: Purpose<'_>,
    setup: &[u8],
) -> Result<Registered, AttachError> {
    if let Some(root) = device.root()? {
        let kind = root.kind;
        match number(&kind) {
            Some(number) if is_orphan(number) => {
                device.take(&kind)?;
                unpin(&folder(number));
            }
            Some(_) => return Err(AttachError::Already { device: device.name, kind }),
            None if root.handle != 0 => {
                return Err(AttachError::Occupied { device: device.name, kind });
            }
            None => {}
        }
    }
    object::supported()?;
    bpf_fs()?;
    sweep(&device);
    for number in 0..QDISCS_MAX {
        if folder(number).exists() {
            continue;
        }
        let kind = format!("{KIND}{number}");
        let mut object = object::load(Purpose { kind: Some(&kind), ..purpose }, setup)?;
        let qdisc = map_mut(&mut object, QDISC_MAP);
        let mut qdisc =
            qdisc.ok_or_else(|| failed("the program", io::ErrorKind::NotFound.into()))?;
        match qdisc.attach_struct_ops() {
            Ok(link) => return Ok(Registered { device, number, object, link }),
            // Another mount of the BPF file system may hold one of this name.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(object::refused(error).into()),
        }
    }
    Err(AttachError::Full(QDISCS_MAX))
}

impl Registered {
    /// Writes the filters, pins all that must stay, and gives the device the qdisc.
    fn keep(mut self, setup: &Setup) -> Result<Self, AttachError> {
        use libbpf_rs::{MapCore, MapFlags};
        if let Some(filters) = map(&self.object, FILTERS_MAP) {
            for (index, stream) in (0_u32..).zip(&setup.streams) {
                for filter in &stream.filters {
                    filters
                        .update(&filter.key(), &index.to_ne_bytes(), MapFlags::ANY)
                        .map_err(|error| failed("the filters", io_error(error)))?;
                }
            }
        }
        let folder = folder(self.number);
        let kept = self.pin(&folder).and_then(|()| self.give());
        if kept.is_err() {
            unpin(&folder);
        }
        kept.map(|()| self)
    }

    /// Gives the device the qdisc.
    pub(crate) fn give(&self) -> Result<(), AttachError> {
        let kind = format!("{KIND}{}", self.number);
        let Device { name, ifindex, netlink, .. } = &self.device;
        qdisc::add(netlink, *ifindex, &kind).map_err(|why| match why.kind() {
            io::ErrorKind::AlreadyExists => {
                AttachError::Already { device: name.clone(), kind: "one of this moment".into() }
            }
            _ => failed(format!("giving {name} the qdisc {kind}"), why),
        })
    }

    /// Takes it back.
    pub(crate) fn take(&self) -> Result<(), AttachError> {
        self.device.take(&format!("{KIND}{}", self.number))
    }

    fn pin(&mut self, folder: &Path) -> Result<(), AttachError> {
        let wrong = |path: &Path| {
            let path = path.to_owned();
            move |why: io::Error| AttachError::Pin { path, why }
        };
        fs::create_dir_all(folder).map_err(wrong(folder))?;
        for (file, name) in PINS {
            let path = folder.join(file);
            let mut map = map_mut(&mut self.object, name)
                .ok_or_else(|| failed("the program", io::ErrorKind::NotFound.into()))?;
            map.pin(&path).map_err(|error| wrong(&path)(io_error(error)))?;
        }
        let path = folder.join(LINK);
        self.link.pin(&path).map_err(|error| wrong(&path)(io_error(error)))
    }
}

/// A map of a pinned qdisc.
pub(crate) fn open_pin(number: u32, file: &str) -> Result<MapHandle, (PathBuf, io::Error)> {
    let path = folder(number).join(file);
    MapHandle::from_pinned_path(&path).map_err(|error| (path, io_error(error)))
}

/// The network namespace and index of the device of a pinned qdisc, and the process of the node that owns it;
/// 0 if none does.
fn owner(qdisc: u32) -> io::Result<(u64, u32, u32)> {
    let setup = open_pin(qdisc, "setup").map_err(|(_, why)| why)?;
    let setup = object::data(&setup)?;
    let word = |at: usize| replay::number::<4>(&setup, at).map_or(0, u32::from_ne_bytes);
    let netns = replay::number::<8>(&setup, 32).map_or(0, u64::from_ne_bytes);
    Ok((netns, word(40), word(44)))
}

/// Whether a qdisc belonged to a node that is dead.
fn is_orphan(number: u32) -> bool {
    let maker = owner(number).map_or(0, |(.., process)| process);
    maker != 0 && !Path::new("/proc").join(maker.to_string()).exists()
}

/// Removes a qdisc's pins: if no device holds it, it is then gone.
fn unpin(folder: &Path) {
    for file in PINS.map(|(file, _)| file).into_iter().chain([LINK]) {
        let _ = fs::remove_file(folder.join(file));
    }
    let _ = fs::remove_dir(folder);
    // Removed with the last one.
    let _ = folder.parent().map(fs::remove_dir);
}

pub(crate) fn bpf_fs() -> Result<(), AttachError> {
    let found = rustix::fs::statfs(BPF_FS).is_ok_and(|found| found.f_type == BPF_FS_MAGIC);
    if found { Ok(()) } else { Err(AttachError::NoBpfFs(BPF_FS.into())) }
}

/// Lets one process at a time give and take, so that pins of another process in progress do not count as
/// stale. Ends when dropped, or with the process. Only root can open the file, so that no other user can hold
/// it.
fn turn() -> Result<Option<fs::File>, AttachError> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = fs::File::options().write(true).create(true).truncate(false).mode(0o600).open(TURN);
    // A user that can't open it can't do the rest either, which is reported later.
    let Ok(file) = file else { return Ok(None) };
    file.lock().map_err(|why| AttachError::Pin { path: TURN.into(), why })?;
    Ok(Some(file))
}

/// Removes the pins of devices of this network namespace that are gone or have another qdisc by now. Either
/// the qdisc was removed without `detach`, or an `attach` was killed half way.
fn sweep(device: &Device) {
    let folders = fs::read_dir(Path::new(BPF_FS).join(KIND)).into_iter().flatten().flatten();
    for entry in folders {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stale = match owner(number) {
            Ok((netns, ifindex, _)) => {
                netns == device.netns
                    && qdisc::root(&device.netlink, ifindex).is_ok_and(|root| {
                        root.is_none_or(|root| self::number(&root.kind) != Some(number))
                    })
            }
            // Without its setup it is unusable; one that is just being created has a setup.
            Err(why) => {
                why.kind() == io::ErrorKind::NotFound && !folder(number).join(LINK).exists()
            }
        };
        if stale {
            unpin(&folder(number));
        }
    }
}

/// Gives a device back its previous qdisc: the one that the kernel assigns by default. Waiting packets are
/// dropped.
///
/// # Errors
/// If there is no such device, or it does not have Selvedge's qdisc, or the right is missing.
pub fn detach(device: &str) -> Result<(), AttachError> {
    let device = Device::find(device)?;
    let _turn = turn()?;
    let number = device.ours()?;
    device.take(&format!("{KIND}{number}"))?;
    unpin(&folder(number));
    Ok(())
}

/// The kernel's clock, which deadlines use.
pub(crate) fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant((time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64))
}
