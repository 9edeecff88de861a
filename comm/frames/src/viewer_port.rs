//! The node's end of a stream that programs watch: up to 16 viewers, each with memory of its own.

use std::os::fd::OwnedFd;
use std::path::Path;

use selvedge_os::seqpacket;

use crate::frame::FrameInfo;
use crate::greeting::{Answer, BELL, Role, drain};
use crate::newcomers::{ListenError, Newcomers, refuse};
use crate::reader::FrameReader;
use crate::segment::{Layout, Segment, SegmentError};
use crate::writer::FrameWriter;

/// The most viewers at once.
const VIEWERS_MAX: usize = 16;

/// A path at which viewers may be connected.
#[derive(Debug)]
pub struct ViewerPort {
    newcomers: Newcomers,
    layout: Layout,
    viewers: Vec<Connected>,
}

/// A viewer.
#[derive(Debug)]
struct Connected {
    socket: OwnedFd,
    writer: FrameWriter,
}

impl ViewerPort {
    /// Listens.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen(path: &Path, layout: Layout) -> Result<Self, ListenError> {
        let newcomers = Newcomers::listen(path, Role::Viewer)?;
        Ok(Self { newcomers, layout, viewers: Vec::new() })
    }

    /// The number of viewers.
    #[must_use]
    pub const fn viewers(&self) -> usize {
        self.viewers.len()
    }

    /// Takes viewers that have come, of a stream of this encoding, and forgets those that have gone. Never waits.
    pub fn poll(&mut self, encoding: Option<&str>) {
        let Self { newcomers, layout, viewers } = self;
        viewers.retain(|viewer| drain(&viewer.socket));
        newcomers.poll(|socket, _| {
            if viewers.len() == VIEWERS_MAX {
                return refuse(&socket, format!("{VIEWERS_MAX} viewers are connected; end one"));
            }
            match memory(*layout) {
                Ok((segment, writer)) => {
                    let encoding = encoding.map(str::to_owned);
                    Answer::Welcome { encoding }.send(&socket, Some(&segment));
                    viewers.push(Connected { socket, writer });
                }
                Err(why) => refuse(&socket, why.to_string()),
            }
        });
    }

    /// Gives each viewer a frame, whose number says which frames it missed. A viewer without room misses it. Never waits.
    pub fn give(&mut self, info: &FrameInfo, bytes: &[u8]) {
        for Connected { socket, writer } in &mut self.viewers {
            if writer.write(info, bytes) == Ok(true) {
                // One that does not read its wake-ups has some already.
                let _ = seqpacket::send(&*socket, &BELL, &[]);
            }
        }
    }
}

fn memory(layout: Layout) -> Result<(Segment, FrameWriter), SegmentError> {
    let segment = Segment::create(layout)?;
    // Lays it out; the viewer resumes it.
    drop(FrameReader::create(segment.clone())?);
    let writer = FrameWriter::new(segment.clone())?;
    Ok((segment, writer))
}
