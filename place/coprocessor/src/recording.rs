//! Frames from a recording (`selvedge play --record`): an `rtpdump` file whose packets bear our header
//! extension. So they can be joined to frames again without knowledge of any codec.

use selvedge_data_stream::rtp::{FrameTag, Packet};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::Duration;

/// The longest first line.
const LINE_MAX: usize = 256;
/// Bytes of the binary header behind it, and before each packet.
const FILE_HEADER: usize = 16;
const PACKET_HEADER: usize = 8;
/// The most packets of one frame; the rest of a longer one goes to another frame.
const PACKETS_MAX: usize = 4096;

/// Why the bytes are not a recording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// It begins with other bytes.
    #[error(
        "not an rtpdump file: it does not begin with \"#!rtpplay1.0\"; record one by `selvedge play --record`"
    )]
    Header,
    /// A record that is invalid, which begins here.
    #[error("the record at byte {0} is shorter than its own header; the file is damaged")]
    Record(u64),
}

/// A frame of a recording: its arrival, counted from the recording's beginning.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Since the beginning, in whole milliseconds.
    pub at: Duration,
    /// The packets, one behind the other, each beginning at the end of the previous one.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    tag: Option<FrameTag>,
    timestamp: u32,
}

impl Recorded {
    /// Its packets.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// Its meaning for other frames. Whether other frames refer to it is recorded; whether a group is closed
    /// is not recorded, and an intra picture is assumed to begin a new one.
    #[must_use]
    pub fn enqueue(&self) -> Option<FrameMetadata> {
        let tag = self.tag?;
        Some(FrameMetadata {
            kind: tag.kind,
            referenced: tag.referenced,
            closes: tag.kind == selvedge_data_stream::Kind::Intra,
            // Distances hold only where no frame is missing; a received stream has gaps.
            refs: None,
            timestamp: self.timestamp,
        })
    }
}

/// Joins frames from the bytes of a recording, in chunks of any length.
#[derive(Debug, Default)]
pub struct Assembler {
    /// Bytes that are not a whole record yet; never more than one record and the first line.
    rest: Vec<u8>,
    /// The offset of `rest` in the file.
    at: u64,
    begun: bool,
    frame: Recorded,
    /// Packets that bear no frame's mark, or are not RTP.
    pub skipped: u64,
}

impl Assembler {
    /// Takes the file's next bytes; `ready` gets each complete frame.
    ///
    /// # Errors
    /// [`RecordingError`]; nothing more can be read then.
    pub fn push(
        &mut self,
        bytes: &[u8],
        ready: &mut impl FnMut(&Recorded),
    ) -> Result<(), RecordingError> {
        self.rest.extend_from_slice(bytes);
        let mut from = 0;
        if !self.begun {
            let Some(len) = self.first()? else { return Ok(()) };
            from = len;
            self.begun = true;
        }
        while let Some(header) = self.rest.get(from..from + PACKET_HEADER) {
            let word = |n: usize| usize::from(u16::from_be_bytes([header[n], header[n + 1]]));
            let total = word(0);
            if total < PACKET_HEADER {
                return Err(RecordingError::Record(self.at + from as u64));
            }
            let ms = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
            let control = word(2) == 0;
            let Some(record) = self.rest.get(from + PACKET_HEADER..from + total) else { break };
            if control || !Self::packet(&mut self.frame, record, ms, ready) {
                self.skipped += u64::from(!control);
            }
            from += total;
        }
        self.rest.drain(..from);
        self.at += from as u64;
        Ok(())
    }

    /// Ends the input: the last frame is complete, if there is one.
    pub fn end(&mut self, ready: &mut impl FnMut(&Recorded)) {
        if self.frame.tag.is_some() {
            ready(&self.frame);
        }
        *self = Self::default();
    }

    /// Bytes of the first line and the header behind it, if they are all there.
    fn first(&self) -> Result<Option<usize>, RecordingError> {
        const MAGIC: &[u8] = b"#!rtpplay1.0 ";
        let seen = self.rest.len().min(MAGIC.len());
        if self.rest[..seen] != MAGIC[..seen] {
            return Err(RecordingError::Header);
        }
        let line = self.rest.iter().take(LINE_MAX).position(|&byte| byte == b'\n');
        match line {
            Some(end) => Ok(Some(end + 1 + FILE_HEADER).filter(|&len| len <= self.rest.len())),
            None if self.rest.len() >= LINE_MAX => Err(RecordingError::Header),
            None => Ok(None),
        }
    }

