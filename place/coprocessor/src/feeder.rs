//! A recording that the coprocessor reads by io_uring, and feeds to a stream at the pace at which it was
//! recorded. This is path C of the paper (NI coprocessors, section 2.2.1), where the scheduler is the source
//! as well. The reads run ahead, so that disk time does not delay frames.
//!
//! A recording is what `selvedge play --record` wrote, or the [pack](crate::pack) of a media file. Payloads of a
//! packed file go from the kernel's cache to the stream's pool by one copy, which the kernel makes.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use selvedge_os::clock::Clock;
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_units::{Duration, Instant};

use crate::pack::{PackError, PackHeader, PackReader, PackedFrame, Piece};
use crate::realtime::{self, RealtimeRequest};
use crate::recording::{Assembler, Recorded, RecordingError};

/// Bytes of a read, and the number of reads ahead.
const CHUNK: usize = 64 * 1024;
const AHEAD: usize = 4;
/// Bytes of a media file between two pieces that are read with them, into a place that nobody reads.
const GAP_MAX: u64 = 4096;
const UNUSED: usize = 64 * 1024;
/// Places that one system call fills; Linux takes 1024.
const PLACES_MAX: usize = 1000;
/// The longest sleep of the reader before it checks whether it must stop.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Why a recording can't be read.
#[derive(Debug, thiserror::Error)]
pub enum FeederError {
    /// The file is missing, or access is denied.
    #[error("can't read \"{file}\": {why}")]
    Open {
        /// The file.
        file: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// Not a recording.
    #[error("\"{file}\": {why}")]
    Recording {
        /// The file.
        file: String,
        /// The fault.
        why: RecordingError,
    },
    /// Not a pack, or not of this media file.
    #[error("\"{file}\": {why}")]
    Pack {
        /// The pack.
        file: String,
        /// The fault.
        why: PackError,
    },
    /// The kernel returns no more of it.
    #[error("\"{file}\": {why}")]
    Read {
        /// The file.
        file: String,
        /// The kernel's error.
        why: io::Error,
    },
    /// A recording without frames.
    #[error("\"{0}\": it holds no frames; record a stream of Selvedge's")]
    Empty(String),
    /// A thread can't be created.
    #[error("can't start a reader: {0}")]
    Thread(#[from] io::Error),
}

/// The state of a reader that other threads can see.
#[derive(Debug, Default)]
pub struct FeederState {
    trouble: Mutex<Option<String>>,
    ended: AtomicBool,
}

impl FeederState {
    /// Its error, and whether it has ended.
    #[must_use]
    pub fn status(&self) -> (Option<String>, bool) {
        let trouble = self.trouble.lock().clone();
        (trouble, self.ended.load(Ordering::Acquire))
    }
}

/// An open recording with a valid beginning.
#[derive(Debug)]
pub struct OpenRecording {
    /// The time between frames, from the recording's beginning; 40 ms if it does not show it.
    pub period: Duration,
    /// The RTP payload type of its packets.
    pub payload_type: u8,
    file: File,
    packed: Option<PackedMedia>,
    name: String,
    repeat: bool,
    stop: Arc<AtomicBool>,
}

/// The media file of a pack.
#[derive(Debug)]
struct PackedMedia {
    file: File,
    /// Bytes of the pack's header.
    header: usize,
}

/// A running reader; dropping it stops it.
#[derive(Debug)]
pub struct Feeder {
    stop: Arc<AtomicBool>,
    state: Arc<FeederState>,
    thread: Option<JoinHandle<()>>,
}

impl Feeder {
    /// Opens a recording and checks its beginning.
    ///
    /// # Errors
    /// [`FeederError::Open`], [`FeederError::Recording`].
    pub fn open(path: &Path, repeat: bool) -> Result<OpenRecording, FeederError> {
        let name = path.display().to_string();
        let failed = |why| FeederError::Open { file: name.clone(), why };
        let file = File::open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::other("not a file")));
        }
        let mut first = vec![0; CHUNK];
        let read = std::os::unix::fs::FileExt::read_at(&file, &mut first, 0).map_err(failed)?;
        let stop = Arc::default();
        if PackHeader::is_pack(&first[..read]) {
            let why = |why| FeederError::Pack { file: name.clone(), why };
            let (header, len) = PackHeader::read(&first[..read]).map_err(why)?;
            let packed = Some(open_media(path, &name, &header, len)?);
            let PackHeader { period, payload_type, .. } = header;
            return Ok(OpenRecording { period, payload_type, file, packed, name, repeat, stop });
        }
        let mut probe = Assembler::default();
        let (mut times, mut payload_type) = (Vec::new(), 96);
        let sound = probe.push(&first[..read], &mut |frame| {
            times.push(frame.at);
            if let Some(&[_, second, ..]) = frame.packets().next() {
                payload_type = second & 0x7f;
            }
        });
        let lasts =
            times.last().zip(times.first()).map_or(0, |(last, first)| last.0 - first.0.min(last.0));
        let mean = Duration(lasts / (times.len() as u64).saturating_sub(1).max(1));
        let period =
            if mean < Duration::from_micros(100) { Duration::from_millis(40) } else { mean };
        let sound = if read == 0 { Err(RecordingError::Header) } else { sound };
        sound.map_err(|why| FeederError::Recording { file: name.clone(), why })?;
        Ok(OpenRecording { period, payload_type, file, packed: None, name, repeat, stop })
    }

    /// Its visible state.
    #[must_use]
    pub fn state(&self) -> Arc<FeederState> {
        Arc::clone(&self.state)
    }
}

