//! A receiver that counts what is missing of the frames that come to it, by the numbers of packets and of
//! frames: `socket -> thread -> Seen`.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use selvedge_data_stream::rtp::Packet;

use crate::support::sink;

/// Room for what comes while the witness waits for a processor; the system may grant less.
const ROOM: usize = 8 << 20;

/// Packets of the frame that was on its way when its sender died come again, and no more than these.
const REPEATED_MAX: i16 = 50;

/// What came so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) packets: u64,
    /// Numbers of packets and of frames that were passed over while a source sent.
    pub(crate) missing: [u64; 2],
    /// The synchronization source that sends now.
    pub(crate) source: Option<u32>,
    /// When the last packet came.
    pub(crate) last: Option<Instant>,
    next: (u16, u32),
}

impl Seen {
    fn push(&mut self, packet: &[u8]) {
        let packet = Packet::parse(packet).expect("only RTP comes");
        let (number, frame) = (packet.header.sequence, packet.tag.expect("of a node").seq);
        let source = Some(packet.header.ssrc);
        if std::mem::replace(&mut self.source, source) != source {
            self.next = (number, frame);
        }
        self.packets += 1;
        self.last = Some(Instant::now());
        // What had come before, as it may from a coprocessor's successor, passes over nothing; who numbers
        // from the beginning does.
        let behind = self.next.0.wrapping_sub(number).cast_signed();
        self.missing[0] += u64::from(behind > REPEATED_MAX);
        if let Ok(ahead) = u16::try_from(number.wrapping_sub(self.next.0).cast_signed()) {
            self.missing[0] += u64::from(ahead);
            self.next.0 = number.wrapping_add(1);
        }
        if let Ok(ahead) = u32::try_from(frame.wrapping_sub(self.next.1).cast_signed()) {
            self.missing[1] += u64::from(ahead);
            self.next.1 = frame.wrapping_add(1);
        }
    }
}

/// The receiver; dropped, it stops.
pub(crate) struct Witness {
    pub(crate) at: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    pub(crate) fn new() -> Self {
        let (socket, at) = sink();
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, ROOM)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, ROOM));
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("not zero");
        let (seen, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (told, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || receive(&socket, &told, &stopped));
        Self { at, seen, stop, thread: Some(thread) }
    }

    pub(crate) fn seen(&self) -> Seen {
        *self.seen.lock().unwrap()
    }
}

fn receive(socket: &UdpSocket, seen: &Mutex<Seen>, stop: &AtomicBool) {
    let mut bytes = [0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        if let Ok(len) = socket.recv(&mut bytes) {
            seen.lock().unwrap().push(&bytes[..len]);
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || std::thread::panicking(), "only RTP came");
        }
    }
}
