//! The clips of a demo: their list, the rates that they need, the node that sends them, and the
//! receivers in this process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_cli_terminal::Failure;
use selvedge_control_config::{
    FilePart, LinkConfig, NodeConfig, PageConfig, SourceUri, StreamConfig,
};
use selvedge_data_receive::{ClockRate, MeterSnapshot, StreamMeter};
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Spec, Window, Windows};
use selvedge_media::{StreamInfo, inspect};
use selvedge_os::clock::Clock;
use selvedge_place_engine::frame_producer::Arrivals;
use selvedge_place_engine::receive::{ReceiveOptions, Receiver, StreamReception};
use selvedge_units::{Bitrate, Bytes, Duration};

use super::DemoArgs;
use crate::received::{PictureTap, Watched};

/// A clip to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clip {
    /// The stream's name.
    name: String,
    /// The file's name in its folder.
    file: String,
    window: Window,
}

/// The bundled clips: the stream's name, the file, and its window.
const BUNDLED: [(&str, &str, Window); 6] = [
    ("corridor", "one-by-one-person-detection.mp4", Window { lose: 1, of: 5 }),
    ("car-park", "car-detection.mp4", Window { lose: 1, of: 5 }),
    ("titles", "captions-test.ts", Window { lose: 1, of: 10 }),
    ("entrance-mpeg2", "one-by-one-mpeg2.ts", Window { lose: 1, of: 3 }),
    ("snapshots-jpeg", "one-by-one-mjpeg.avi", Window { lose: 1, of: 2 }),
    ("voice", "10001-90210-01803.wav", Window { lose: 1, of: 50 }),
];
/// The window of a user's own clip.
const OWN: Window = Window { lose: 1, of: 5 };
/// The endings of files that may be clips.
const ENDINGS: [&str; 14] = [
    "mp4", "m4v", "mov", "mkv", "webm", "ts", "m2ts", "mpg", "mpeg", "avi", "mjpeg", "wav", "mp3",
    "m4a",
];
/// The most clips that are taken from a folder.
const CLIPS_MAX: usize = 256;

/// The folder of the clips: the user's, or the one that is shipped.
pub(super) fn folder(own: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(own) = own {
        return Ok(own.to_owned());
    }
    let beside = std::env::current_exe().ok();
    let beside = beside.iter().flat_map(|exe| exe.ancestors().skip(1).take(4));
    let candidates = std::iter::once(Path::new("")).chain(beside).map(|dir| dir.join("clips"));
    let has = |dir: &PathBuf| dir.join(BUNDLED[0].1).is_file();
    candidates.into_iter().find(has).ok_or_else(|| {
        Failure::input(
            "the bundled clips are not here; run this in Selvedge's own folder, or name a folder \
             of yours with --clips DIR",
        )
    })
}

/// The clips in a folder: the bundled ones, or all the user's media files.
pub(super) fn find(folder: &Path, own: bool) -> Result<Vec<Clip>, Failure> {
    if !own {
        let clip = |(name, file, window): (&str, &str, Window)| Clip {
            name: name.to_owned(),
            file: file.to_owned(),
            window,
        };
        return Ok(BUNDLED.map(clip).to_vec());
    }
    let shown = folder.display();
    let entries = std::fs::read_dir(folder)
        .map_err(|error| Failure::input(format!("can't read the folder \"{shown}\": {error}")))?;
    let mut files: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| {
            let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
            ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
        })
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(Failure::input(format!(
            "there is no clip in \"{shown}\"; a clip's name ends in one of: {}",
            ENDINGS.join(", ")
        )));
    }
    if files.len() > CLIPS_MAX {
        let count = files.len();
        return Err(Failure::input(format!(
            "\"{shown}\" holds {count} clips, at most {CLIPS_MAX} are taken; move some away"
        )));
    }
    let mut taken = BTreeSet::new();
    let clips = files.into_iter().map(|file| {
        let name = name_of(&file, &mut taken);
        Clip { name, file, window: OWN }
    });
    Ok(clips.collect())
}

