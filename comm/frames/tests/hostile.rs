//! A node's ends against programs that connect and write anything: nothing panics, nothing waits, and the next program
//! is served.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use selvedge_comm_frames::{
    Camera, CameraPort, ConnectError, FrameInfo, Greeting, Layout, Refused, Role, Viewer,
    ViewerPort, WriteError,
};
use selvedge_os::memory::Memfd;
use selvedge_os::seqpacket;
use selvedge_tests_wait::{until, until_some};
use selvedge_units::{Bytes, Duration};

fn layout() -> Layout {
    Layout::new(8, Bytes(64 << 10))
}

/// Runs `work` while a thread polls the port; returns the lengths of the frames that came.
fn served<T>(port: &mut CameraPort, work: impl FnOnce() -> T) -> (T, Vec<usize>) {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let poller = scope.spawn(move || {
            let mut lens = Vec::new();
            while !over.load(Ordering::Relaxed) {
                port.poll(Duration::from_millis(5), &mut |_, bytes| lens.push(bytes.len()));
            }
            port.poll(Duration::ZERO, &mut |_, bytes| lens.push(bytes.len()));
            lens
        });
        // A test that fails must end the thread, too.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        let lens = poller.join().unwrap();
        (done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), lens)
    })
}

fn at(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("it.sock")
}

/// Connects, and maps the memory without the library.
fn mapped(path: &Path, role: Role, encoding: Option<&str>) -> (OwnedFd, Memfd) {
    let socket = seqpacket::connect_to(path).unwrap();
    let name = if role == Role::Camera { "camera" } else { "viewer" };
    let encoding = encoding.map_or_else(|| "null".to_owned(), |encoding| format!("\"{encoding}\""));
    let text = format!("{{\"selvedge_frames\":1,\"role\":\"{name}\",\"encoding\":{encoding}}}");
    seqpacket::send(&socket, text.as_bytes(), &[]).unwrap();
    assert!(seqpacket::wait_readable(&socket, Duration::from_secs(60)));
    let seqpacket::Received::Message(_, fds) = seqpacket::receive(&socket).unwrap() else {
        panic!()
    };
    let memory = Memfd::open(fds.into_iter().next().unwrap(), 0..=1 << 30).unwrap();
    (socket, memory)
}

/// A generator of numbers (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Where a ring's counter of written frames and its first slot lie in the memory.
const TAIL: usize = 512 + 128;
const SLOT: usize = 512 + 384;

#[test]
fn any_bytes_in_the_memory_end_no_more_than_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let mut port = CameraPort::listen(&at(&folder), "H264", layout()).unwrap();
    let (refused, _) = served(&mut port, || {
        let mut refused = 0;
        for seed in 1..=60_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (socket, memory) = mapped(&at(&folder), Role::Camera, Some("H264"));
            for turn in 0..200 {
                // The ring's counters and first slots, at times the whole memory, at times small numbers.
                let (most, small) =
                    if turn % 3 == 0 { (memory.size(), u64::MAX) } else { (1200, 300) };
                let place = (next(&mut state) as usize % most) & !7;
                memory.put(place, next(&mut state) % small);
                if turn % 20 == 0 {
                    let bytes: Vec<u8> = (0..next(&mut state) % 40).map(|n| n as u8).collect();
                    let _ = seqpacket::send(&socket, &bytes, &[]);
                }
            }
            // It has ended the connection, or reads on.
            if seqpacket::wait_readable(&socket, Duration::from_millis(10)) {
                refused += 1;
            }
            drop(socket);
            // A sound program is served afterwards.
            let mut camera = None;
            until("the next camera is let in", || {
                camera = Camera::connect(&at(&folder), "H264").ok();
                camera.is_some()
            });
            let mut camera = camera.unwrap();
            let before = camera.counts().taken;
            camera.write(FrameInfo::default(), b"sound").unwrap();
            until("it is served", || camera.counts().taken > before);
        }
        refused
    });
    assert!(refused > 20, "of 60 programs {refused} were refused");
}

#[test]
fn descriptors_that_name_nothing_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut port = CameraPort::listen(&at(&folder), "H264", layout()).unwrap();
    // Start, length and kind of a slot; whether it is a frame.
    let cases = [
        (16, 5, 0_u64, true),
        (16, 0, 0, false),
        (8, 5, 0, false),
        (u64::MAX - 3, 5, 0, false),
        (16, u32::MAX, 0, false),
        ((64 << 10) - 16, 100, 0, false),
        (1 << 40, 5, 0, false),
        (16, 5, 99, false),
    ];
    for (start, len, kind, is_frame) in cases {
        let (_, lens) = served(&mut port, || {
            let (socket, memory) = mapped(&at(&folder), Role::Camera, Some("H264"));
            memory.put(SLOT, start);
            memory.put(SLOT + 32, u64::from(len) | kind << 32);
            memory.atomic_u32(TAIL).store(1, Ordering::Release);
            seqpacket::send(&socket, &[1], &[]).unwrap();
            let gone = seqpacket::wait_readable(
                &socket,
                Duration::from_millis(if is_frame { 50 } else { 5000 }),
            );
            assert_eq!(gone, !is_frame, "{start} {len} {kind}");
        });
        assert_eq!(lens, if is_frame { vec![5] } else { vec![] }, "{start} {len} {kind}");
    }
}

