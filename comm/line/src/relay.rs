//! The relay: packets out of each device into the line of its direction, and out of the line into the device
//! at the other end, at the time that the line says.
//!
//! One thread waits for the earliest of all lines' times and for all devices at once. Packets lie in buffers
//! of a bounded number, which are used again.

use std::io;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use selvedge_data_net_line::{Arrived, Drop, Ecn, Line, LineCounts, LineModel, Packet};
use selvedge_data_stream::Histogram;
use selvedge_os::clock::{Clock, exact_timers, timespec};
use selvedge_os::device_port::HEADROOM;
use selvedge_units::{Bytes, Instant};

use crate::ends::Ends;
use crate::link::{Direction, Link};
use crate::packet::{self, Header};
use crate::record::{Recorder, Row};

/// Packets that are read from one device before it is the next one's turn.
const BATCH: usize = 64;
/// The most memory that packets under way take.
const MEMORY: usize = 256 << 20;

/// What became of the packets of a direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionReport {
    /// The line's own counts.
    pub counts: LineCounts,
    /// Packets that the line marked.
    pub marked: u64,
    /// Packets that were under way at the end.
    pub under_way: u64,
    /// Packets that found no memory at the relay: more under way than 256 MB.
    pub no_memory: u64,
    /// Packets that arrived and that the device did not take, such as one whose version of IP is wrong.
    pub refused: u64,
    /// How long packets were under way, from the reading of one device to the writing of the other.
    pub delay: Histogram,
    /// How long after the line's own time they were written.
    pub late: Histogram,
}

/// A packet in its buffer.
#[derive(Debug)]
struct Held {
    came: Instant,
    ecn: Ecn,
    /// Without [`HEADROOM`].
    len: usize,
    bytes: Vec<u8>,
}

impl Held {
    fn with_headroom(&self) -> &[u8] {
        &self.bytes[..HEADROOM + self.len]
    }
}

/// Buffers that are free, and how many there are in all.
#[derive(Debug)]
struct Buffers {
    free: Vec<Arc<Held>>,
    made: usize,
    most: usize,
    /// Of each.
    room: usize,
}

impl Buffers {
    fn new(room: usize) -> Self {
        Self { free: Vec::new(), made: 0, most: MEMORY / room, room }
    }

    /// A buffer that nobody else has; `None` if all are in use.
    fn take(&mut self) -> Option<Arc<Held>> {
        self.free.pop().or_else(|| {
            (self.made < self.most).then(|| {
                self.made += 1;
                let bytes = vec![0; self.room];
                Arc::new(Held { came: Instant::ZERO, ecn: Ecn::NotCapable, len: 0, bytes })
            })
        })
    }

    /// Takes a buffer back; one that a second copy of the packet still holds comes back with that.
    fn give(&mut self, mut held: Arc<Held>) {
        if Arc::get_mut(&mut held).is_some() {
            self.free.push(held);
        }
    }
}

/// One direction: from the port of its own number into the port of the other end.
#[derive(Debug)]
struct DirectedLine {
    line: Line<Arc<Held>>,
    model: LineModel,
    report: DirectionReport,
}

/// All directions of all links, at work.
#[derive(Debug)]
pub struct Relay {
    ends: Ends,
    names: Vec<String>,
    /// Of each link the way there, then the way back.
    ways: Vec<DirectedLine>,
    buffers: Buffers,
    /// For packets that are changed.
    scratch: Vec<u8>,
    recorder: Option<Recorder>,
    clock: Clock,
}

