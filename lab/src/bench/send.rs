//! `bench send`: packets a second through a link's scheduling and selection, against plain sending
//! of the same packets in the same order by the same system calls, sample by sample in turns.

use selvedge_cli_terminal::{Failure, Table};
use selvedge_data_link::{Link, LinkParams};
use selvedge_data_memory::PayloadSpan;
use selvedge_data_sched::{Decision, Discipline, Head, Scheduler, StreamIndex};
use selvedge_data_stream::rtp::IPV4_UDP;
use selvedge_data_stream::{Contract, Frame, Kind, References, Window};
use selvedge_lab_measure::send::{SendLoop, compare, send_over_wire};
use selvedge_os::clock::Clock;
use selvedge_os::huge_pages;
use selvedge_os::transmit::Method;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};
use serde_json::json;

use super::Measurement;

const PACKET: Bytes = Bytes(1200);
/// Decisions that are recorded, for plain sending to repeat.
const ORDER: usize = 1 << 16;
/// Sockets that streams are spread over: a run of packets to one of them may go as one.
const DESTINATIONS: usize = 64;
/// Packets of one stream that a burst may hold.
const RUN: u16 = 16;

/// What decides.
#[derive(Clone, Copy, PartialEq)]
enum Path {
    /// The scheduler alone, over queues that are never empty.
    Scheduler,
    /// A whole link: selection, scheduler, ledger.
    Link,
}

/// A row: what decides, how packets go out, streams, packets to a frame.
type Case = (Path, Method, usize, u16);

/// A frame of one packet is the smallest there is, one of 8 a picture of 10 kB. Calls of
/// `sendmmsg` take each packet by a decision of its own, GSO takes bursts.
const CASES: [Case; 14] = [
    (Path::Scheduler, Method::SendMmsg, 32, 1),
    (Path::Scheduler, Method::SendMmsg, 1024, 1),
    (Path::Scheduler, Method::SendMmsg, 65_536, 1),
    (Path::Scheduler, Method::Gso, 32, 1),
    (Path::Scheduler, Method::Gso, 1024, 1),
    (Path::Scheduler, Method::Gso, 65_536, 1),
    (Path::Link, Method::SendMmsg, 32, 1),
    (Path::Link, Method::SendMmsg, 1024, 1),
    (Path::Link, Method::SendMmsg, 32, 8),
    (Path::Link, Method::SendMmsg, 1024, 8),
    (Path::Link, Method::Gso, 32, 1),
    (Path::Link, Method::Gso, 1024, 1),
    (Path::Link, Method::Gso, 32, 8),
    (Path::Link, Method::Gso, 1024, 8),
];

/// Names the stream of the next packet.
type Decide = Box<dyn FnMut() -> usize>;

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let each = Duration(seconds.saturating_mul(1_000_000_000) / CASES.len() as u64);
    let mut table = Table::default().left(["path", "method"]).right([
        "streams",
        "packets a frame",
        "packets a run",
        "plain packets/s",
        "scheduled packets/s",
        "ratio",
    ]);
    let mut list = Vec::new();
    for (path, method, streams, packets) in CASES {
        let run = if method == Method::Gso { RUN.max(packets) } else { packets };
        let name = if path == Path::Link { "link" } else { "scheduler" };
        let mut next: Decide = match path {
            Path::Scheduler => {
                let mut bare = BareScheduler::new(streams, run);
                Box::new(move || bare.next())
            }
            Path::Link => {
                let mut scheduled = Scheduled::new(streams, packets, run);
                Box::new(move || scheduled.next())
            }
        };
        let mut sending = SendLoop::new(Clock::new(), method, PACKET, streams, DESTINATIONS)
            .map_err(Failure::failed)?;
        // The same packets in the same order, so that what is compared is the deciding and not
        // how well the payloads lie in the cache.
        let order: Vec<usize> = (0..ORDER).map(|_| next()).collect();
        let mut replay = order.iter().copied().cycle();
        let mut plain = || replay.next().unwrap_or(0);
        let result = compare(each, &mut sending, &mut plain, &mut next);
        let rate = 1e9 / result.nanos_per_packet;
        table.row([
            name.to_owned(),
            result.plain.method.clone(),
            streams.to_string(),
            packets.to_string(),
            run.to_string(),
            format!("{:.0}", result.plain.packets_per_second),
            format!("{rate:.0}"),
            format!("{:.3}", result.rate_share),
        ]);
        list.push(json!({
            "path": name,
            "method": result.plain.method,
            "streams": streams,
            "packets_per_frame": packets,
            "packets_per_run": run,
            "packet_bytes": PACKET.0,
            "plain_pps": result.plain.packets_per_second.round(),
            "scheduled_pps": rate.round(),
            "ratio": result.rate_share,
        }));
    }
    let text = format!(
        "{PACKET} packets over the loopback to {DESTINATIONS} sockets that nobody reads; one core; \
         plain and scheduled in turns, the same packets in the same order; medians.\nscheduler: \
         decision and update alone; link: with selection, queues and ledger.\n{table}"
    );
    let (wire, wire_text) = over_wire(each);
    list.extend(wire);
    Ok(Measurement { name: "send", json: json!(list), text: text + &wire_text })
}

