//! The endpoint's input: datagrams of its socket and of its rings, each passed on as it arrived.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::vec::Drain;

use selvedge_os::datagram_port::{DatagramReader, SingleDatagram};
use selvedge_units::{Duration, Instant};

use crate::element::Pipeline;
use crate::rings::Rings;
use crate::work::{APART, ConnectionChain, Datagram};

/// Datagrams of at least this number of bytes are read one by one, each into the buffer that it
/// stays in. Smaller ones are read several at once, and copied.
const LARGE: usize = 16 << 10;
/// How often rings are read before the socket is, while they have something.
const TURNS: u32 = 16;
/// Where datagrams follow each other within this time, the reader polls for the next one for this
/// long: a wake-up would take as long, of the sender's time as well.
const CLOSE: Duration = Duration::from_micros(10);

/// Pipelines that received datagrams.
pub(super) type Touched = Vec<Arc<Pipeline<ConnectionChain>>>;

/// The origin of a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// The socket, from this address.
    Socket(SocketAddr),
    /// The ring of this connection. The rings are locked, so no connection can be opened.
    Ring(u32),
    /// The ring of this connection, which was not open before. The rings are not locked.
    UnlockedRing(u32),
}

/// The socket's reading end.
#[derive(Debug)]
pub(super) struct SocketReader {
    reader: DatagramReader,
    /// The pipelines that received datagrams of the last reads.
    fed_pipelines: Vec<Arc<Pipeline<ConnectionChain>>>,
    /// Whether the last datagram was a large one.
    last_was_large: bool,
    /// Whether the headers of the last one are best read into a separate buffer.
    split_headers: bool,
    /// The buffer for the next large datagram.
    large_buffer: Vec<u8>,
    /// The number of reads of rings since the socket was read.
    turn: u32,
    /// The time of the last read, and whether it closely followed the one before.
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

    /// Passes on the datagrams that have arrived, and notes their pipelines; returns whether there were any.
    /// A datagram of a ring for which `take` breaks off is passed on again once the rings are unlocked.
    pub(super) fn read(
        &mut self,
        rings: &Rings,
        mut take: impl FnMut(&mut Touched, Datagram<'_>, Source) -> ControlFlow<()>,
    ) -> bool {
        let fed_pipelines = &mut self.fed_pipelines;
        let mut early: Vec<(u32, Vec<u8>)> = Vec::new();
        let count = rings.take(|id, bytes| {
            let taken = take(fed_pipelines, Datagram::SharedBuffer(bytes), Source::Ring(id));
            if taken.is_break() {
                early.push((id, bytes.to_vec()));
            }
        });
        for (id, bytes) in early {
            let _ = take(fed_pipelines, Datagram::SharedBuffer(&bytes), Source::UnlockedRing(id));
        }
        // The socket has its turn even when rings never run empty.
        self.turn = if count > 0 { self.turn + 1 } else { 0 };
        if count > 0 && !self.turn.is_multiple_of(TURNS) {
            return true;
        }
        self.read_socket(|fed, datagram, from| _ = take(fed, datagram, from)) || count > 0
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
        let Some((SingleDatagram { from, segment, .. }, count)) = reader.read_apart(front, spare)
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
        // The next datagram is likely to belong to the same connection.
        *apart = fed_pipelines.last().is_some_and(|pipeline| pipeline.work().splits_headers);
        true
    }

    /// Waits at most `wait` for something to read; returns whether there is something.
    pub(super) fn wait(&self, rings: &Rings, wait: Duration) -> bool {
        match rings.prepare_wait() {
            None => self.reader.wait(wait),
            Some((_, false)) => true,
            Some((called, true)) => self.reader.wait_with(Some(called), wait),
        }
    }

    /// Takes the pipelines that received datagrams, once these have been read.
    pub(super) fn fed_pipelines(
        &mut self,
        now: Instant,
    ) -> Drain<'_, Arc<Pipeline<ConnectionChain>>> {
        self.close = now.since(std::mem::replace(&mut self.last, now)) < CLOSE;
        self.fed_pipelines.drain(..)
    }

    /// The end of polling for the next datagram, if it is likely to follow closely.
    pub(super) fn watched_until(&self) -> Option<Instant> {
        self.close.then(|| self.last + CLOSE)
    }
}
