//! The endpoint's way in: datagrams of its socket and of its rings, each handed on as it came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::vec::Drain;

use selvedge_os::datagram_port::{DatagramReader, SingleDatagram};
use selvedge_units::{Duration, Instant};

use crate::element::Pipeline;
use crate::rings::Rings;
use crate::work::{APART, Came, LineWork};

/// Datagrams of at least so many bytes are read one by one, each into the buffer that it stays in;
/// smaller ones several at once, and copied.
const LARGE: usize = 16 << 10;
/// How often rings are read before the socket is, while they have something.
const TURNS: u32 = 16;
/// Where what comes is closer together than this, the next is watched for as long: to be woken for it
/// takes as much, of the sender's time as well.
const CLOSE: Duration = Duration::from_micros(10);

/// Plants that something was put into.
pub(super) type Touched = Vec<Arc<Pipeline<LineWork>>>;

/// Where a datagram came from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The socket: from this address.
    Socket(SocketAddr),
    /// The ring of this connection.
    Ring(u32),
}

/// The socket's reading end.
#[derive(Debug)]
pub(super) struct Intake {
    reader: DatagramReader,
    /// What was put into with the last reads.
    touched: Vec<Arc<Pipeline<LineWork>>>,
    /// The last datagram was a large one.
    large: bool,
    /// It was one whose headers are best read apart.
    apart: bool,
    /// What the next large one is read into.
    spare: Vec<u8>,
    /// How often rings were read since the socket was.
    turn: u32,
    /// When something was read last, and whether that was close to what was before.
    last: Instant,
    close: bool,
}

impl Intake {
    pub(super) const fn new(reader: DatagramReader) -> Self {
        Self {
            reader,
            touched: Vec::new(),
            large: false,
            apart: false,
            spare: Vec::new(),
            turn: 0,
            last: Instant::ZERO,
            close: false,
        }
    }

    /// Hands on what is there; whether there was anything. Notes which plants it was put into.
    pub(super) fn read(
        &mut self,
        rings: &Rings,
        mut take: impl FnMut(&mut Touched, Came<'_>, Source),
    ) -> bool {
        let touched = &mut self.touched;
        let count = rings.take(|id, bytes| take(touched, Came::Shared(bytes), Source::Ring(id)));
        // The socket has its turn where rings never end.
        self.turn = if count > 0 { self.turn + 1 } else { 0 };
        if count > 0 && !self.turn.is_multiple_of(TURNS) {
            return true;
        }
        self.read_socket(take) || count > 0
    }

    fn read_socket(&mut self, mut take: impl FnMut(&mut Touched, Came<'_>, Source)) -> bool {
        let Self { reader, touched, large, apart, spare, .. } = self;
        if !*large {
            let mut len = 0;
            let count = reader.read(|bytes, from| {
                len = bytes.len();
                take(touched, Came::Shared(bytes), Source::Socket(from));
            });
            *large = len >= LARGE;
            return count > 0;
        }
        let mut front = [0; APART];
        let front = &mut front[..if *apart { APART } else { 0 }];
        let Some((SingleDatagram { from, segment }, count)) = reader.read_apart(front, spare)
        else {
            return false;
        };
        let len = count + spare.len();
        let size = segment.map_or(len, usize::from).max(1);
        *large = size >= LARGE && size >= len;
        let from = Source::Socket(from);
        if *large && *apart {
            take(touched, Came::Apart(front, spare), from);
        } else if *large {
            take(touched, Came::Alone(spare), from);
        } else {
            spare.splice(0..0, front[..count].iter().copied());
            spare.chunks(size).for_each(|bytes| take(touched, Came::Shared(bytes), from));
        }
        // The next is likely to be of the same connection.
        *apart = touched.last().is_some_and(|pipeline| pipeline.work().comes_apart);
        true
    }

    /// Waits for something to read, at most so long; whether there is something.
    pub(super) fn wait(&self, rings: &Rings, wait: Duration) -> bool {
        match rings.prepare_wait() {
            None => self.reader.wait(wait),
            Some((_, false)) => true,
            Some((called, true)) => self.reader.wait_with(Some(called), wait),
        }
    }

    /// The plants that something was put into, which has been read by now.
    pub(super) fn touched(&mut self, now: Instant) -> Drain<'_, Arc<Pipeline<LineWork>>> {
        self.close = now.since(std::mem::replace(&mut self.last, now)) < CLOSE;
        self.touched.drain(..)
    }

    /// Until when the next is watched for, if it is likely to be close.
    pub(super) fn watched_until(&self) -> Option<Instant> {
        self.close.then(|| self.last + CLOSE)
    }
}
