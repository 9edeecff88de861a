//! The C header and this module have the same layout: marks set here are taken there. Needs `cc`.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use super::*;
use selvedge_os::memory::Access;
use selvedge_units::Duration;

/// Compiles a C file of this crate; returns the program.
fn compile(source: &str) -> PathBuf {
    let stem = Path::new(source).file_stem().expect("a name").to_string_lossy().into_owned();
    let program = std::env::temp_dir().join(format!("slv-{stem}-{}", std::process::id()));
    let strict = ["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"];
    let mut command = Command::new("cc");
    command.args(strict).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source));
    let output = command.arg("-o").arg(&program).output().expect("cc is in tools/packages.txt");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A C++ program may include the header, too.
#[test]
fn the_header_is_also_cpp() {
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/selvedge_readiness.h");
    let mut command = Command::new("cc");
    command.args(["-x", "c++", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]).arg(header);
    let output = command.output().expect("cc is in tools/packages.txt");
    let stderr = String::from_utf8_lossy(&output.stderr);
    // A compiler for C only reports that it has no C++ part.
    let has_none = stderr.contains("cc1plus");
    assert!(output.status.success() || has_none, "{stderr}");
}

/// Runs a program to its end, with a time limit; returns its status and output.
fn run(command: &mut Command) -> (ExitStatus, Vec<u8>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it was compiled");
    let mut printed = child.stdout.take().expect("it is piped");
    // Read meanwhile, since the program may print more than a pipe holds.
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        printed.read_to_end(&mut bytes).map(|_| bytes)
    });
    let end = Instant::now() + Duration::from_secs(60).into();
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} does not end");
        }
        std::thread::park_timeout(Duration::from_millis(5).into());
    };
    (status, reader.join().expect("it does not panic").expect("a pipe can be read"))
}

#[test]
fn structures_lie_as_the_header_says() {
    let program = compile("tests/layout.c");
    let text = String::from_utf8(run(&mut Command::new(&program)).1).expect("plain text");
    let _ = std::fs::remove_file(program);
    let own = [
        ("interest.flag", 0),
        ("interest.fd_list", FD_LIST),
        ("interest.updated_fd_list", UPDATED),
        ("ready.flag", READY),
        ("ready.sleeping", SLEEPING),
        ("ready.signalled", SIGNALLED),
        ("ready.summary", SUMMARY),
        ("ready.fd_active", FD_ACTIVE),
        ("generation", GENERATION),
        ("size", SIZE),
    ];
    let own: Vec<String> = own.iter().map(|(name, at)| format!("{name} {at}")).collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), own);
}

/// Memory that another process may map, too.
fn memory() -> (ReadinessBoard, OwnedFd) {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    // The descriptor stays open on exec: the other process needs it.
    let file = memfd_create("readiness", MemfdFlags::empty()).expect("memory");
    ftruncate(&file, SIZE as u64).expect("memory");
    (ReadinessBoard::new(Mapping::new(&file, 0, SIZE, Access::ReadWrite).expect("memory")), file)
}

#[test]
fn what_is_marked_here_is_taken_by_a_program_in_c() {
    let program = compile("examples/readiness.c");
    let (board, file) = memory();
    for descriptor in [65_535, 3, 64, 4096, 3] {
        board.mark(descriptor);
    }
    let number = file.as_raw_fd().to_string();
    let (status, printed) = run(Command::new(&program).args([&number, "-1", "4"]));
    assert_eq!(String::from_utf8_lossy(&printed), "3\n64\n4096\n65535\n");
    assert!(status.success() && !board.any() && board.ready() == 0);
    // With arbitrary content only descriptors come out, and the loop ends.
    board.scribble(&vec![0xff; SIZE]);
    let (_, printed) = run(Command::new(&program).args([&number, "-1", "65536"]));
    assert_eq!(printed.split(|byte| *byte == b'\n').count(), 65_537);
    let _ = std::fs::remove_file(program);
}