    /// Adds a packet to its frame; a packet of another frame ends the previous one. False if it is not a
    /// packet of a frame.
    fn packet(
        frame: &mut Recorded,
        bytes: &[u8],
        ms: u32,
        ready: &mut impl FnMut(&Recorded),
    ) -> bool {
        let Ok(packet) = Packet::parse(bytes) else { return false };
        let Some(tag) = packet.tag else { return false };
        let same = frame.tag.is_some_and(|before| before.seq == tag.seq);
        if !same || frame.ends.len() == PACKETS_MAX {
            if frame.tag.is_some() {
                ready(frame);
            }
            frame.bytes.clear();
            frame.ends.clear();
            frame.at = Duration::from_millis(u64::from(ms));
            frame.timestamp = packet.header.timestamp;
            frame.tag = Some(tag);
        }
        frame.bytes.extend_from_slice(bytes);
        frame.ends.push(frame.bytes.len());
        if tag.last {
            ready(frame);
            frame.tag = None;
            frame.bytes.clear();
            frame.ends.clear();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use selvedge_data_stream::rtp::{Header, packet_len, write_packet};
    use selvedge_data_stream::{Kind, References};

    /// A recording of three frames of one, two and three packets, 40 ms apart.
    fn recording() -> Vec<u8> {
        let mut file = b"#!rtpplay1.0 127.0.0.1/5004\n".to_vec();
        file.extend([0; 16]);
        for seq in 0..3_u32 {
            for n in 0..=seq {
                let tag = FrameTag {
                    seq,
                    kind: Kind::Still,
                    referenced: false,
                    first: n == 0,
                    last: n == seq,
                    refs: References::NONE,
                    left_ms: 0,
                    deadline_ms: 0,
                };
                let header = Header {
                    marker: n == seq,
                    payload_type: 26,
                    sequence: (seq * 4 + n) as u16,
                    timestamp: seq * 3600,
                    ssrc: 1,
                };
                let mut packet = vec![0; packet_len(10)];
                write_packet(&mut packet, header, tag, &[seq as u8; 10]);
                let total = (packet.len() + PACKET_HEADER) as u16;
                file.extend(total.to_be_bytes());
                file.extend((packet.len() as u16).to_be_bytes());
                file.extend((seq * 40).to_be_bytes());
                file.extend(packet);
            }
        }
        file
    }

    /// Time, packets and RTP time of each frame.
    fn frames(chunks: &[&[u8]]) -> Result<Vec<(Duration, usize, u32)>, RecordingError> {
        let (mut assembler, mut found) = (Assembler::default(), Vec::new());
        let mut ready = |frame: &Recorded| {
            let offer = frame.enqueue().expect("each packet has a tag");
            found.push((frame.at, frame.packets().count(), offer.timestamp));
        };
        for chunk in chunks {
            assembler.push(chunk, &mut ready)?;
        }
        assembler.end(&mut ready);
        Ok(found)
    }

    #[test]
    fn frames_come_whole_and_in_time() {
        let ms = Duration::from_millis;
        let expected = [(ms(0), 1, 0), (ms(40), 2, 3600), (ms(80), 3, 7200)];
        assert_eq!(frames(&[&recording()]).unwrap(), expected);
        // Cut off in the middle of the last frame's last packet: its earlier packets are returned.
        let file = recording();
        let cut = frames(&[&file[..file.len() - 1]]).unwrap();
        assert_eq!(cut, [expected[0], expected[1], (ms(80), 2, 7200)]);
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        assert_eq!(frames(&[b"RIFF...."]), Err(RecordingError::Header));
        assert_eq!(frames(&[&[b'#'; 300]]), Err(RecordingError::Header));
        let mut long = b"#!rtpplay1.0 ".to_vec();
        long.resize(400, b'1');
        assert_eq!(frames(&[&long]), Err(RecordingError::Header));
        let mut damaged = recording();
        let at = b"#!rtpplay1.0 127.0.0.1/5004\n".len() + 16;
        damaged[at..at + 2].copy_from_slice(&[0, 7]);
        assert_eq!(frames(&[&damaged]), Err(RecordingError::Record(at as u64)));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_file_is_cut(
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let file = recording();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(file.len())).collect();
            at.extend([0, file.len()]);
            at.sort_unstable();
            let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &file[pair[0]..pair[1]]).collect();
            prop_assert_eq!(frames(&chunks), frames(&[&file]));
        }

        #[test]
        fn noise_harms_nothing(
            noise in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        ) {
            let mut file = recording();
            for (at, byte) in noise {
                let at = at.index(file.len());
                file[at] = byte;
            }
            let _ = frames(&[&file]);
        }
    }
}
