//! The I/O event module on this machine's sockets: no socket that becomes ready is missed, and none
//! is reported after its end.

mod machine;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use machine::permitted;
use selvedge_comm_services::{AttachError, Readiness, Ready};
use selvedge_tests_wait::until_some;
use selvedge_units::Duration;

fn looked(readiness: &Readiness) -> Vec<RawFd> {
    let mut all = Vec::new();
    readiness.poll_ready(&mut all);
    all.into_iter().map(|ready: Ready| ready.descriptor).collect()
}

fn waited(readiness: &Readiness) -> Vec<Ready> {
    let mut all = Vec::new();
    readiness.wait(&mut all, Some(Duration::from_secs(20))).unwrap();
    all
}

fn udp() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let at = socket.local_addr().unwrap();
    (socket, at)
}

#[test]
fn what_comes_is_seen_once_without_a_call() {
    if !permitted() {
        return;
    }
    let readiness = Readiness::new().unwrap();
    let (socket, to) = udp();
    let (other, _) = udp();
    readiness.attach(&socket).unwrap();
    assert_eq!(looked(&readiness), [socket.as_raw_fd()], "data may wait already");
    assert!(looked(&readiness).is_empty());
    other.send_to(b"one", to).unwrap();
    assert_eq!(readiness.ready(), 1);
    assert_eq!(looked(&readiness), [socket.as_raw_fd()]);
    assert!(looked(&readiness).is_empty());
    readiness.rearm_descriptor(socket.as_raw_fd());
    assert_eq!(looked(&readiness), [socket.as_raw_fd()]);
    readiness.detach(socket.as_raw_fd()).unwrap();
    other.send_to(b"two", to).unwrap();
    assert!(looked(&readiness).is_empty());
    // Many sockets at once.
    readiness.set_interest(socket.as_raw_fd()).unwrap();
    readiness.set_interest(other.as_raw_fd()).unwrap();
    readiness.apply().unwrap();
    assert_eq!(looked(&readiness).len(), 2);
}

#[test]
fn connections_data_ends_and_resets_wake() {
    if !permitted() {
        return;
    }
    let readiness = Readiness::new().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = listener.local_addr().unwrap();
    readiness.attach(&listener).unwrap();
    looked(&readiness);
    let mut client = TcpStream::connect(to).unwrap();
    assert_eq!(waited(&readiness)[0].descriptor, listener.as_raw_fd());
    let (mut server, _) = listener.accept().unwrap();
    readiness.attach(&server).unwrap();
    looked(&readiness);
    let own = [Ready { descriptor: server.as_raw_fd(), room: false }];
    client.write_all(b"data").unwrap();
    assert_eq!(waited(&readiness), own);
    server.read_exact(&mut [0; 4]).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(waited(&readiness), own);
    assert_eq!(server.read(&mut [0; 4]).unwrap(), 0);
    // A reset, caused by closing with unread data.
    server.write_all(b"unread").unwrap();
    until_some("the data", || (client.peek(&mut [0; 8]).unwrap() == 6).then_some(()));
    drop(client);
    assert_eq!(waited(&readiness), own);
    until_some("the reset", || {
        let end = server.take_error().unwrap().is_some() || server.write(b"x").is_err();
        end.then_some(())
    });
}

#[test]
fn room_and_connections_of_ones_own_are_told_once() {
    if !permitted() {
        return;
    }
    let readiness = Readiness::new().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut writer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut reader, _) = listener.accept().unwrap();
    writer.set_nonblocking(true).unwrap();
    readiness.attach(&writer).unwrap();
    looked(&readiness);
    readiness.notify_writable(&writer).unwrap();
    let room = [Ready { descriptor: writer.as_raw_fd(), room: true }];
    assert_eq!(waited(&readiness), room, "there is room at once");
    let mut written = 0;
    while let Ok(more) = writer.write(&[0; 65536]) {
        written += more;
    }
    readiness.notify_writable(&writer).unwrap();
    assert!(looked(&readiness).is_empty(), "there is none now");
    // Reads all data, however much the kernel accepted.
    reader.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let sink = std::thread::spawn(move || {
        let mut all = vec![0; written];
        reader.read_exact(&mut all).map(|()| reader)
    });
    assert_eq!(waited(&readiness), room);
    drop(sink.join().unwrap().expect("what was written comes"));
}

#[test]
fn a_number_that_is_used_again_is_the_new_sockets() {
    if !permitted() {
        return;
    }
    let readiness = Readiness::new().unwrap();
    let (sender, _) = udp();
    // Far above the numbers of other tests, which get the lowest free ones.
    let high =
        |socket: &UdpSocket| -> OwnedFd { rustix::io::fcntl_dupfd_cloexec(socket, 3000).unwrap() };
    let (held, to_first) = udp();
    let first = high(&held);
    readiness.attach(&first).unwrap();
    let number = first.as_raw_fd();
    drop(first);
    sender.send_to(b"old", to_first).unwrap();
    let (low, to_second) = udp();
    let second = high(&low);
    assert_eq!(second.as_raw_fd(), number);
    drop(low);
    readiness.attach(&second).unwrap();
    assert_eq!(looked(&readiness), [number]);
    sender.send_to(b"old", to_first).unwrap();
    assert!(looked(&readiness).is_empty(), "the old socket has no number any more");
    sender.send_to(b"new", to_second).unwrap();
    assert_eq!(looked(&readiness), [number]);
    drop(held);
    drop(second);
    // After a close without detach, the number reports nothing more.
    sender.send_to(b"gone", to_second).unwrap();
    assert!(looked(&readiness).is_empty());
}

