//! A trace through the real qdisc with real packets. Sockets send them into a device; each slot makes one
//! decision, requested by a packet that the qdisc consumes. For tests, in a network namespace or a virtual
//! machine: the device carries nothing else meanwhile.

use std::io;
use std::net::UdpSocket;

use libbpf_rs::{MapCore, MapFlags};
use selvedge_data_sched::replay::{Arrivals, Outcome, Trace};
use selvedge_data_sched::{Discipline, StreamIndex, Tree};
use selvedge_units::Duration;

use crate::attach::{Device, Registered, register};
use crate::error::ReplayError;
use crate::filter::Filter;
use crate::object::{self, FILTERS_MAP, OBSERVED_MAP, Purpose, map};
use crate::replay::{
    ArrivalBatch, Frame, SIZE, Schedule, absent, begin, failed, fits, run, streams_of, totals,
};
use crate::setup::{Header, STREAMS_MAX};

/// `CALL_MARK` of the program.
const CALL_MARK: u32 = 0x5e17_ed6e;
/// A stream's packets bear its index plus this.
const MARKS_FROM: u32 = 0x0100_0000;
/// The length of the stream and number in each packet; and of the headers before them.
const LABEL: usize = 12;
const HEADERS: usize = 28;
/// The largest packet of the loopback.
const DATAGRAM_MAX: usize = 60_000;
/// The longest time of a packet on the loopback before it counts as lost.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The packets that left the device: stream and number of each, in the order of arrival.
pub type Received = Vec<(StreamIndex, u64)>;

/// A device whose qdisc replays traces.
#[derive(Debug)]
pub struct PacketReplay {
    qdisc: Registered,
    discipline: Discipline,
}

impl PacketReplay {
    /// A loopback device (packets must come back), under one discipline.
    ///
    /// # Errors
    /// If there is no such device or discipline, the right is missing, or the kernel refuses.
    pub fn load(device: &str, discipline: Discipline) -> Result<Self, ReplayError> {
        let purpose = Purpose { discipline, replaying: true, reports_fates: false, kind: None };
        let qdisc = register(
            Device::find(device)?,
            purpose,
            &Header::default().bytes(&[], &Tree::default()),
        )?;
        for stream in 0..STREAMS_MAX as u32 {
            let filters = map(&qdisc.object, FILTERS_MAP).ok_or_else(|| absent(FILTERS_MAP))?;
            let key = Filter::Mark(MARKS_FROM + stream).key();
            filters
                .update(&key, &stream.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| failed("the filters", error))?;
        }
        Ok(Self { qdisc, discipline })
    }

    /// Replays a trace to its end; returns its events, and the received packets. The qdisc is on the device
    /// only meanwhile.
    ///
    /// # Errors
    /// If the trace does not fit the program, or a packet is lost.
    pub fn run(&self, trace: &Trace) -> Result<(Outcome, Received), ReplayError> {
        fits(trace, self.discipline)?;
        let filters = 1 << Filter::Mark(1).kind();
        let head = Header { rest: STREAMS_MAX as u32, filters, ..Header::default() };
        begin(&self.qdisc.object, &head.bytes(&streams_of(trace), &trace.tree))?;
        self.qdisc.give()?;
        let done = self.drive(trace);
        self.qdisc.take()?;
        done
    }

