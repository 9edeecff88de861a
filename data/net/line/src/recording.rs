//! A direction of a link as a recording of it shows it, packet by packet, which repeats. `selvedge line --record`
//! writes the text; the first packet that enters begins it.
//!
//! A packet has the fate of a recorded one: lost or dropped, wrong, marked, or ahead of others. Of a stream that was
//! recorded, which its port shows, that is the nearest one of its size to where the last one stood in the stream's order:
//! what a sender adds or leaves out moves the others in time, and one packet more or less of a picture decides about
//! all that refer to it. Of other packets it is the one of the size that came nearest in time, up to [`NEAR`], each
//! one once. Where there is none of the size, it is the nearest one in time.
//!
//! Delays alone would let through more than the real link did where more packets come. So what a delay has above the
//! recording's shortest is taken as time that the link spent on the packet's bytes, from when it was there and those
//! before it had left. These [slots](Recording::slots) serve the bytes that come, as Mahimahi's opportunities do
//! (Netravali et al., USENIX ATC 2015), and the shortest delay is added. Time at which the recorded link had nothing
//! to do carries the mean of its slots. So the same packets have the same fates and delays, to the nanosecond; more
//! packets wait; and a link that showed no limit has none. Jitter can't be distinguished from a limit, and is one for more
//! packets than were recorded. A second copy of a packet counts as a packet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use selvedge_units::{Bytes, Duration, Instant};

use crate::packet::Drop;
use crate::trace::{LINES_MAX, TIME_MAX, TraceError, malformed, number};

/// Packets of one size may be the same if they came no farther apart.
const NEAR: Duration = Duration::from_millis(20);
/// A stream's next packet is looked for where it stands in the recorded order, unless that is farther off in time.
const FAR: Duration = Duration::from_secs(2);
/// So many recorded ones are looked at for each, before its place and after.
const NEAR_MAX: usize = 32;
/// The shortest period, so that numbers of laps and packets stay small.
const PERIOD_MIN: Duration = Duration::from_secs(1);
/// The longest wait of a packet where the recording dropped none for want of room.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// What an idle time carries at most, and does where no slot took any time: no limit.
const IDLE_MAX: u128 = 1 << 40;

/// What became of a recorded packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Arrived,
    Corrupted,
    Marked,
    Dropped(Drop),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RecordedPacket {
    bytes: u64,
    fate: Fate,
    /// Its delay, if it overtook another.
    overtook: Option<Duration>,
}

/// Values by time, again and again; no time is beyond the period.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cycle<T> {
    all: Vec<(Duration, T)>,
    period: Duration,
}

impl<T: Copy> Cycle<T> {
    /// The value of this number, counted through all laps, and its time.
    fn get(&self, number: usize) -> (Duration, T) {
        let (lap, number) = (number / self.all.len(), number % self.all.len());
        let (at, value) = self.all[number];
        (self.period * lap as u64 + at, value)
    }

    /// The number of the first value at a time, or after it.
    fn first_from(&self, at: Duration) -> usize {
        let (lap, phase) = (at.0 / self.period.0, Duration(at.0 % self.period.0));
        lap as usize * self.all.len() + self.all.partition_point(|(time, _)| *time < phase)
    }
}

/// A recorded direction. There is at least one packet. Times count from the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// By the times at which they came: all, under 0, and those that went to each port.
    packets: BTreeMap<u16, Cycle<RecordedPacket>>,
    /// The bytes that the link served from the end of the slot before to this one's, less `delay`.
    slots: Cycle<u64>,
    /// The shortest of all.
    delay: Duration,
    /// What would be served later after it came than this does not fit.
    wait_max: Duration,
}

/// A line of the text.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    came: Instant,
    bytes: u64,
    port: u16,
    fate: Fate,
    left: Option<Instant>,
}

impl Recording {
    /// The first line of the text: the names of the columns. `direction` is `there` or `back`. `port` is the
    /// destination's, or 0. `fate` is `arrived`, `corrupted`, `marked`, or why the packet was dropped. `out_ns` is
    /// empty for a packet that did not arrive.
    pub const HEAD: &str = "in_ns,bytes,link,direction,port,fate,out_ns";