/// The ways of sending beside each other, plain, where packets leave by a device.
fn over_wire(each: Duration) -> (Vec<serde_json::Value>, String) {
    const METHODS: [Method; 4] = [Method::SendMsg, Method::SendMmsg, Method::Gso, Method::Xdp];
    let measured = match send_over_wire(each * METHODS.len() as u64, &METHODS, PACKET) {
        Ok(measured) => measured,
        Err(why) => {
            let text =
                format!("\nOver a wire (veth) not measured: {why}; needs root (CAP_SYS_ADMIN).\n");
            return (Vec::new(), text);
        }
    };
    let mut table = Table::default().left(["method"]).right(["ns a packet", "packets/s", "to gso"]);
    let gso = measured.iter().find(|bench| bench.method == "gso");
    let gso = gso.map_or(f64::NAN, |bench| bench.packets_per_second);
    let mut list = Vec::new();
    for bench in &measured {
        let ratio = bench.packets_per_second / gso;
        table.row([
            bench.method.clone(),
            format!("{:.0}", bench.nanos_per_packet),
            format!("{:.0}", bench.packets_per_second),
            format!("{ratio:.2}"),
        ]);
        list.push(json!({
            "path": "wire",
            "method": bench.method,
            "packet_bytes": bench.packet_bytes,
            "plain_pps": bench.packets_per_second.round(),
            "to_gso": ratio,
        }));
    }
    let text = format!(
        "\n{PACKET} packets over a wire between two network namespaces (veth), the receiver's socket \
         full; in turns, medians.\nxdp: AF_XDP in copy mode.\n{table}"
    );
    (list, text)
}

/// The scheduler alone; every stream always has another frame.
struct BareScheduler {
    sched: Scheduler,
    now: Instant,
    /// Frames to a burst, the stream that has one, and how many are left of it.
    run: u16,
    granted: (StreamIndex, u16),
}

impl BareScheduler {
    fn new(streams: usize, run: u16) -> Self {
        let mut sched = Scheduler::new(Discipline::Dwcs);
        for n in 0..streams {
            let s = sched.add(&contract(n));
            sched.enqueue_head(s, Self::frame(Instant::ZERO));
        }
        // As the engine does.
        huge_pages::gather(sched.memory());
        Self { sched, now: Instant::ZERO, run, granted: (StreamIndex(0), 0) }
    }

    /// Due in a second: nothing expires.
    fn frame(now: Instant) -> Head {
        Head { deadline: Some(now + Duration::from_secs(1)), ..Head::arrived(now) }
    }

    fn next(&mut self) -> usize {
        self.now += Duration(500);
        if self.granted.1 == 0 {
            let decision = self.sched.decide(self.now);
            let Decision::Send(next) = decision else { panic!("nothing expires: {decision:?}") };
            self.granted = (next, self.run);
        }
        self.granted.1 -= 1;
        self.sched.dequeue_and_enqueue(self.granted.0, Self::frame(self.now));
        self.granted.0.0 as usize
    }
}

fn contract(n: usize) -> Contract {
    let window = Window { lose: 1, of: 2 + (n % 7) as u16 };
    Contract::new(Duration::from_millis(20 + (n % 31) as u64), window)
}

/// A link without a limit whose every stream always has frames: one, or as many as a burst holds.
struct Scheduled {
    link: Link,
    seqs: Vec<u32>,
    now: Instant,
    /// Packets to a frame, and a frame's size.
    packets: u16,
    size: Bytes,
    /// Packets to a run.
    run: usize,
    /// The stream whose frames go, and how many of their packets are left.
    granted: (usize, usize),
}

impl Scheduled {
    fn new(streams: usize, packets: u16, run: u16) -> Self {
        let size = Bytes((PACKET + IPV4_UDP).0 * u64::from(packets));
        let frames = u64::from(run / packets);
        let mut link = Link::new(LinkParams {
            discipline: Discipline::Dwcs,
            selection: true,
            rate: Bitrate(1_000_000_000_000),
            burst: if frames > 1 { Bytes(size.0 * frames) } else { Bytes(1500) },
            catch_up: None,
            mtu: Bytes(1500),
            queue: None,
        });
        for n in 0..streams {
            link.add_stream(Contract { delay: Some(Duration::from_secs(1)), ..contract(n) });
        }
        // As the engine does.
        huge_pages::gather(link.memory());
        let (seqs, now, run) = (vec![0; streams], Instant::ZERO, run.into());
        let mut new = Self { link, seqs, now, packets, size, run, granted: (0, 0) };
        for n in 0..streams {
            new.arrive(n, frames as usize);
        }
        new
    }

    /// So many frames of a stream come.
    fn arrive(&mut self, stream: usize, mut frames: usize) {
        let Self { link, seqs, now, packets, size, .. } = self;
        link.handle_frames(*now, StreamIndex(stream as u32), || {
            frames = frames.checked_sub(1)?;
            let seq = seqs[stream];
            seqs[stream] = seq.wrapping_add(1);
            Some(Frame {
                seq,
                kind: Kind::Still,
                referenced: false,
                refs: References::NONE,
                packets: *packets,
                size: *size,
                arrival: *now,
                deadline: None,
                payload: PayloadSpan::default(),
            })
        });
    }

    /// The stream whose packet goes next. A frame goes in one run, with those behind it that the
    /// link's burst allows; as many come when they are sent.
    fn next(&mut self) -> usize {
        if self.granted.1 == 0 {
            let next = self.link.poll_transmit(self.now);
            let stream = next.map_or(0, |t| t.stream.0 as usize);
            let run = self.link.run(self.now, self.run);
            self.link.sent_frames(self.now, run.frames, self.packets, run.size);
            while self.link.poll_settled().is_some() {}
            self.now += Duration(500 * run.packets as u64);
            self.arrive(stream, run.frames);
            self.granted = (stream, run.packets);
        }
        self.granted.1 -= 1;
        self.granted.0
    }
}
