//! Sending and measuring do not allocate once they run.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::UdpSocket;

use selvedge_data_receive::{ClockRate, StreamMeter};
use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, write_packet};
use selvedge_data_stream::{Kind, References};
use selvedge_os::clock::Clock;
use selvedge_os::transmit::{Method, Outgoing, TransmitOptions, Transmitter};
use selvedge_units::Instant;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

/// The system's allocator, with a count per thread.
struct Counting;

// SAFETY: every call is forwarded unchanged to the system's allocator, which keeps the contract; the counter
// is a plain thread-local cell that itself never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is the system allocator's condition.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// How often `work` allocates on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn a_transmitter_allocates_only_for_its_largest_batch() {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = sink.local_addr().unwrap();
    let payload = [0; 500];
    let batch = vec![Outgoing { to, head: &[], bytes: &payload }; 300];
    for method in [Method::SendMsg, Method::SendMmsg, Method::Gso] {
        let options = TransmitOptions { method, ..TransmitOptions::default() };
        let mut transmitter = Transmitter::new(Clock::new(), options).unwrap();
        let first = allocations(|| _ = transmitter.send_batch(&batch));
        assert!(first > 0, "the counter counts");
        let later = allocations(|| {
            for len in [300, 1, 77, 0, 300] {
                transmitter.send_batch(&batch[..len]);
            }
        });
        assert_eq!(later, 0, "{method:?}");
    }
}

#[test]
fn a_meter_allocates_only_when_it_is_made() {
    let mut meter = StreamMeter::new(ClockRate::VIDEO);
    let mut bytes = vec![0; packet_len(0)];
    let after = allocations(|| {
        for n in 0..10_000_u32 {
            let seq = if n % 1000 < 990 { n / 3 } else { n.wrapping_mul(0x9e37_79b9) };
            let header = Header {
                marker: true,
                payload_type: 96,
                sequence: n as u16,
                timestamp: seq.wrapping_mul(3600),
                ssrc: n / 2000,
            };
            let tag = FrameTag {
                seq,
                kind: Kind::Predicted,
                referenced: true,
                first: n.is_multiple_of(3),
                last: n % 3 == 2,
                refs: References::to([1]),
                left_ms: 9,
                deadline_ms: n as u16,
            };
            write_packet(&mut bytes, header, tag, &[]);
            meter.handle_packet(Instant(u64::from(n) * 1_000_000), &bytes);
        }
        meter.finish();
    });
    assert_eq!(after, 0);
    assert!(meter.snapshot().complete > 3000);
}
