//! `bench send`: packets a second through a link's scheduling and selection, against plain sending
//! of the same packets in the same order by the same system calls, sample by sample in turns.

use selvedge_host::bench::{SendLoop, compare};
use selvedge_host::clock::Clock;
use selvedge_host::inlet::IPV4_UDP;
use selvedge_host::transmit::Method;
use selvedge_node::link::{Link, LinkParams};
use selvedge_sched::{Discipline, StreamIndex};
use selvedge_stream::{Contract, Frame, Kind, PayloadSpan, References, Window};
use selvedge_units::{Bitrate, Bytes, Instant, Span};
use serde_json::json;

use super::Measurement;
use crate::cli::Failure;
use crate::table::{Align, Table};

const PACKET: Bytes = Bytes(1200);
const STREAMS: [usize; 2] = [32, 1024];
/// Decisions that are recorded, for plain sending to repeat.
const ORDER: usize = 1 << 16;
/// Packets to a frame: the smallest there is, and a picture of 10 kB.
const PACKETS: [u16; 2] = [1, 8];

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let methods = [Method::SendMmsg, Method::Gso];
    let rows = methods.len() * STREAMS.len() * PACKETS.len();
    let each = Span(seconds.saturating_mul(1_000_000_000) / rows as u64);
    let mut table = Table::new(&[
        ("method", Align::Left),
        ("streams", Align::Right),
        ("packets a frame", Align::Right),
        ("plain packets/s", Align::Right),
        ("scheduled packets/s", Align::Right),
        ("ratio", Align::Right),
    ]);
    let mut list = Vec::new();
    for method in methods {
        for (streams, packets) in STREAMS.iter().flat_map(|&s| PACKETS.map(|p| (s, p))) {
            let mut sending =
                SendLoop::new(Clock::new(), method, PACKET, streams, 1).map_err(Failure::failed)?;
            let mut scheduled = Scheduled::new(streams, packets);
            // The same packets in the same order, so that what is compared is the deciding and
            // not how well the payloads lie in the cache.
            let order: Vec<usize> = (0..ORDER).map(|_| scheduled.next()).collect();
            let mut replay = order.iter().copied().cycle();
            let mut plain = || replay.next().unwrap_or(0);
            let result = compare(each, &mut sending, &mut plain, &mut || scheduled.next());
            let rate = 1e9 / result.nanos_per_packet;
            table.row([
                result.plain.method.clone(),
                streams.to_string(),
                packets.to_string(),
                format!("{:.0}", result.plain.packets_per_second),
                format!("{rate:.0}"),
                format!("{:.3}", result.rate_share),
            ]);
            list.push(json!({
                "method": result.plain.method,
                "streams": streams,
                "packets_per_frame": packets,
                "packet_bytes": PACKET.0,
                "plain_pps": result.plain.packets_per_second.round(),
                "scheduled_pps": rate.round(),
                "ratio": result.rate_share,
            }));
        }
    }
    let text = format!(
        "{PACKET} packets over the loopback to a socket that nobody reads; one core; plain and \
         scheduled (selection, decision, ledger) in turns, medians.\n{table}"
    );
    Ok(Measurement { name: "send", json: json!(list), text })
}

/// A link without a limit whose every stream always has a frame of one packet.
struct Scheduled {
    link: Link,
    seqs: Vec<u32>,
    now: Instant,
    /// Packets to a frame, and a frame's size.
    packets: u16,
    size: Bytes,
    /// The stream whose frame goes, and how many of its packets are left of the run granted.
    granted: (usize, u16),
}

impl Scheduled {
    fn new(streams: usize, packets: u16) -> Self {
        let mut link = Link::new(LinkParams {
            discipline: Discipline::Dwcs,
            selection: true,
            rate: Bitrate(1_000_000_000_000),
            burst: Bytes(1_000_000),
            mtu: Bytes(1500),
            queue: None,
        });
        for n in 0..streams {
            let window = Window { lose: 1, of: 2 + (n % 7) as u16 };
            let period = Span::from_millis(20 + (n % 31) as u64);
            let delay = Some(Span::from_secs(1));
            link.add_stream(Contract { delay, ..Contract::new(period, window) });
        }
        let size = Bytes((PACKET.0 + IPV4_UDP) * u64::from(packets));
        let (seqs, now) = (vec![0; streams], Instant::ZERO);
        let mut new = Self { link, seqs, now, packets, size, granted: (0, 0) };
        for n in 0..streams {
            new.arrive(n);
        }
        new
    }

    fn arrive(&mut self, stream: usize) {
        let seq = self.seqs[stream];
        self.seqs[stream] = seq.wrapping_add(1);
        let frame = Frame {
            seq,
            kind: Kind::Still,
            referenced: false,
            refs: References::NONE,
            packets: self.packets,
            size: self.size,
            arrival: self.now,
            deadline: None,
            payload: PayloadSpan::default(),
        };
        self.link.handle_frame(self.now, StreamIndex(stream as u32), frame);
    }

    /// The stream whose packet goes next. A frame goes in one run, as the link's burst allows;
    /// the stream's next frame arrives when it is sent.
    fn next(&mut self) -> usize {
        if self.granted.1 == 0 {
            self.now += Span(500 * u64::from(self.packets));
            let next = self.link.poll_transmit(self.now);
            self.granted = (next.map_or(0, |t| t.stream.0 as usize), self.packets);
            self.link.sent_run(self.now, self.packets, self.size);
            while self.link.poll_settled().is_some() {}
            self.arrive(self.granted.0);
        }
        self.granted.1 -= 1;
        self.granted.0
    }
}