    /// The two directions of a link, there and back, of the text that `selvedge line` records; none of one in
    /// which no packet came.
    ///
    /// # Errors
    /// [`TraceError`], with the line.
    pub fn of_link(text: &str, link: &str) -> Result<[Option<Arc<Self>>; 2], TraceError> {
        const WANTED: &str = "in_ns,bytes,link,there or back,port,fate,out_ns of a packet";
        const ORDER: &str = "of a packet that arrived no earlier than all before";
        const FIRST: &str = "the first line of a recording by selvedge line, \
                             in_ns,bytes,link,direction,port,fate,out_ns; record it anew";
        let (mut ways, mut latest) = ([Vec::new(), Vec::new()], Instant::ZERO);
        let first = text.lines().next().unwrap_or_default();
        if first != Self::HEAD {
            return Err(malformed(0, first, FIRST));
        }
        for (n, line) in text.lines().enumerate().skip(1) {
            if n > LINES_MAX {
                return Err(TraceError::Long);
            }
            let (of, way, packet) = recorded(line).ok_or_else(|| malformed(n, line, WANTED))?;
            // A line is written when the packet's fate is known: one that arrived did so after all that was known.
            if packet.left.is_some_and(|left| left < latest.max(packet.came)) {
                return Err(malformed(n, line, ORDER));
            }
            latest = latest.max(packet.left.unwrap_or(packet.came));
            if of == link {
                ways[way].push(packet);
            }
        }
        if ways.iter().all(Vec::is_empty) {
            return Err(TraceError::NoLink(link.to_owned()));
        }
        Ok(ways.map(|packets| Self::new(packets).map(Arc::new)))
    }
}

/// A line's link and direction, and the packet.
fn recorded(line: &str) -> Option<(&str, usize, Recorded)> {
    let fields: Vec<&str> = line.split(',').take(8).collect();
    let [came, bytes, link, way, port, fate, left] = fields[..] else { return None };
    let time = |text| number(text).filter(|ns| *ns <= TIME_MAX * 1_000_000).map(Instant);
    let way = ["there", "back"].iter().position(|name| *name == way)?;
    let fate = match fate {
        "arrived" => Fate::Arrived,
        "corrupted" => Fate::Corrupted,
        "marked" => Fate::Marked,
        _ => Fate::Dropped(Drop::from_name(fate)?),
    };
    let left = if let Fate::Dropped(_) = fate {
        left.is_empty().then_some(None)?
    } else {
        Some(time(left)?)
    };
    let bytes = number(bytes).filter(|bytes| (1..=65_535).contains(bytes))?;
    let (came, port) = (time(came)?, u16::try_from(number(port)?).ok()?);
    Some((link, way, Recorded { came, bytes, port, fate, left }))
}

impl Recording {
    fn new(mut recorded: Vec<Recorded>) -> Option<Self> {
        recorded.sort_by_key(|packet| packet.came);
        let (first, last) = (recorded.first()?.came, recorded.last()?.came);
        let delays = recorded.iter().filter_map(|packet| Some(packet.left?.since(packet.came)));
        let delay = delays.min().unwrap_or_default();
        let is_full = recorded.iter().any(|packet| packet.fate == Fate::Dropped(Drop::Full));
        let mut wait_max = if is_full { Duration::ZERO } else { WAIT_MAX };
        let (mut ports, mut slots) = (BTreeMap::<_, Vec<_>>::new(), Vec::new());
        // When the link had served all that came before; the bytes of all slots, and their time.
        let (mut free, mut bytes, mut time) = (Duration::ZERO, 0, 0);
        for packet in recorded {
            let came = packet.came.since(first);
            let served = packet.left.map(|left| left.since(first) - delay);
            let overtook =
                served.filter(|served| *served < free).map(|served| served - came + delay);
            let Recorded { bytes: size, port, fate, .. } = packet;
            for port in BTreeSet::from([0, port]) {
                let packet = RecordedPacket { bytes: size, fate, overtook };
                ports.entry(port).or_default().push((came, packet));
            }
            let Some(served) = served.filter(|_| overtook.is_none()) else { continue };
            if came > free {
                slots.push((came, 0));
            }
            slots.push((served, packet.bytes));
            wait_max = wait_max.max(served - came);
            bytes += u128::from(packet.bytes);
            time += u128::from((served - free.max(came)).0);
            free = served;
        }
        let period = free.max(last.since(first)).max(PERIOD_MIN) + Duration(1);
        slots.push((period, 0));
        let mut begin = Duration::ZERO;
        for (end, carried) in &mut slots {
            if *carried == 0 {
                let mean = bytes * u128::from((*end - begin).0);
                *carried = mean.checked_div(time).unwrap_or(IDLE_MAX).clamp(1, IDLE_MAX) as u64;
            }
            begin = *end;
        }
        let packets = ports.into_iter().map(|(port, all)| (port, Cycle { all, period })).collect();
        Some(Self { packets, slots: Cycle { all: slots, period }, delay, wait_max })
    }
}