impl Relay {
    /// A relay between ends that were made for these links. The same seed gives the same losses.
    ///
    /// # Panics
    /// If the ends were made for another number of links.
    #[must_use]
    pub fn new(
        ends: Ends,
        links: Vec<Link>,
        seed: u64,
        clock: Clock,
        recorder: Option<Recorder>,
    ) -> Self {
        assert_eq!(ends.ports.len(), links.len() * 2, "a link has two ports");
        let (mut names, mut ways) = (Vec::new(), Vec::new());
        let mut room = 1500;
        for Link { name, there, back } in links {
            for (direction, model) in Direction::ALL.into_iter().zip([there, back]) {
                room = room.max(model.mtu.map_or(1500, |mtu| mtu.0.min(65_535)) as usize);
                let line = Line::new(model.clone(), seed, &format!("{name} {direction}"));
                ways.push(DirectedLine { line, model, report: DirectionReport::default() });
            }
            names.push(name);
        }
        let buffers = Buffers::new(HEADROOM + room);
        Self { ends, names, ways, buffers, scratch: Vec::new(), recorder, clock }
    }

    /// Lets `change` change the model of each direction, but for its queue, which stays; returns those that
    /// it did change.
    pub fn change(
        &mut self,
        mut change: impl FnMut(&str, Direction, &mut LineModel),
    ) -> Vec<(String, Direction)> {
        let mut changed = Vec::new();
        for number in 0..self.ways.len() {
            let (name, direction) = (&self.names[number / 2], Direction::ALL[number % 2]);
            let way = &mut self.ways[number];
            let mut model = way.model.clone();
            change(name, direction, &mut model);
            if model != way.model {
                changed.push((name.clone(), direction));
                way.line.change(self.clock.now(), model.clone());
                way.model = model;
                self.drain_dropped(number);
            }
        }
        changed
    }

    /// The names of the links, in their order.
    #[must_use]
    pub fn links(&self) -> &[String] {
        &self.names
    }

    /// Hands out what has arrived, waits for what comes next, no longer than until `until`, and reads it.
    ///
    /// # Errors
    /// If a device is gone.
    pub fn turn(&mut self, until: Instant) -> io::Result<()> {
        for number in 0..self.ways.len() {
            self.deliver(number);
        }
        let due = self.ways.iter().filter_map(|way| way.line.poll_timeout()).min();
        let ready = self.wait(due.map_or(until, |due| due.min(until)))?;
        for number in ready {
            self.read(number)?;
        }
        Ok(())
    }

    /// Waits until a time or until devices have packets, and returns their numbers.
    fn wait(&self, until: Instant) -> io::Result<Vec<usize>> {
        exact_timers();
        let ports = self.ends.ports.iter();
        let mut polled: Vec<_> = ports.map(|port| PollFd::new(port, PollFlags::IN)).collect();
        let left = timespec(until.since(self.clock.now()).0);
        match poll(&mut polled, Some(&left)) {
            Ok(0) | Err(Errno::INTR) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
            Ok(_) => {
                let ready = polled.iter().enumerate().filter(|(_, fd)| !fd.revents().is_empty());
                Ok(ready.map(|(number, _)| number).collect())
            }
        }
    }

    /// Reads packets of one device into its line.
    fn read(&mut self, number: usize) -> io::Result<()> {
        let (port, way) = (&self.ends.ports[number], &mut self.ways[number]);
        for _ in 0..BATCH {
            let Some(mut held) = self.buffers.take() else {
                self.scratch.resize(self.buffers.room, 0);
                if port.receive(&mut self.scratch)?.is_none() {
                    break;
                }
                way.report.no_memory += 1;
                continue;
            };
            let buffer = Arc::get_mut(&mut held).expect("a free buffer is nobody's");
            let got = port.receive(&mut buffer.bytes)?;
            let packet = &buffer.bytes[HEADROOM..HEADROOM + got.unwrap_or_default()];
            let header = packet::read(packet).filter(|_| !packet::is_housekeeping(packet));
            let (Some(len), Some(header)) = (got, header) else {
                self.buffers.give(held);
                if got.is_none() {
                    break;
                }
                continue;
            };
            let now = self.clock.now();
            (buffer.came, buffer.len, buffer.ecn) = (now, len, header.ecn);
            let size = Bytes(len as u64);
            let Header { flow, port, ecn } = header;
            let packet = Packet { size, flow, port, ecn, payload: held };
            way.line.handle_packet(now, packet);
        }
        self.drain_dropped(number);
        Ok(())
    }

