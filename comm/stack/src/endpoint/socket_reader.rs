//! The endpoint's way in: datagrams of its socket and of its rings, each handed on as it came.

use std::net::SocketAddr;
use std::sync::Arc;
use std::vec::Drain;

use selvedge_os::datagram_port::{DatagramReader, SingleDatagram};
use selvedge_units::{Duration, Instant};

use crate::element::Pipeline;
use crate::rings::Rings;
use crate::work::{APART, ConnectionChain, Datagram};

/// Datagrams of at least so many bytes are read one by one, each into the buffer that it stays in;
/// smaller ones several at once, and copied.
const LARGE: usize = 16 << 10;
/// How often rings are read before the socket is, while they have something.
const TURNS: u32 = 16;
/// Where what comes is closer together than this, the next is watched for as long: to be woken for it
/// takes as much, of the sender's time as well.
const CLOSE: Duration = Duration::from_micros(10);

/// Plants that something was put into.
pub(super) type Touched = Vec<Arc<Pipeline<ConnectionChain>>>;

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
pub(super) struct SocketReader {
    reader: DatagramReader,
    /// What was put into with the last reads.
    fed_pipelines: Vec<Arc<Pipeline<ConnectionChain>>>,
    /// The last datagram was a large one.
    last_was_large: bool,
    /// It was one whose headers are best read apart.
    split_headers: bool,
    /// What the next large one is read into.
    large_buffer: Vec<u8>,
    /// How often rings were read since the socket was.
    turn: u32,
    /// When something was read last, and whether that was close to what was before.
    last: Instant,
    close: bool,
}

impl SocketReader {
    pub(super) const fn new(reader: DatagramReader) -> Self {
        Self {
            reader,
            fed_pipelines: Vec::new(),
            last_was_large: false,
            split_headers: false,
            large_buffer: Vec::new(),
            turn: 0,
            last: Instant::ZERO,
            close: false,
        }
    }

    /// Hands on what is there; whether there was anything. Notes which plants it was put into.
    pub(super) fn read(
        &mut self,
        rings: &Rings,
        mut take: impl FnMut(&mut Touched, Datagram<'_>, Source),
    ) -> bool {
        let fed_pipelines = &mut self.fed_pipelines;
        let count = rings
            .take(|id, bytes| take(fed_pipelines, Datagram::SharedBuffer(bytes), Source::Ring(id)));
        // The socket has its turn where rings never end.
        self.turn = if count > 0 { self.turn + 1 } else { 0 };
        if count > 0 && !self.turn.is_multiple_of(TURNS) {
            return true;
        }
        self.read_socket(take) || count > 0
    }

    fn read_socket(&mut self, mut take: impl FnMut(&mut Touched, Datagram<'_>, Source)) -> bool {
        let Self {
            reader,
            fed_pipelines,
            last_was_large: large,
            split_headers: apart,
            large_buffer: spare,
            ..
        } = self;
        if !*large {
            let mut len = 0;
            let count = reader.read(|bytes, from| {
                len = bytes.len();
                take(fed_pipelines, Datagram::SharedBuffer(bytes), Source::Socket(from));
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
            take(fed_pipelines, Datagram::SplitHeaders(front, spare), from);
        } else if *large {
            take(fed_pipelines, Datagram::OwnBuffer(spare), from);
        } else {
            spare.splice(0..0, front[..count].iter().copied());
            spare
                .chunks(size)
                .for_each(|bytes| take(fed_pipelines, Datagram::SharedBuffer(bytes), from));
        }
        // The next is likely to be of the same connection.
        *apart = fed_pipelines.last().is_some_and(|pipeline| pipeline.work().splits_headers);
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
    pub(super) fn fed_pipelines(
        &mut self,
        now: Instant,
    ) -> Drain<'_, Arc<Pipeline<ConnectionChain>>> {
        self.close = now.since(std::mem::replace(&mut self.last, now)) < CLOSE;
        self.fed_pipelines.drain(..)
    }

    /// Until when the next is watched for, if it is likely to be close.
    pub(super) fn watched_until(&self) -> Option<Instant> {
        self.close.then(|| self.last + CLOSE)
    }
}