#[test]
fn what_cannot_be_watched_is_refused_by_name() {
    if !permitted() {
        return;
    }
    let readiness = Readiness::new().unwrap();
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert!(matches!(readiness.attach(&one), Err(AttachError::Kind(n)) if n == one.as_raw_fd()));
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = readiness.attach(&file).unwrap_err().to_string();
    assert!(error.contains("no socket of TCP or UDP; use epoll"), "{error}");
    assert!(matches!(readiness.set_interest(-1), Err(AttachError::TooHigh(-1))));
    assert!(matches!(readiness.set_interest(65_536), Err(AttachError::TooHigh(65_536))));
    readiness.set_interest(60_000).unwrap();
    assert!(matches!(readiness.apply(), Err(AttachError::Refused(60_000, _))));
    assert!(looked(&readiness).is_empty());
}

#[test]
fn a_wait_ends_by_time() {
    if !permitted() {
        return;
    }
    let readiness = Readiness::new().unwrap();
    let mut none = Vec::new();
    readiness.wait(&mut none, Some(Duration::from_millis(5))).unwrap();
    readiness.wait(&mut none, Some(Duration(0))).unwrap();
    assert!(none.is_empty());
}

/// Senders on other threads, and a receiver that sleeps whenever nothing is ready and uses no other
/// source: it gets every packet, or it would sleep for ever.
#[test]
fn nothing_is_slept_over() {
    if !permitted() {
        return;
    }
    const SOCKETS: usize = 40;
    const EACH: u64 = 400;
    let readiness = Readiness::new().unwrap();
    let sockets: Vec<_> = (0..SOCKETS).map(|_| udp()).collect();
    let mut by_number = vec![usize::MAX; 4096];
    for (index, (socket, _)) in sockets.iter().enumerate() {
        readiness.attach(socket).unwrap();
        by_number[socket.as_raw_fd() as usize] = index;
    }
    let targets: Vec<_> = sockets.iter().map(|(_, to)| *to).collect();
    let got = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for part in 0..2 {
            let (targets, got) = (&targets, &got);
            scope.spawn(move || {
                let (sender, _) = udp();
                sender.set_nonblocking(false).unwrap();
                for number in 0..EACH * SOCKETS as u64 / 2 {
                    sender
                        .send_to(&[0; 8], targets[(number as usize * 7 + part) % SOCKETS])
                        .unwrap();
                    // The senders let the receiver sleep now and then, and never send more than queues hold.
                    while number * 2 > got.load(Ordering::Relaxed) + 1000 || number % 97 == 96 {
                        std::thread::yield_now();
                        if number * 2 <= got.load(Ordering::Relaxed) + 1000 {
                            break;
                        }
                    }
                }
            });
        }
        let mut ready = Vec::new();
        while got.load(Ordering::Relaxed) < EACH * SOCKETS as u64 {
            readiness.wait(&mut ready, Some(Duration::from_secs(20))).unwrap();
            assert!(!ready.is_empty(), "slept over: {} came", got.load(Ordering::Relaxed));
            for one in &ready {
                let socket = &sockets[by_number[one.descriptor as usize]].0;
                while socket.recv(&mut [0; 8]).is_ok() {
                    got.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    });
}

/// Parent and child share the memory: each mark is taken by exactly one of them.
#[test]
fn a_fork_shares_what_is_ready() {
    if !permitted() {
        return;
    }
    let readiness = Readiness::new().unwrap();
    let (socket, to) = udp();
    let (sender, _) = udp();
    readiness.attach(&socket).unwrap();
    looked(&readiness);
    let (mut told, mut tell) = {
        let (read, write) = std::io::pipe().unwrap();
        (read, write)
    };
    // SAFETY: the child calls nothing that another thread's locks could stop: it looks into shared
    // memory, receives, writes a byte, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut ready = Vec::with_capacity(16);
        let mut seen = 0_u8;
        let begun = std::time::Instant::now();
        while begun.elapsed() < std::time::Duration::from_secs(20) {
            readiness.poll_ready(&mut ready);
            if !ready.is_empty() {
                seen = u8::from(socket.recv(&mut [0; 8]).is_ok());
                break;
            }
            std::thread::yield_now();
        }
        let _ = tell.write_all(&[seen]);
        // SAFETY: ends at once, with nothing of the parent's cleaned up.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    sender.send_to(b"for one", to).unwrap();
    let mut answer = [0];
    told.read_exact(&mut answer).unwrap();
    // SAFETY: waits for the child of this test.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(answer, [1], "the child took it");
    assert!(looked(&readiness).is_empty());
    sender.send_to(b"for me", to).unwrap();
    assert_eq!(looked(&readiness), [socket.as_raw_fd()], "and the module lives on here");
}