    /// Hands out what has arrived in a direction.
    fn deliver(&mut self, number: usize) {
        loop {
            let now = self.clock.now();
            let Some(arrived) = self.ways[number].line.poll_packet(now) else { break };
            self.hand_out(number, now, arrived);
        }
        self.drain_dropped(number);
    }

    fn hand_out(&mut self, number: usize, now: Instant, arrived: Arrived<Arc<Held>>) {
        let Arrived { at, packet, wrong_bit, .. } = arrived;
        let Packet { size, port, ecn, payload: held, .. } = packet;
        let report = &mut self.ways[number].report;
        let is_marked = ecn == Ecn::Marked && held.ecn != Ecn::Marked;
        let mut bytes = held.with_headroom();
        if is_marked || wrong_bit.is_some() {
            // A second copy may share the buffer.
            self.scratch.clear();
            self.scratch.extend_from_slice(bytes);
            if is_marked {
                packet::mark(&mut self.scratch[HEADROOM..]);
            }
            if let Some(random) = wrong_bit {
                packet::flip(&mut self.scratch[HEADROOM..], random);
            }
            bytes = &self.scratch;
        }
        // The port of the other end has the other number of the link.
        let is_refused = self.ends.ports[number ^ 1].send(bytes).is_err();
        report.refused += u64::from(is_refused);
        report.marked += u64::from(is_marked);
        report.delay.record(now.since(held.came));
        report.late.record(now.since(at));
        if let Some(recorder) = &mut self.recorder {
            let fate = match (wrong_bit, is_marked) {
                (Some(_), _) => "corrupted",
                (None, true) => "marked",
                (None, false) => "arrived",
            };
            let left = Some(now);
            let (came, bytes, direction) = (held.came, size, number);
            recorder.row(Row { came, bytes, port, direction, fate, left });
        }
        self.buffers.give(held);
    }

    /// Takes back the buffers of dropped packets.
    fn drain_dropped(&mut self, number: usize) {
        while let Some((packet, why)) = self.ways[number].line.poll_dropped() {
            if let Some(recorder) = &mut self.recorder {
                let Packet { size: bytes, port, .. } = packet;
                let came = packet.payload.came;
                let fate = why.name();
                recorder.row(Row { came, bytes, port, direction: number, fate, left: None });
            }
            self.buffers.give(packet.payload);
        }
    }

    /// What became of all packets, with the name of the link and the direction; and the recorder.
    #[must_use]
    pub fn finish(self) -> (Vec<(String, Direction, DirectionReport)>, Option<Recorder>) {
        let directions = Direction::ALL.into_iter().cycle();
        let named = self.names.into_iter().flat_map(|name| [name.clone(), name]).zip(directions);
        let reports = named.zip(self.ways).map(|((name, direction), way)| {
            let counts = *way.line.counts();
            let gone = Drop::ALL.iter().map(|why| counts.dropped(*why)).sum::<u64>();
            let under_way = counts.packets + counts.duplicated - counts.arrived - gone;
            (name, direction, DirectionReport { counts, under_way, ..way.report })
        });
        (reports.collect(), self.recorder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_bounded_and_come_back_with_the_last_copy() {
        let mut buffers = Buffers::new(MEMORY / 2);
        let (one, two) = (buffers.take().expect("the first"), buffers.take().expect("the second"));
        assert!(buffers.take().is_none(), "no third");
        let copy = Arc::clone(&one);
        buffers.give(one);
        assert!(buffers.take().is_none(), "a copy is still under way");
        buffers.give(copy);
        buffers.give(two);
        assert_eq!((buffers.take().is_some(), buffers.take().is_some()), (true, true));
        assert!(buffers.take().is_none());
    }
}