    fn drive(&self, trace: &Trace) -> Result<(Outcome, Received), ReplayError> {
        let io = |what: &'static str| move |why: io::Error| run(what, why);
        let receiver = UdpSocket::bind("127.0.0.1:0").map_err(io("a socket"))?;
        receiver.set_read_timeout(Some(TIMEOUT.into())).map_err(io("a socket"))?;
        let to = receiver.local_addr().map_err(io("a socket"))?;
        let sender = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.connect(to)?;
            Ok(socket)
        };
        let marked = |mark: u32| -> io::Result<UdpSocket> {
            let socket = sender()?;
            let options = socket2::SockRef::from(&socket);
            options.set_mark(mark)?;
            // Packets that wait in the qdisc count as the sender's; a full buffer is an error, not a wait.
            options.set_send_buffer_size(1 << 20)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let call = marked(CALL_MARK).map_err(io("a socket's mark"))?;
        let senders: Vec<UdpSocket> = (0..trace.streams.len() as u32)
            .map(|stream| marked(MARKS_FROM + stream))
            .collect::<io::Result<_>>()
            .map_err(io("a socket's mark"))?;
        let mut sent = vec![0_u64; senders.len()];
        let mut schedule = Schedule::of_packets(trace);
        let mut outcome = Outcome { events: Vec::new(), totals: Vec::new() };
        let mut received = Vec::new();
        for t in 0..trace.ticks {
            for ArrivalBatch { frame: Frame { stream, size, .. }, count } in schedule.arrivals(t) {
                // As many bytes as the trace states, if a datagram can hold them.
                let payload = (size as usize).clamp(HEADERS + LABEL, DATAGRAM_MAX) - HEADERS;
                for _ in 0..count {
                    let seq = &mut sent[stream as usize];
                    let mut packet = vec![0; payload];
                    packet[..4].copy_from_slice(&stream.to_ne_bytes());
                    packet[4..LABEL].copy_from_slice(&seq.to_ne_bytes());
                    senders[stream as usize].send(&packet).map_err(io("sending"))?;
                    *seq += 1;
                }
            }
            // The qdisc drops it, which may be returned to the socket.
            let _ = call.send(&[]);
            let observed =
                map(&self.qdisc.object, OBSERVED_MAP).ok_or_else(|| absent(OBSERVED_MAP))?;
            let data = object::data(&observed).map_err(io("the events"))?;
            let before = outcome.events.len();
            schedule.take(trace, t, &data, &mut outcome.events)?;
            clear(&observed)?;
            let sends = outcome.events[before..].iter().filter(|event| {
                matches!(event.action, selvedge_data_sched::replay::ReplayAction::Send { .. })
            });
            for _ in sends {
                let mut packet = [0; 16];
                let got = receiver.recv(&mut packet).map_err(io("receiving"))?;
                let word = |at: usize| crate::replay::number::<4>(&packet[..got], at);
                let long = |at: usize| crate::replay::number::<8>(&packet[..got], at);
                received.push((
                    StreamIndex(word(0).map_or(u32::MAX, u32::from_ne_bytes)),
                    long(4).map_or(u64::MAX, u64::from_ne_bytes),
                ));
            }
        }
        outcome.totals = totals(&self.qdisc.object, trace.streams.len())?;
        Ok((outcome, received))
    }
}

impl<'a> Schedule<'a> {
    /// The arrivals of real packets, with all frames of queues that never run dry present at the beginning: real
    /// packets bear the slot in which they arrive, and these all arrived at 0.
    fn of_packets(trace: &'a Trace) -> Self {
        let mut schedule = Self::new(trace);
        if trace.arrivals == Arrivals::Backlogged {
            let mut replay = selvedge_data_sched::replay::Replay::new(trace);
            replay.by_ref().for_each(drop);
            // One that is still there at the end, and one as a reserve.
            let need = replay.totals().map(|(_, counters, _)| counters.sent + counters.dropped + 2);
            for (stream, need) in (0..).zip(need) {
                let frame = Frame { at: 0, stream, size: SIZE };
                schedule.listed.extend((0..need).map(|_| frame));
            }
            schedule.waiting.clear();
        }
        schedule
    }
}

/// Empties the list of events.
fn clear(observed: &impl MapCore) -> Result<(), ReplayError> {
    let empty = vec![0; observed.value_size() as usize];
    observed
        .update(&0_u32.to_ne_bytes(), &empty, MapFlags::ANY)
        .map_err(|error| failed("the events", error))
}