/// A stream's name made of a file's: letters, digits, `-` and `_`, each name once.
fn name_of(file: &str, taken: &mut BTreeSet<String>) -> String {
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let base: String = stem.chars().map(plain).take(56).collect();
    let base = if base.is_empty() { "clip".to_owned() } else { base };
    let mut name = base.clone();
    let mut n = 2;
    while !taken.insert(name.clone()) {
        name = format!("{base}-{n}");
        n += 1;
    }
    name
}

/// The mean rate that each clip needs on the wire, looped for this many seconds.
pub(super) fn needed(
    clips: &[Clip],
    folder: &Path,
    seconds: u64,
    stop: &AtomicBool,
) -> Result<Vec<Bitrate>, Failure> {
    let horizon = Duration::from_secs(seconds);
    let mut rates = Vec::with_capacity(clips.len());
    let mut measured: Vec<(&str, Bitrate)> = Vec::new();
    let mut wrong = Vec::new();
    for clip in clips {
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::failed("stopped before it began"));
        }
        if let Some((_, rate)) = measured.iter().find(|(file, _)| *file == clip.file) {
            rates.push(*rate);
            continue;
        }
        match inspect::frames(&folder.join(&clip.file)) {
            Ok(frames) if frames.is_empty() => wrong.push(format!("{}: no frames", clip.file)),
            Ok(frames) => {
                let rate = looped(&frames, horizon) / horizon;
                measured.push((&clip.file, rate));
                rates.push(rate);
            }
            Err(error) => wrong.push(format!("{}: {error}", clip.file)),
        }
    }
    if wrong.is_empty() { Ok(rates) } else { Err(Failure::Input(wrong.join("\n"))) }
}

/// Bytes of a clip's frames within the horizon, begun again at each end.
fn looped(frames: &[inspect::WireFrame], horizon: Duration) -> Bytes {
    let last = frames.last().map_or(Duration::ZERO, |f| f.decode_time);
    let period = Duration(last.0 / (frames.len() as u64 - 1).max(1)).max(Duration::from_millis(1));
    let whole = last + period;
    let bytes = |until: Duration| -> Bytes {
        frames.iter().filter(|f| f.decode_time < until).map(|f| f.size).sum()
    };
    let turns = horizon.0 / whole.0;
    let rest = Duration(horizon.0 - turns * whole.0);
    Bytes(bytes(whole).0 * turns) + bytes(rest)
}

/// The node that sends the clips over one link of this rate and discipline.
pub(super) fn node(
    clips: &[Clip],
    needed: &[Bitrate],
    discipline: Discipline,
    rate: Bitrate,
    args: &DemoArgs,
    receivers: &[SocketAddr],
) -> NodeConfig {
    // Room for the bytes that arrive within the delay and a peak of four times the mean.
    let pool = |mean: Bitrate| {
        let bytes = (mean * (args.delay + Duration::from_secs(1))).0.saturating_mul(4);
        Bytes(bytes.clamp(500_000, 256_000_000))
    };
    let ring = (args.delay.0 / 1_000_000_000 + 1).saturating_mul(240).clamp(256, 65_536) as u32;
    let stream = |((clip, to), mean): ((&Clip, &SocketAddr), &Bitrate)| {
        let source =
            SourceUri::File { path: clip.file.clone(), repeat: true, part: FilePart::First };
        let mut stream = StreamConfig::new(&clip.name, source, *to);
        stream.thumbnail = !args.no_page;
        let Spec { contract, pool: room, ring: places, .. } = &mut stream.spec;
        (*room, *places) = (pool(*mean), ring);
        contract.windows = Windows::Whole(clip.window);
        contract.delay = Some(args.delay);
        stream
    };
    NodeConfig {
        name: format!("demo-{discipline}"),
        page: PageConfig { listen: args.listen, ..PageConfig::default() },
        links: vec![LinkConfig::new("uplink", rate, discipline)],
        bonds: Vec::new(),
        tunnels: Vec::new(),
        streams: clips.iter().zip(receivers).zip(needed).map(stream).collect(),
    }
}

