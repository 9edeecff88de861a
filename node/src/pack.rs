//! Makes packs (`place/coprocessor`'s `pack.rs`): a media file is taken apart once, as it would be to be sent, and the
//! pack says where the bytes of each packet lie in it. For `selvedge pack`, and measurements.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_control_config::{CARRIED_MIN, FilePart, SourceUri};
use selvedge_data_stream::PacketShape;
use selvedge_data_stream::rtp::{Packet, packet_len};
use selvedge_media::{MediaFrame, Source, SourceError};
use selvedge_place_coprocessor::feeder::modified;
use selvedge_place_coprocessor::locator::Locator;
use selvedge_place_coprocessor::pack::{PackHeader, PackedFrame, Piece};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::{Bytes, Duration};

/// The smallest and the largest packets that a pack may have.
const PACKETS: (Bytes, Bytes) = (CARRIED_MIN, Bytes(65_000));

/// Why a file was not packed.
#[derive(Debug, thiserror::Error)]
pub enum PackFailure {
    /// A path without a file's name, or one that is not UTF-8.
    #[error("\"{0}\" names no file in UTF-8; give the path of a media file")]
    Name(String),
    /// The kernel's error.
    #[error("\"{file}\": {why}")]
    System {
        /// The file.
        file: String,
        /// The error.
        why: io::Error,
    },
    /// Out of range.
    #[error("packets of {0}: write {least} to {most}", least = PACKETS.0, most = PACKETS.1)]
    Packet(Bytes),
    /// No source of frames.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// No frame was found.
    #[error("\"{0}\" has no frames")]
    Empty(String),
}

impl PackFailure {
    fn system(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |why| Self::System { file: path.display().to_string(), why }
    }
}

/// The pack while it is written.
struct Packing {
    out: BufWriter<File>,
    locator: Locator,
    frames: u64,
    /// When the last is due.
    last: Duration,
    payload: Bytes,
    /// Bytes of that in the pack.
    inline: Bytes,
}

impl Packing {
    fn add(&mut self, media: &MediaFrame<'_>) -> io::Result<()> {
        let picture = media.picture;
        let metadata = FrameMetadata {
            kind: picture.kind,
            referenced: picture.referenced,
            closes: picture.closes,
            refs: picture.refs,
            timestamp: media.rtp_timestamp,
        };
        let mut frame = PackedFrame::new(media.decode_time, metadata);
        for packet in media.packets {
            let Ok(packet) = Packet::parse(packet) else { continue };
            let payload = Bytes(packet.payload.len() as u64);
            let (marker, payload_type) = (packet.header.marker, packet.header.payload_type);
            let pieces = self.locator.pieces(packet.payload)?;
            let inline = pieces.iter().filter(|piece| matches!(piece, Piece::Inline(_)));
            self.inline += Bytes(inline.map(Piece::len).sum::<usize>() as u64);
            self.payload += payload;
            let shape = PacketShape { marker, payload_type, payload };
            frame.push(shape, packet.payload, &pieces);
        }
        self.frames += 1;
        self.last = media.decode_time;
        self.out.write_all(&frame.write())
    }
}

/// A pack that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The pack.
    pub path: PathBuf,
    /// The encoding, by its name in SDP.
    pub encoding: &'static str,
    /// How many frames it has.
    pub frames: u64,
    /// How long they play.
    pub plays: Duration,
    /// Bytes of their packets' payloads.
    pub payload: Bytes,
    /// Bytes of that in the pack itself.
    pub inline: Bytes,
}

/// Packs the first pictures of a media file, or its first sound, in RTP packets of at most this size. The pack lies beside the file; without a name it has
/// the file's, and ".pack". O(length of the file).
///
/// # Errors
/// [`PackFailure`]; a pack that was there is as before.
pub fn pack(
    file: &Path,
    sound: bool,
    name: Option<&str>,
    packet: Bytes,
) -> Result<Packed, PackFailure> {
    if !(PACKETS.0..=PACKETS.1).contains(&packet) {
        return Err(PackFailure::Packet(packet));
    }
    let media = file.file_name().and_then(|name| name.to_str());
    let (Some(media), Some(text)) = (media, file.to_str()) else {
        return Err(PackFailure::Name(file.display().to_string()));
    };
    let name = name.map_or_else(|| format!("{media}.pack"), str::to_owned);
    if name.is_empty() || name.contains('/') {
        return Err(PackFailure::Name(name));
    }
    let part = if sound { FilePart::Sound } else { FilePart::First };
    let uri = SourceUri::File { path: text.to_owned(), repeat: false, part };
    let mut source = Source::open(&uri, Path::new(""), packet.0 as usize - packet_len(0))?;
    let opened = File::open(file).map_err(PackFailure::system(file))?;
    let stat = opened.metadata().map_err(PackFailure::system(file))?;
    let info = source.info().clone();
    let header = PackHeader {
        media: media.to_owned(),
        length: Bytes(stat.len()),
        modified: modified(&stat),
        period: info.period,
        payload_type: info.payload_type,
    };
    let (path, unfinished) =
        (file.with_file_name(&name), file.with_file_name(format!("{name}.part")));
    let written = write(&mut source, &header, opened, &unfinished).and_then(|packing| {
        fs::rename(&unfinished, &path).map_err(PackFailure::system(&path))?;
        Ok(packing)
    });
    let Packing { frames, last, payload, inline, .. } = written.inspect_err(|_| {
        // It may not be there.
        let _ = fs::remove_file(&unfinished);
    })?;
    let (encoding, plays) = (info.codec.encoding(), last + info.period);
    Ok(Packed { path, encoding, frames, plays, payload, inline })
}

fn write(
    source: &mut Source,
    header: &PackHeader,
    media: File,
    path: &Path,
) -> Result<Packing, PackFailure> {
    let out = File::create(path).map_err(PackFailure::system(path))?;
    let (out, locator) = (BufWriter::new(out), Locator::new(media));
    let mut packing = Packing {
        out,
        locator,
        frames: 0,
        last: Duration::ZERO,
        payload: Bytes(0),
        inline: Bytes(0),
    };
    packing.out.write_all(&header.write()).map_err(PackFailure::system(path))?;
    let (stop, mut failure) = (AtomicBool::new(false), None);
    let mut add = |frame: MediaFrame<'_>| {
        if failure.is_none()
            && let Err(why) = packing.add(&frame)
        {
            failure = Some(why);
            stop.store(true, Ordering::Relaxed);
        }
    };
    let ended = source.run_unpaced(&mut add, &stop).map_err(io::Error::other);
    failure.map_or_else(|| ended.map(drop), Err).map_err(PackFailure::system(path))?;
    packing.out.flush().map_err(PackFailure::system(path))?;
    if packing.frames == 0 {
        return Err(PackFailure::Empty(header.media.clone()));
    }
    Ok(packing)
}