/// Where a line is in its recording.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replay {
    /// When the first packet entered.
    began: Option<Instant>,
    /// By port, as in the recording.
    places: BTreeMap<u16, Place>,
    server: Server,
}

/// How far a stream's packets are used up.
#[derive(Clone, Debug, Default)]
struct Place {
    /// Of a stream: when its first packet came, and the recorded one behind the last that stood for another.
    began: Option<Duration>,
    next: usize,
    /// Of others: those about there that stood for others.
    taken: BTreeSet<usize>,
}

/// The slots, as far as they are used up.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    slot: usize,
    /// Bytes of that slot that are gone, if it takes no time.
    taken: u64,
    /// When it has served all that came.
    free: Duration,
}

impl Replay {
    /// The fate of a packet that enters, and when it leaves the queue and arrives. Times do not go back.
    pub(crate) fn fate(
        &mut self,
        recording: &Recording,
        now: Instant,
        size: Bytes,
        port: u16,
    ) -> Result<(Fate, [Instant; 2]), Drop> {
        let began = *self.began.get_or_insert(now);
        let came = now.since(began);
        let of_stream = recording.packets.get(&port).filter(|_| port != 0);
        let place = self.places.entry(if of_stream.is_some() { port } else { 0 }).or_default();
        let packets = of_stream.unwrap_or_else(|| &recording.packets[&0]);
        let RecordedPacket { fate, overtook, .. } =
            place.counterpart(packets, came, size, of_stream.is_some());
        if let Fate::Dropped(why) = fate {
            return Err(why);
        }
        if let Some(delay) = overtook {
            return Ok((fate, [now, now + delay]));
        }
        let served = self.server.serve(&recording.slots, came, size);
        if served.free - came > recording.wait_max {
            return Err(Drop::Full);
        }
        self.server = served;
        let left = began + served.free;
        Ok((fate, [left, left + recording.delay]))
    }
}

impl Place {
    /// The recorded packet that stands for one that comes now: of a stream in its order, else about its time.
    fn counterpart(
        &mut self,
        packets: &Cycle<RecordedPacket>,
        at: Duration,
        size: Bytes,
        is_stream: bool,
    ) -> RecordedPacket {
        let apart = |number: usize, from: Duration| {
            let time = packets.get(number).0;
            (from - time).max(time - from)
        };
        // A stream may begin at another time than it did.
        let began = *self.began.get_or_insert(at);
        let at = if is_stream { at + packets.get(0).0 - began } else { at };
        let after = packets.first_from(at);
        let follows = is_stream && apart(self.next, at) <= FAR;
        let middle = if follows { self.next } else { after };
        let first = middle.saturating_sub(NEAR_MAX);
        self.taken = self.taken.split_off(&first);
        let alike =
            (first..middle + NEAR_MAX).filter(|number| packets.get(*number).1.bytes == size.0);
        let number = if is_stream {
            // One behind the place, too: after a picture that was not recorded the next one begins anew there.
            alike.min_by_key(|number| (number.abs_diff(middle), *number < middle))
        } else {
            alike
                .filter(|number| !self.taken.contains(number) && apart(*number, at) <= NEAR)
                .min_by_key(|number| apart(*number, at))
        };
        if let Some(number) = number {
            self.next = number + 1;
            self.taken.extend((!is_stream).then_some(number));
        }
        let before = after.saturating_sub(1);
        let nearest = if apart(before, at) <= apart(after, at) { before } else { after };
        packets.get(number.unwrap_or(nearest)).1
    }
}

impl Server {
    /// The server when it has served so many bytes more, which are there at this time. O(slots that it takes).
    fn serve(mut self, slots: &Cycle<u64>, came: Duration, size: Bytes) -> Self {
        let mut at = came.max(self.free);
        let first = slots.first_from(at);
        if first > self.slot {
            (self.slot, self.taken) = (first, 0);
        }
        let mut left = size.0;
        loop {
            let (end, bytes) = slots.get(self.slot);
            let begin =
                self.slot.checked_sub(1).map_or(Duration::ZERO, |before| slots.get(before).0);
            let [lasts, remains] = [begin, at].map(|from| u128::from((end - from).0));
            // It has bytes, and a part of a slot has no more than all of it.
            let carries = (u128::from(bytes) * remains).checked_div(lasts);
            let carries = carries.map_or(bytes - self.taken, |carries| carries as u64);
            if left <= carries {
                self.taken += left;
                let took = (u128::from(left) * lasts).div_ceil(u128::from(bytes));
                self.free = at + Duration(took as u64);
                return self;
            }
            left -= carries;
            at = end;
            (self.slot, self.taken) = (self.slot + 1, 0);
        }
    }
}