/// The receivers of a side's streams. Ports are known before meters are: a stream's clock rate is known
/// only once its clip is open.
pub(super) struct Receivers {
    ports: Vec<std::net::UdpSocket>,
    addresses: Vec<SocketAddr>,
    clock: Clock,
    receiver: Option<Receiver>,
}

impl Receivers {
    /// Reserves a port of the loopback for each stream.
    pub(super) fn open(streams: usize, clock: Clock) -> Result<Self, Failure> {
        let bind = |_| std::net::UdpSocket::bind("127.0.0.1:0");
        let ports = (0..streams).map(bind).collect::<Result<Vec<_>, _>>()?;
        let addresses = ports.iter().map(|p| p.local_addr()).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { ports, addresses, clock, receiver: None })
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Begins to receive. A frame is on time if it is whole within `delay` of its arrival.
    pub(super) fn listen(
        &mut self,
        infos: &[StreamInfo],
        arrivals: Vec<Arc<Arrivals>>,
        delay: Duration,
        watched: &[Watched],
    ) -> Result<(), Failure> {
        self.ports.clear();
        let receptions = self.addresses.iter().zip(infos).zip(arrivals);
        let receptions = receptions.map(|((listen, info), arrivals)| {
            let rate = ClockRate::new(info.clock_rate).unwrap_or(ClockRate::VIDEO);
            let deadline_of = move |seq| arrivals.of(seq).map(|arrival| arrival + delay);
            let meter = StreamMeter::with_shared_clock(rate, deadline_of);
            StreamReception { listen: *listen, meter }
        });
        let tap = PictureTap::new(watched, None);
        let options = ReceiveOptions { tap: Some(Box::new(tap)), ..Default::default() };
        let started = Receiver::start(self.clock, receptions.collect(), options);
        self.receiver = Some(started.map_err(Failure::failed)?);
        Ok(())
    }

    /// The receivers' measurements so far.
    pub(super) fn snapshots(&self) -> Vec<MeterSnapshot> {
        self.receiver.as_ref().map(Receiver::snapshots).unwrap_or_default()
    }

    /// Frames settled and decodable so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        self.snapshots().iter().fold((0, 0), |(all, good), meter| {
            (all + meter.frames, good + meter.decodable.unwrap_or(0))
        })
    }

    /// The receivers' final measurements; they stop.
    pub(super) fn finish(&mut self) -> Vec<MeterSnapshot> {
        self.receiver.take().map(|receiver| receiver.stop().0).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_each_is_used_once() {
        let mut taken = BTreeSet::new();
        let mut name = |file: &str| name_of(file, &mut taken);
        assert_eq!(name("Holiday at sea.mp4"), "Holiday-at-sea");
        assert_eq!(name("Holiday-at-sea.mkv"), "Holiday-at-sea-2");
        assert_eq!(name(".mp4"), "clip");
        assert_eq!(name("été.ts"), "-t-");
    }

    #[test]
    fn a_looped_clip_needs_what_its_frames_take_each_time_round() {
        let frame = |n: u64, size: u64| inspect::WireFrame {
            decode_time: Duration::from_millis(100 * n),
            media_time: Duration::from_millis(100 * n),
            picture: selvedge_media::Picture::STILL,
            size: Bytes(size),
            packets: vec![size as u16],
        };
        let frames = [frame(0, 1000), frame(1, 10), frame(2, 10), frame(3, 10)];
        assert_eq!(looped(&frames, Duration::from_millis(400)), Bytes(1030));
        assert_eq!(looped(&frames, Duration::from_millis(500)), Bytes(2030));
        assert_eq!(looped(&frames, Duration::from_secs(4)), Bytes(10_300));
    }
}