#[test]
fn silent_and_noisy_newcomers_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut port = CameraPort::listen(&at(&folder), "JPEG", layout()).unwrap();
    let _ = served(&mut port, || {
        let silent: Vec<_> =
            (0..20).filter_map(|_| seqpacket::connect_to(&at(&folder)).ok()).collect();
        for garbage in [
            &b"{"[..],
            b"{\"selvedge_frames\":2,\"role\":\"camera\",\"encoding\":null}",
            &[0; 16_000],
        ] {
            // The queue of the listener may be full of the silent ones.
            let socket = until_some("it connects", || seqpacket::connect_to(&at(&folder)).ok());
            seqpacket::send(&socket, garbage, &[socket.as_fd()]).unwrap();
            assert!(seqpacket::wait_readable(&socket, Duration::from_secs(60)));
        }
        let refused = |role, encoding: Option<&str>| match Greeting::new(role, encoding)
            .connect(&at(&folder))
        {
            Err(ConnectError::Refused(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(refused(Role::Viewer, None).contains("connect a camera"));
        assert!(refused(Role::Camera, Some("H264")).contains("encoding is JPEG"));
        let mut camera = Camera::connect(&at(&folder), "jpeg").unwrap();
        assert!(refused(Role::Camera, Some("JPEG")).contains("another camera"));
        camera.write(FrameInfo::default(), b"x").unwrap();
        until("it is served", || camera.counts().taken == 1);
        drop(silent);
    });
    drop(port);
    assert!(!at(&folder).exists());
}

#[test]
fn a_full_memory_leaves_frames_out_and_counts_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut port = CameraPort::listen(&at(&folder), "H264", layout()).unwrap();
    let (mut camera, _) = served(&mut port, || Camera::connect(&at(&folder), "H264").unwrap());
    let written: Vec<_> = (0..10).map(|_| camera.write(FrameInfo::default(), b"frame")).collect();
    assert!(written[..8].iter().all(Result::is_ok));
    assert_eq!(written[8..], [Err(WriteError::Refused(Refused::Full)); 2]);
    let long = vec![0; 40 << 10];
    let refused = camera.write(FrameInfo::default(), &long).unwrap_err();
    assert!(
        matches!(refused, WriteError::Refused(Refused::Full | Refused::TooLarge(..))),
        "{refused}"
    );
    assert_eq!(camera.left_out(), 3);
    let (_, lens) = served(&mut port, || until("taken", || camera.counts().taken == 8));
    assert_eq!(lens, [5; 8]);
    assert_eq!(camera.write(FrameInfo::default(), b""), Err(Refused::Empty.into()));
    drop(port);
    until("gone", || !camera.is_connected());
}

#[test]
fn a_viewer_that_stops_loses_frames_alone() {
    let folder = tempfile::tempdir().unwrap();
    let port = Arc::new(Mutex::new(ViewerPort::listen(&at(&folder), layout()).unwrap()));
    let polled = Arc::clone(&port);
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let poller = std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            polled.lock().unwrap().poll(Some("H264"));
            std::thread::yield_now();
        }
    });
    let mut watching = Viewer::connect(&at(&folder)).unwrap();
    assert_eq!(watching.encoding(), Some("H264"));
    // One stops, and one writes nonsense into its memory all the time.
    let _stopped = Viewer::connect(&at(&folder)).unwrap();
    let (_socket, memory) = mapped(&at(&folder), Role::Viewer, None);
    let (mut state, mut frame) = (7, Vec::new());
    for number in 0..200_u64 {
        memory.put((next(&mut state) as usize % memory.size()) & !7, next(&mut state));
        let info = FrameInfo { number, ..FrameInfo::default() };
        port.lock().unwrap().give(&info, &number.to_be_bytes());
        let read = watching.read(Duration::from_secs(60), &mut frame).unwrap().unwrap();
        assert_eq!((read.number, &frame[..]), (number, &number.to_be_bytes()[..]));
    }
    let more: Vec<_> = (0..13).map(|_| Viewer::connect(&at(&folder)).unwrap()).collect();
    match Viewer::connect(&at(&folder)) {
        Err(ConnectError::Refused(why)) => assert!(why.contains("16 viewers"), "{why}"),
        other => panic!("{other:?}"),
    }
    drop(more);
    until("the others have gone", || port.lock().unwrap().viewers() == 3);
    over.store(true, Ordering::Relaxed);
    poller.join().unwrap();
    drop(port);
    assert!(watching.read(Duration::from_secs(60), &mut frame).is_err());
}
