//! `bench send`: packets a second through a link's scheduling and selection, against plain sending
//! by the same system calls, sample by sample in turns.

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

pub(super) fn measure(seconds: u64) -> Result<Measurement, Failure> {
    let methods = [Method::SendMmsg, Method::Gso];
    let each = Span(seconds.saturating_mul(1_000_000_000) / (methods.len() * STREAMS.len()) as u64);
    let mut table = Table::new(&[
        ("method", Align::Left),
        ("streams", Align::Right),
        ("plain packets/s", Align::Right),
        ("scheduled packets/s", Align::Right),
        ("ratio", Align::Right),
    ]);
    let mut list = Vec::new();
    for method in methods {
        for streams in STREAMS {
            let mut sending =
                SendLoop::new(Clock::new(), method, PACKET, streams, 1).map_err(Failure::failed)?;
            let mut scheduled = Scheduled::new(streams);
            let result = compare(each, &mut sending, &mut || scheduled.next());
            let rate = 1e9 / result.nanos_per_packet;
            table.row([
                result.plain.method.clone(),
                streams.to_string(),
                format!("{:.0}", result.plain.packets_per_second),
                format!("{rate:.0}"),
                format!("{:.3}", result.rate_share),
            ]);
            list.push(json!({
                "method": result.plain.method,
                "streams": streams,
                "packet_bytes": PACKET.0,
                "plain_pps": result.plain.packets_per_second.round(),
                "scheduled_pps": rate.round(),
                "ratio": result.rate_share,
            }));
        }
    }
    let text = format!(
        "{PACKET} packets over the loopback to a socket that nobody reads; one core; plain and \
         scheduled in turns, medians.\n{table}"
    );
    Ok(Measurement { name: "send", json: json!(list), text })
}

/// A link without a limit whose every stream always has a frame of one packet.
struct Scheduled {
    link: Link,
    seqs: Vec<u32>,
    now: Instant,
    size: Bytes,
}

impl Scheduled {
    fn new(streams: usize) -> Self {
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
        let size = Bytes(PACKET.0 + IPV4_UDP);
        let mut new = Self { link, seqs: vec![0; streams], now: Instant::ZERO, size };
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
            packets: 1,
            size: self.size,
            arrival: self.now,
            deadline: None,
            payload: PayloadSpan::default(),
        };
        self.link.handle_frame(self.now, StreamIndex(stream as u32), frame);
    }

    /// The stream whose packet goes next; its next frame arrives at once.
    fn next(&mut self) -> usize {
        self.now += Span(500);
        let chosen = self.link.poll_transmit(self.now).map_or(0, |t| t.stream.0 as usize);
        self.link.sent(self.now, self.size);
        while self.link.poll_settled().is_some() {}
        self.arrive(chosen);
        chosen
    }
}
