//! The node's end of a stream that a program makes: one camera at a time.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use selvedge_os::clock::timespec;
use selvedge_units::Duration;

use crate::counts::{Board, Counts};
use crate::frame::FrameInfo;
use crate::greeting::{Answer, Role, drain};
use crate::newcomers::{ListenError, Newcomers, refuse};
use crate::reader::{Corrupt, FrameReader};
use crate::segment::{Layout, Segment, SegmentError};

/// Frames that are taken before the sockets have their turn.
const TURN: usize = 64;

/// A path at which one camera may be connected.
#[derive(Debug)]
pub struct CameraPort {
    newcomers: Newcomers,
    encoding: String,
    layout: Layout,
    camera: Option<Connected>,
    counts: Counts,
    bytes: Vec<u8>,
}

/// A camera.
#[derive(Debug)]
struct Connected {
    socket: OwnedFd,
    reader: FrameReader,
    board: Board,
}

impl CameraPort {
    /// Listens, for cameras of this encoding.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(path: &Path, encoding: &str, layout: Layout) -> Result<Self, ListenError> {
        let newcomers = Newcomers::listen(path, Role::Camera)?;
        let (encoding, counts, bytes) = (encoding.to_owned(), Counts::default(), Vec::new());
        Ok(Self { newcomers, encoding, layout, camera: None, counts, bytes })
    }

    /// Whether a camera is connected.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.camera.is_some()
    }

    /// Lets the camera, and each that comes later, see these counts; `taken` is counted here.
    pub fn set_counts(&mut self, counts: &Counts) {
        self.counts = Counts { taken: self.counts.taken, ..*counts };
        self.publish();
    }

    fn publish(&self) {
        if let Some(camera) = &self.camera {
            camera.board.write(&self.counts);
        }
    }

    /// Waits at most this long, and passes `sink` the frames that have come.
    pub fn poll(&mut self, patience: Duration, sink: &mut dyn FnMut(&FrameInfo, &[u8])) {
        let sleeps = self.camera.as_ref().is_none_or(|camera| camera.reader.prepare_sleep());
        let sockets = self.newcomers.sockets().chain(self.camera.iter().map(|c| c.socket.as_fd()));
        let mut fds: Vec<_> =
            sockets.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let wait = if sleeps { patience } else { Duration::ZERO };
        // Interrupted, it looks at everything once more.
        let ready = poll(&mut fds, Some(&timespec(wait.0))).unwrap_or(0) > 0;
        let rang = self.camera.is_some() && fds.pop().is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        let Some(camera) = &mut self.camera else {
            if ready {
                self.admit();
            }
            return;
        };
        camera.reader.wake();
        // Looked at first: what a camera wrote before it went is still taken.
        let is_there = !rang || drain(&camera.socket);
        let read = self.read(if is_there { TURN } else { usize::MAX }, sink);
        if let Err(why) = read {
            if let Some(camera) = self.camera.take() {
                refuse(&camera.socket, why.to_string());
            }
        } else if !is_there {
            self.camera = None;
        }
        self.publish();
        if ready {
            self.admit();
        }
    }

    /// Takes so many frames, and no more than the ring holds at once.
    fn read(
        &mut self,
        most: usize,
        sink: &mut dyn FnMut(&FrameInfo, &[u8]),
    ) -> Result<(), Corrupt> {
        let Self { camera: Some(camera), counts, layout, bytes, .. } = self else { return Ok(()) };
        for _ in 0..most.min(layout.frames()) {
            let Some(info) = camera.reader.read(bytes)? else { break };
            counts.taken += 1;
            sink(&info, bytes);
        }
        Ok(())
    }

    fn admit(&mut self) {
        let Self { newcomers, camera, encoding, layout, counts, .. } = self;
        newcomers.poll(|socket, greeting| {
            if camera.is_some() {
                return refuse(&socket, "another camera is connected; end it first".to_owned());
            }
            let stated = greeting.encoding.unwrap_or_default();
            if !stated.eq_ignore_ascii_case(encoding) {
                let why =
                    format!("the stream's encoding is {encoding}, and the camera's \"{stated}\"");
                return refuse(&socket, why);
            }
            match Connected::new(socket, *layout) {
                Ok(new) => {
                    new.board.write(counts);
                    let encoding = Some(encoding.clone());
                    let segment = new.reader.segment();
                    Answer::Welcome { encoding }.send(&new.socket, Some(segment));
                    *camera = Some(new);
                }
                Err((socket, why)) => refuse(&socket, why.to_string()),
            }
        });
    }
}

impl Connected {
    fn new(socket: OwnedFd, layout: Layout) -> Result<Self, (OwnedFd, SegmentError)> {
        match Segment::create(layout).and_then(FrameReader::create) {
            Ok(reader) => Ok(Self { board: Board::of(reader.segment()), socket, reader }),
            Err(why) => Err((socket, why)),
        }
    }
}
