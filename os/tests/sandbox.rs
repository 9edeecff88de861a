//! A process that confined itself tries forbidden and allowed operations.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use rustix::process::{Signal, getppid, kill_process};
use selvedge_os::sandbox::{CapabilitySet, confine, keep_capabilities};

/// Marks this program as the one to be confined.
const CONFINED: &str = "SELVEDGE_TEST_CONFINED";

/// Runs one of these tests in a process of its own; returns whether this is that process.
fn is_confined(test: &str, file: &Path) -> bool {
    if std::env::var_os(CONFINED).is_some() {
        return true;
    }
    std::fs::write(file, "kept").unwrap();
    let own = std::env::current_exe().unwrap();
    let run = Command::new(own).args(["--exact", test, "--nocapture"]).env(CONFINED, file).output();
    let run = run.unwrap();
    assert!(run.status.success(), "{run:?}");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "kept");
    std::fs::remove_file(file).unwrap();
    false
}

fn scratch(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()))
}

fn is_denied<T>(done: io::Result<T>) -> bool {
    done.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn status(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_confined_process_has_the_network_memory_and_threads_and_nothing_else() {
    let name = "a_confined_process_has_the_network_memory_and_threads_and_nothing_else";
    if !is_confined(name, &scratch("confined")) {
        return;
    }
    let file = std::env::var_os(CONFINED).unwrap();
    let parent = getppid().unwrap();
    let held = UdpSocket::bind("127.0.0.1:0").unwrap();
    confine(&[Path::new("/proc/thread-self/status"), Path::new("/etc/hosts")]).unwrap();

    assert_eq!((status("Seccomp:"), status("NoNewPrivs:")), ("2".into(), "1".into()));
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        let left = status(set);
        assert!(left.bytes().all(|digit| digit == b'0') || set == "CapBnd:", "{set} {left}");
    }
    // Allowed operations.
    assert!(File::open("/etc/hosts").is_ok());
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    held.send_to(b"x", other.local_addr().unwrap()).unwrap();
    assert_eq!(other.recv(&mut [0; 8]).unwrap(), 1);
    let refused = TcpStream::connect(("127.0.0.1", 1)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let many = std::thread::spawn(|| vec![1_u8; 1 << 20].len()).join().unwrap();
    assert_eq!(many, 1 << 20);
    assert!(UnixStream::pair().unwrap().0.write_all(b"x").is_ok());
    // Forbidden operations.
    assert!(is_denied(File::open("/etc/passwd")), "reading");
    assert!(is_denied(OpenOptions::new().write(true).open(&file)), "writing");
    assert!(is_denied(OpenOptions::new().append(true).open("/etc/hosts")), "appending");
    assert!(is_denied(File::create(scratch("new"))), "making");
    assert!(is_denied(std::fs::remove_file(&file)), "removing");
    assert!(is_denied(std::fs::rename(&file, scratch("moved"))), "renaming");
    assert!(is_denied(Command::new("/bin/true").status()), "starting programs");
    assert!(is_denied(kill_process(parent, Signal::TERM).map_err(Into::into)), "signals");
    assert!(is_denied(UnixDatagram::unbound()), "local sockets");
    let rights = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
    // SAFETY: a new mapping, at an address that the kernel chooses; it is refused.
    let code = unsafe { mmap_anonymous(std::ptr::null_mut(), 4096, rights, MapFlags::PRIVATE) };
    assert!(is_denied(code.map_err(Into::into)), "code that is made");
    let name = rustix::fs::memfd_create("code", rustix::fs::MemfdFlags::CLOEXEC);
    assert!(is_denied(name.map_err(Into::into)), "files in memory");
}

#[test]
fn a_process_keeps_the_capabilities_that_it_names() {
    let name = "a_process_keeps_the_capabilities_that_it_names";
    if !is_confined(name, &scratch("capable")) {
        return;
    }
    let before = rustix::thread::capabilities(None).unwrap().effective;
    let keep = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_NICE;
    keep_capabilities(keep).unwrap();
    let after = rustix::thread::capabilities(None).unwrap();
    assert_eq!((after.effective, after.permitted), (before & keep, before & keep));
    let bounds = u64::from_str_radix(&status("CapBnd:"), 16).unwrap();
    if before.contains(CapabilitySet::SETPCAP) {
        assert_eq!(CapabilitySet::from_bits_retain(bounds), before & keep, "nor do its children");
    }
}
