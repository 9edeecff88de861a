//! A recording that the coprocessor reads by io_uring, and feeds to a stream at the pace at which it was
//! recorded. This is path C of the paper (NI coprocessors, section 2.2.1), where the scheduler is the source
//! as well. The reads run ahead, so that disk time does not delay frames.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use io_uring::{IoUring, opcode, types};
use parking_lot::Mutex;
use selvedge_os::clock::Clock;
use selvedge_place_engine::frame_producer::FrameProducer;
use selvedge_units::{Duration, Instant};

use crate::realtime::{self, RealtimeRequest};
use crate::recording::{Assembler, Recorded, RecordingError};

/// Bytes of a read, and the number of reads ahead.
const CHUNK: usize = 64 * 1024;
const AHEAD: usize = 4;
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
    name: String,
    repeat: bool,
    stop: Arc<AtomicBool>,
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
        Ok(OpenRecording { period, payload_type, file, name, repeat, stop: Arc::default() })
    }

    /// Its visible state.
    #[must_use]
    pub fn state(&self) -> Arc<FeederState> {
        Arc::clone(&self.state)
    }
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
        let file = self.name;
        let failed = |why| FeederError::Read { file: file.clone(), why };
        let mut pace =
            PacedProducer { clock: Clock::shared(), frame_producer, began: None, stop: self.stop };
        loop {
            let mut reads = ReadAhead::new(&self.file).map_err(failed)?;
            let mut assembler = Assembler::default();
            let mut frames = 0_u64;
            while let Some(chunk) = reads.next().map_err(failed)? {
                let mut ready = |frame: &Recorded| {
                    frames += 1;
                    pace.deliver(frame);
                };
                let pushed = assembler.push(chunk, &mut ready);
                pushed.map_err(|why| FeederError::Recording { file: file.clone(), why })?;
                if pace.is_stopped() {
                    return Ok(());
                }
            }
            assembler.end(&mut |frame| pace.deliver(frame));
            if frames == 0 {
                return Err(FeederError::Empty(file));
            }
            if !self.repeat {
                return Ok(());
            }
            pace.began = None;
        }
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
}

impl PacedProducer {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn deliver(&mut self, frame: &Recorded) {
        let Some(offer) = frame.enqueue() else { return };
        let now = self.clock.now();
        let due = *self.began.get_or_insert(now - frame.at) + frame.at;
        while self.clock.now() < due && !self.is_stopped() {
            self.clock.sleep_until(due.min(self.clock.now() + POLL_EVERY));
        }
        if self.is_stopped() {
            return;
        }
        let packets: Vec<&[u8]> = frame.packets().collect();
        // A refused frame is counted by the frame producer, and by the link as a gap.
        let _ = self.frame_producer.enqueue(offer, &packets);
    }
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