/// Opens the media file of a pack, which must be as it was when it was packed.
fn open_media(
    pack: &Path,
    name: &str,
    header: &PackHeader,
    len: usize,
) -> Result<PackedMedia, FeederError> {
    let path = pack.with_file_name(&header.media);
    let failed = |why| FeederError::Open { file: path.display().to_string(), why };
    let file = File::open(&path).map_err(failed)?;
    let stat = file.metadata().map_err(failed)?;
    if (stat.len(), modified(&stat)) != (header.length.0, header.modified) {
        let why = PackError::Changed(header.media.clone());
        return Err(FeederError::Pack { file: name.to_owned(), why });
    }
    // Only advice: without it the kernel reads less ahead.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Sequential);
    Ok(PackedMedia { file, header: len })
}

/// When a file was modified, since 1970.
#[must_use]
pub fn modified(metadata: &Metadata) -> Duration {
    let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
    let rest = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Duration(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

impl OpenRecording {
    /// The flag that stops it; the frame producer gets it too, since it may wait for room.
    #[must_use]
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Starts reading into a frame producer, on a thread that requests these settings of the kernel.
    ///
    /// # Errors
    /// [`FeederError::Thread`].
    pub fn start(
        self,
        mut frame_producer: FrameProducer,
        realtime_request: Option<RealtimeRequest>,
    ) -> Result<Feeder, FeederError> {
        frame_producer.set_stop_flag(Arc::clone(&self.stop));
        let (stop, state) = (Arc::clone(&self.stop), Arc::<FeederState>::default());
        let shared_state = Arc::clone(&state);
        let thread = thread::Builder::new().name("reader".into()).spawn(move || {
            if let Some(request) = realtime_request {
                let granted = realtime::ask(request);
                tracing::debug!(%granted, "the reader runs");
            }
            if let Err(why) = self.run(frame_producer) {
                tracing::warn!("{why}");
                *shared_state.trouble.lock() = Some(why.to_string());
            }
            shared_state.ended.store(true, Ordering::Release);
        })?;
        Ok(Feeder { stop, state, thread: Some(thread) })
    }

    fn run(self, frame_producer: FrameProducer) -> Result<(), FeederError> {
        let failed = |why| FeederError::Read { file: self.name.clone(), why };
        let stop = Arc::clone(&self.stop);
        let unused = vec![0; if self.packed.is_some() { UNUSED } else { 0 }].into();
        let clock = Clock::shared();
        let mut pace = PacedProducer { clock, frame_producer, began: None, stop, unused };
        loop {
            let mut reads = ReadAhead::new(&self.file).map_err(failed)?;
            let frames = match &self.packed {
                Some(media) => self.deliver_packed(media, &mut reads, &mut pace)?,
                None => self.deliver_recorded(&mut reads, &mut pace)?,
            };
            if pace.is_stopped() {
                return Ok(());
            }
            if frames == 0 {
                return Err(FeederError::Empty(self.name));
            }
            if !self.repeat {
                return Ok(());
            }
            pace.began = None;
        }
    }

    /// Delivers the frames of a recording, or those until the stop; how many there were.
    fn deliver_recorded(
        &self,
        reads: &mut ReadAhead<'_>,
        pace: &mut PacedProducer,
    ) -> Result<u64, FeederError> {
        let mut assembler = Assembler::default();
        let mut frames = 0;
        while let Some(chunk) = self.next(reads)? {
            let mut ready = |frame: &Recorded| {
                frames += 1;
                pace.deliver(frame);
            };
            let pushed = assembler.push(chunk, &mut ready);
            pushed.map_err(|why| FeederError::Recording { file: self.name.clone(), why })?;
            if pace.is_stopped() {
                return Ok(frames);
            }
        }
        assembler.end(&mut |frame| pace.deliver(frame));
        Ok(frames)
    }

    /// The same for the frames of a pack.
    fn deliver_packed(
        &self,
        media: &PackedMedia,
        reads: &mut ReadAhead<'_>,
        pace: &mut PacedProducer,
    ) -> Result<u64, FeederError> {
        let damaged = |why| FeederError::Pack { file: self.name.clone(), why };
        let mut reader = PackReader::new(media.header);
        let (mut frames, mut failure) = (0, None);
        while let Some(chunk) = self.next(reads)? {
            let mut ready = |frame: &PackedFrame| {
                frames += 1;
                if failure.is_none() {
                    failure = pace.deliver_packed(frame, &media.file).err();
                }
            };
            reader.push(chunk, &mut ready).map_err(damaged)?;
            if let Some(why) = failure {
                return Err(FeederError::Read { file: self.name.clone(), why });
            }
            if pace.is_stopped() {
                return Ok(frames);
            }
        }
        reader.end().map_err(damaged)?;
        Ok(frames)
    }

    fn next<'r>(&self, reads: &'r mut ReadAhead<'_>) -> Result<Option<&'r [u8]>, FeederError> {
        reads.next().map_err(|why| FeederError::Read { file: self.name.clone(), why })
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

/// Delivers frames when they are due.
struct PacedProducer {
    clock: Clock,
    frame_producer: FrameProducer,
    /// When the recording's beginning was.
    began: Option<Instant>,
    stop: Arc<AtomicBool>,
    /// Where bytes between pieces of a media file are read to.
    unused: Box<[u8]>,
}

impl PacedProducer {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn deliver(&mut self, frame: &Recorded) {
        let Some(offer) = frame.enqueue() else { return };
        if !self.wait_until(frame.at) {
            return;
        }
        let packets: Vec<&[u8]> = frame.packets().collect();
        // A refused frame is counted by the frame producer, and by the link as a gap.
        let _ = self.frame_producer.enqueue(offer, &packets);
    }

    /// Sleeps until an instant since the recording's beginning; false if the reader must stop.
    fn wait_until(&mut self, at: Duration) -> bool {
        let now = self.clock.now();
        let due = *self.began.get_or_insert(now - at) + at;
        while self.clock.now() < due && !self.is_stopped() {
            self.clock.sleep_until(due.min(self.clock.now() + POLL_EVERY));
        }
        !self.is_stopped()
    }

    /// Reads a frame's payloads from the media file to where they are sent from.
    fn deliver_packed(&mut self, frame: &PackedFrame, media: &File) -> io::Result<()> {
        if !self.wait_until(frame.at) {
            return Ok(());
        }
        let mut failure = None;
        // A refused frame is counted by the frame producer, and by the link as a gap.
        let _ = self.frame_producer.enqueue_filled(frame.metadata, &frame.packets, |places| {
            failure = fill(media, frame, places, &mut self.unused).err();
            failure.is_none()
        });
        failure.map_or(Ok(()), Err)
    }
}

/// Puts the bytes of a packed frame into its packets' places.
fn fill(
    media: &File,
    frame: &PackedFrame,
    places: Vec<&mut [u8]>,
    unused: &mut [u8],
) -> io::Result<()> {
    let mut places = places.into_iter();
    let mut place: &mut [u8] = &mut [];
    let mut spans = Vec::with_capacity(frame.pieces.len());
    for piece in &frame.pieces {
        while place.is_empty() {
            place = places.next().ok_or(io::ErrorKind::InvalidData)?;
        }
        let taken = std::mem::take(&mut place).split_at_mut_checked(piece.len());
        let (bytes, rest) = taken.ok_or(io::ErrorKind::InvalidData)?;
        place = rest;
        match piece {
            Piece::Inline(range) => bytes.copy_from_slice(&frame.inline[range.clone()]),
            Piece::Media { at, .. } => spans.push((*at, bytes)),
        }
    }
    let mut spans = &mut spans[..];
    while !spans.is_empty() {
        let (near, rest) = spans.split_at_mut(near(spans, unused.len() as u64));
        read_near(media, near, unused)?;
        spans = rest;
    }
    Ok(())
}

/// How many of these spans of a file are so near to one another that one system call reads them.
fn near(spans: &[(u64, &mut [u8])], unused: u64) -> usize {
    let mut gaps = 0;
    let is_far = |two: &[(u64, &mut [u8])]| {
        let gap = two[1].0.checked_sub(two[0].0 + two[0].1.len() as u64);
        gaps += gap.unwrap_or(0);
        gap.is_none_or(|gap| gap > GAP_MAX) || gaps > unused
    };
    let most = spans.len().min(PLACES_MAX / 2);
    spans[..most].windows(2).position(is_far).map_or(most, |at| at + 1)
}

/// Reads such spans, and what lies between them into `unused`.
fn read_near(media: &File, spans: &mut [(u64, &mut [u8])], unused: &mut [u8]) -> io::Result<()> {
    let (Some(first), mut unused) = (spans.first().map(|span| span.0), unused) else {
        return Ok(());
    };
    let (mut into, mut end) = (Vec::with_capacity(2 * spans.len()), first);
    for (at, bytes) in spans {
        let (gap, rest) = std::mem::take(&mut unused).split_at_mut((*at - end) as usize);
        unused = rest;
        end = *at + bytes.len() as u64;
        into.extend([IoSliceMut::new(gap), IoSliceMut::new(bytes)]);
    }
    let read = rustix::io::preadv(media, &mut into, first)?;
    if read as u64 == end - first { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The bytes of a file in order, read by io_uring a few chunks ahead.
struct ReadAhead<'f> {
    ring: IoUring,
    file: &'f File,
    /// Chunks under way or done, in order: their index in `chunks`, and the result.
    order: VecDeque<(usize, Option<i32>)>,
    chunks: Box<[Box<[u8]>]>,
    /// The beginning of the chunk that was returned last, and the next to read.
    given: Option<usize>,
    at: u64,
    over: bool,
}

impl<'f> ReadAhead<'f> {
    fn new(file: &'f File) -> io::Result<Self> {
        let chunks = (0..AHEAD).map(|_| vec![0; CHUNK].into_boxed_slice()).collect();
        let ring = IoUring::new(AHEAD as u32)?;
        let order = VecDeque::with_capacity(AHEAD);
        let mut new = Self { ring, file, order, chunks, given: None, at: 0, over: false };
        for chunk in 0..AHEAD {
            new.submit(chunk)?;
        }
        Ok(new)
    }

    fn submit(&mut self, chunk: usize) -> io::Result<()> {
        let buffer = &mut self.chunks[chunk];
        let read = opcode::Read::new(
            types::Fd(self.file.as_raw_fd()),
            buffer.as_mut_ptr(),
            buffer.len() as u32,
        )
        .offset(self.at)
        .build()
        .user_data(chunk as u64);
        // SAFETY: the file is borrowed and the buffer owned as long as `self`, whose drop waits for
        // all reads; the buffer is not touched before its read is complete.
        unsafe { self.ring.submission().push(&read) }.map_err(io::Error::other)?;
        self.ring.submit()?;
        self.order.push_back((chunk, None));
        self.at += CHUNK as u64;
        Ok(())
    }

    /// The next bytes; `None` at the end.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        if let Some(chunk) = self.given.take()
            && !self.over
        {
            self.submit(chunk)?;
        }
        if self.over {
            return Ok(None);
        }
        while matches!(self.order.front(), Some((_, None))) {
            self.wait()?;
        }
        let Some((chunk, Some(got))) = self.order.pop_front() else { return Ok(None) };
        let got = usize::try_from(got).map_err(|_| io::Error::from_raw_os_error(-got))?;
        // Only at its end does a regular file return less than requested.
        self.over = got < CHUNK;
        self.given = Some(chunk);
        Ok((got > 0).then(|| &self.chunks[chunk][..got]))
    }

    /// Waits for a read to complete.
    fn wait(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let done: Vec<_> = self.ring.completion().collect();
        for entry in done {
            let of = |(chunk, _): &&mut (usize, _)| *chunk as u64 == entry.user_data();
            if let Some((_, result)) = self.order.iter_mut().find(of) {
                *result = Some(entry.result());
            }
        }
        Ok(())
    }
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        // The kernel writes into the buffers until each read is complete.
        while self.order.iter().any(|(_, result)| result.is_none()) {
            if self.wait().is_err() {
                // The state of the reads is unknown: the buffers must stay.
                std::mem::forget(std::mem::take(&mut self.chunks));
                return;
            }
        }
    }
}
