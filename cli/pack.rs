//! `selvedge pack`: what a coprocessor needs to read a media file itself (`place/coprocessor`'s packs). The file is
//! taken apart here, once, as it would be to be sent; the pack says where the bytes of each packet lie in it.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use selvedge_cli_terminal::Failure;
use selvedge_control_config::{FilePart, SourceUri};
use selvedge_data_stream::PacketShape;
use selvedge_data_stream::rtp::Packet;
use selvedge_media::inspect::PAYLOAD_MAX;
use selvedge_media::{MediaFrame, Source};

use selvedge_place_coprocessor::feeder::modified;
use selvedge_place_coprocessor::locator::Locator;
use selvedge_place_coprocessor::pack::{PackHeader, PackedFrame, Piece};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::Bytes;

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// The media file
    pub(crate) file: PathBuf,
    /// Pack the first sound of the file, not its first pictures
    #[arg(long)]
    pub(crate) sound: bool,
    /// The pack's name; it lies in the folder of the file [default: the file's name and ".pack"]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Why a file was not packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackFailure {
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
        self.out.write_all(&frame.write())
    }
}

pub(crate) fn command(args: &PackArgs) -> Result<(), Failure> {
    let no_name = || PackFailure::Name(args.file.display().to_string());
    let media = args.file.file_name().and_then(|name| name.to_str());
    let (Some(media), Some(path)) = (media, args.file.to_str()) else {
        return Err(Failure::input(no_name()));
    };
    let name = args.name.clone().unwrap_or_else(|| format!("{media}.pack"));
    if name.is_empty() || name.contains('/') {
        return Err(Failure::input(PackFailure::Name(name)));
    }
    let part = if args.sound { FilePart::Sound } else { FilePart::First };
    let uri = SourceUri::File { path: path.to_owned(), repeat: false, part };
    let mut source = Source::open(&uri, Path::new(""), PAYLOAD_MAX).map_err(Failure::input)?;
    let file = File::open(&args.file).map_err(PackFailure::system(&args.file));
    let file = file.map_err(Failure::input)?;
    let stat = rustix::fs::fstat(&file).map_err(|why| PackFailure::system(&args.file)(why.into()));
    let stat = stat.map_err(Failure::input)?;
    let info = source.info().clone();
    let header = PackHeader {
        media: media.to_owned(),
        length: Bytes(stat.st_size as u64),
        modified: modified(&stat),
        period: info.period,
        payload_type: info.payload_type,
    };
    let pack = args.file.with_file_name(&name);
    let unfinished = args.file.with_file_name(format!("{name}.part"));
    let written = write(&mut source, &header, file, &unfinished).and_then(|packing| {
        fs::rename(&unfinished, &pack).map_err(PackFailure::system(&pack))?;
        Ok(packing)
    });
    let packing = written.map_err(|why| {
        // It may not be there.
        let _ = fs::remove_file(&unfinished);
        Failure::input(why)
    })?;
    report(args, &pack, &packing, info.codec.encoding())
}

fn write(
    source: &mut Source,
    header: &PackHeader,
    media: File,
    path: &Path,
) -> Result<Packing, PackFailure> {
    let out = File::create(path).map_err(PackFailure::system(path))?;
    let (out, locator) = (BufWriter::new(out), Locator::new(media));
    let mut packing = Packing { out, locator, frames: 0, payload: Bytes(0), inline: Bytes(0) };
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

fn report(args: &PackArgs, pack: &Path, packing: &Packing, encoding: &str) -> Result<(), Failure> {
    let Packing { frames, payload, inline, .. } = packing;
    let mut out = io::stdout().lock();
    if args.json {
        let text = serde_json::json!({
            "pack": pack, "frames": frames, "encoding": encoding,
            "payload_bytes": payload.0, "inline_bytes": inline.0,
        });
        writeln!(out, "{text}")?;
        return Ok(());
    }
    let share = inline.0 as f64 * 100.0 / payload.0.max(1) as f64;
    writeln!(
        out,
        "{}: {frames} frames of {payload}; {share:.1} % of that lies in the pack itself\n\
         In the node file: source = \"record:{}?encoding={encoding}&loop\", on a link with \
         placement = \"coprocessor-reads\"",
        pack.display(),
        pack.display()
    )?;
    Ok(())
}
