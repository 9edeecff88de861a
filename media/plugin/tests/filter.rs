//! The filter in pipelines: the pictures that FFmpeg decodes from its output, its statistics, and the
//! same stream at the same rate through a leaky queue.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::Once;

use gstreamer as gst;
use gstreamer::prelude::*;

/// How long anything may take.
const TIMEOUT: gst::ClockTime = gst::ClockTime::from_seconds(60);

/// A pipeline of a launch line.
struct Playing(gst::Pipeline);

impl Playing {
    fn new(line: &str) -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            gst::init().unwrap();
            gstselvedge::register_static().unwrap();
        });
        let element = gst::parse::launch(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        Self(element.downcast().unwrap())
    }

    fn play(line: &str) -> Self {
        let playing = Self::new(line);
        // Failures are reported on the bus.
        let _ = playing.0.set_state(gst::State::Playing);
        playing
    }

    /// Waits for the end of the streams, or for an error, whose text it returns.
    fn end(&self) -> Result<(), String> {
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let message = self.0.bus().unwrap().timed_pop_filtered(TIMEOUT, &kinds);
        match message.expect("the pipeline neither ended nor failed").view() {
            gst::MessageView::Error(error) => Err(error.error().message().to_owned()),
            _ => Ok(()),
        }
    }

    fn filter(&self) -> gst::Element {
        self.0.by_name("s").unwrap()
    }

    /// Stops it; returns the filter's counts of a pad.
    fn stop(&self, pad: &str) -> Counts {
        self.0.set_state(gst::State::Null).unwrap();
        let stats: gst::Structure = self.filter().property("stats");
        let of_pad: gst::Structure = stats.get(pad).unwrap();
        let count = |field| of_pad.get::<u64>(field).unwrap();
        let counts = Counts {
            frames: count("frames"),
            sent: count("sent"),
            decodable: count("decodable"),
            qos: count("qos"),
        };
        assert_eq!(counts.frames, counts.sent + count("dropped") + count("queued"), "{stats}");
        counts
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        let _ = self.0.set_state(gst::State::Null);
    }
}

#[derive(Debug)]
struct Counts {
    frames: u64,
    sent: u64,
    decodable: u64,
    qos: u64,
}

/// Noise, so that no two pictures are alike, as from a camera.
fn noise(frames: u32) -> String {
    format!(
        "videotestsrc is-live=true num-buffers={frames} pattern=snow ! \
         video/x-raw,width=160,height=120,framerate=25/1 ! \
         x264enc bframes=2 key-int-max=25 bitrate=800 rc-lookahead=4 speed-preset=ultrafast ! \
         h264parse config-interval=-1 ! video/x-h264,stream-format=byte-stream,alignment=au"
    )
}

/// The pictures that FFmpeg decodes from a file: when each is shown, and a sum over its pixels.
fn decoded(path: &Path) -> Vec<String> {
    let output = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "quiet", "-threads", "1", "-copyts", "-i"])
        .arg(path)
        .args(["-map", "0:v", "-fps_mode", "passthrough", "-f", "framemd5", "-"])
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let pictures = lines.lines().filter(|line| !line.starts_with('#'));
    let shown = |line: &str| {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        format!("{} {}", fields[2], fields[5])
    };
    pictures.map(shown).collect()
}

#[test]
fn ffmpeg_decodes_what_statistics_say_and_more_than_behind_a_leaky_queue() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, ours, leaky] = ["whole", "ours", "leaky"].map(|n| folder.path().join(n));
    let clip = folder.path().join("clip.mp4");
    let made = Command::new("ffmpeg")
        .args(["-nostdin", "-v", "error", "-f", "lavfi", "-t", "8", "-i"])
        .args(["testsrc2=s=320x240:r=25,noise=alls=12:allf=t", "-preset", "veryfast"])
        .args(
            "-c:v libx264 -b:v 800k -maxrate 800k -bufsize 800k -g 25 -bf 2 -b-pyramid 0"
                .split(' '),
        )
        .arg(&clip)
        .status();
    assert!(made.unwrap().success());
    // The queue holds as much as the filter, and is charged for no headers.
    let playing = Playing::play(&format!(
        "filesrc location={} ! qtdemux ! h264parse ! identity sync=true ! tee name=t \
         t. ! queue ! matroskamux ! filesink sync=false async=false location={} \
         t. ! queue ! selvedge name=s rate=600000 ! \
              h264parse ! matroskamux ! filesink sync=false location={} \
         t. ! queue leaky=downstream max-size-time=1000000000 max-size-buffers=0 max-size-bytes=0 ! \
              matroskamux streamable=true ! identity single-segment=true sync=true datarate=75000 ! \
              filesink sync=false async=false location={}",
        clip.display(),
        whole.display(),
        ours.display(),
        leaky.display()
    ));
    playing.end().unwrap();
    let counts = playing.stop("sink_0");
    let right: HashSet<String> = decoded(&whole).into_iter().collect();
    assert_eq!(counts.frames, right.len() as u64);
    let share = |path: &Path| decoded(path).iter().filter(|sum| right.contains(*sum)).count();
    let (by_us, by_the_queue) = (share(&ours), share(&leaky));
    println!("{counts:?}; right pictures: {by_us}, behind a queue {by_the_queue}");
    assert!(counts.sent < counts.frames && counts.decodable > counts.frames / 2, "{counts:?}");
    assert_eq!(by_us as u64, counts.decodable, "{counts:?}");
    // Every frame that left is a picture: none was cut.
    assert_eq!(decoded(&ours).len() as u64, counts.sent);
    let leaked = decoded(&leaky).len();
    assert!(by_the_queue > 10 && leaked < right.len(), "the queue leaks, but not all");
    assert!(by_us > by_the_queue + 20, "{by_us} against {by_the_queue} pictures");
}

/// An encoding: how FFmpeg writes it, and the GStreamer elements that make frames of the file.
struct Encoding {
    options: &'static str,
    frames: &'static str,
    /// The elements that bring them into a muxer's form.
    behind: &'static str,
}

const ENCODINGS: [(&str, Encoding); 4] = [
    (
        "h265",
        Encoding {
            options: "-c:v libx265 -preset ultrafast -x265-params log-level=none",
            frames: "h265parse ! video/x-h265,stream-format=byte-stream,alignment=au",
            behind: "h265parse",
        },
    ),
    (
        "vp8",
        Encoding {
            options: "-c:v libvpx -deadline realtime -cpu-used 8",
            frames: "queue",
            behind: "queue",
        },
    ),
    (
        "vp9",
        Encoding {
            options: "-c:v libvpx-vp9 -deadline realtime -cpu-used 8",
            frames: "vp9parse",
            behind: "vp9parse",
        },
    ),
    (
        "av1",
        Encoding {
            options: "-c:v libaom-av1 -usage realtime -cpu-used 8",
            frames: "av1parse ! video/x-av1,stream-format=obu-stream,alignment=tu",
            behind: "av1parse",
        },
    ),
];

/// Makes a clip of four seconds; returns its path.
fn clip(folder: &Path, name: &str, arguments: &str) -> std::path::PathBuf {
    let clip = folder.join(format!("{name}.mkv"));
    let words = arguments.split_whitespace();
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-nostdin", "-v", "error"]).args(words).arg(&clip);
    assert!(ffmpeg.status().unwrap().success(), "{name}");
    clip
}

#[test]
fn every_encoding_comes_out_as_statistics_say() {
    let folder = tempfile::tempdir().unwrap();
    let playing = ENCODINGS.map(|(name, Encoding { options, frames, behind })| {
        let picture =
            "-f lavfi -t 4 -i testsrc2=s=320x180:r=25,noise=alls=12:allf=t -b:v 600k -g 25";
        let clip = clip(folder.path(), name, &format!("{picture} {options}"));
        let [whole, ours] =
            ["whole", "ours"].map(|part| folder.path().join(format!("{name}.{part}")));
        let line = format!(
            "filesrc location={} ! matroskademux ! {frames} ! identity sync=true ! tee name=t \
             t. ! queue ! {behind} ! matroskamux ! filesink sync=false async=false location={} \
             t. ! queue ! selvedge name=s rate=450000 ! \
                  {behind} ! matroskamux ! filesink sync=false location={}",
            clip.display(),
            whole.display(),
            ours.display()
        );
        (name, whole, ours, Playing::play(&line))
    });
    for (name, whole, ours, playing) in playing {
        playing.end().unwrap_or_else(|why| panic!("{name}: {why}"));
        let counts = playing.stop("sink_0");
        let right: HashSet<String> = decoded(&whole).into_iter().collect();
        assert_eq!(counts.frames, right.len() as u64, "{name}");
        let exact = decoded(&ours).iter().filter(|sum| right.contains(*sum)).count();
        println!("{name}: {counts:?}; right pictures: {exact}");
        assert!(counts.sent < counts.frames && counts.decodable > 20, "{name}: {counts:?}");
        assert_eq!(exact as u64, counts.decodable, "{name}: {counts:?}");
    }
}

#[test]
fn opus_comes_out_as_statistics_say() {
    let folder = tempfile::tempdir().unwrap();
    let sound = "-f lavfi -t 4 -i anoisesrc=r=48000 -c:a libopus -b:a 96k -vbr off";
    let (clip, out) = (clip(folder.path(), "opus", sound), folder.path().join("out.mkv"));
    let playing = Playing::play(&format!(
        "filesrc location={} ! matroskademux ! opusparse ! identity sync=true ! \
         selvedge name=s rate=90000 ! opusparse ! matroskamux ! filesink sync=false location={}",
        clip.display(),
        out.display()
    ));
    playing.end().unwrap();
    let counts = playing.stop("sink_0");
    assert!(counts.sent < counts.frames && counts.decodable == counts.sent, "{counts:?}");
    assert!(counts.sent > counts.frames / 2, "{counts:?}");
    let probe = ["-v", "error", "-count_packets", "-show_entries", "stream=nb_read_packets"];
    let probed = Command::new("ffprobe").args(probe).args(["-of", "csv=p=0"]).arg(&out).output();
    let packets = String::from_utf8(probed.unwrap().stdout).unwrap();
    assert_eq!(packets.trim().trim_matches(','), counts.sent.to_string());
}

#[test]
fn picture_and_sound_share_a_link_in_front_of_a_muxer() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.ts");
    let playing = Playing::play(&format!(
        "selvedge name=s rate=500000 sink_1::window=0/1 sink_1::priority=5 \
         {} ! s.sink_0 s.src_0 ! mux. \
         audiotestsrc is-live=true num-buffers=190 ! avenc_aac bitrate=64000 ! s.sink_1 s.src_1 ! mux. \
         mpegtsmux name=mux ! filesink sync=false location={}",
        noise(100),
        out.display()
    ));
    playing.end().unwrap();
    let (picture, sound) = (playing.stop("sink_0"), playing.stop("sink_1"));
    assert!(picture.sent < picture.frames && picture.decodable > 20, "{picture:?}");
    assert!(sound.frames > 150 && sound.sent == sound.frames, "{sound:?}");
    assert_eq!(decoded(&out).len() as u64, picture.sent);
    let probed = Command::new("ffprobe")
        .args(["-v", "error", "-select_streams", "a", "-count_packets"])
        .args(["-show_entries", "stream=nb_read_packets", "-of", "csv=p=0"])
        .arg(&out)
        .output()
        .unwrap();
    let packets = String::from_utf8(probed.stdout).unwrap();
    assert_eq!(packets.lines().next().unwrap().trim_matches(','), sound.sent.to_string());
}

#[test]
fn seeks_go_up_and_what_follows_comes_down() {
    let folder = tempfile::tempdir().unwrap();
    let clip = folder.path().join("clip.mp4");
    let line = format!(
        "videotestsrc num-buffers=50 ! video/x-raw,width=160,height=120,framerate=25/1 ! \
         x264enc key-int-max=25 ! h264parse ! mp4mux ! filesink location={}",
        clip.display()
    );
    Playing::play(&line).end().unwrap();
    let line = format!(
        "filesrc location={} ! qtdemux ! h264parse ! \
         selvedge name=s rate=5000000 sink_0::delay=200000000 ! fakesink name=end sync=true",
        clip.display()
    );
    let playing = Playing::play(&line);
    let end = playing.0.by_name("end").unwrap();
    let pad = end.static_pad("sink").unwrap();
    let (sender, came) = std::sync::mpsc::channel();
    pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_FLUSH, move |_, info| {
        let seen = match &info.data {
            Some(gst::PadProbeData::Buffer(buffer)) => buffer.pts(),
            _ => None,
        };
        sender.send(seen).unwrap();
        gst::PadProbeReturn::Ok
    });
    let next = || came.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
    while next().is_none() {}
    playing.0.seek_simple(gst::SeekFlags::FLUSH, gst::ClockTime::SECOND).unwrap();
    while next().is_some() {}
    playing.end().unwrap();
    let pictures: Vec<_> = came.try_iter().flatten().collect();
    assert_eq!(pictures.len(), 25, "{pictures:?}");
    playing.stop("sink_0");
}

#[test]
fn reports_of_lateness_are_counted_and_latency_is_the_delay() {
    let line = format!(
        "{} ! selvedge name=s rate=5000000 sink_0::delay=300000000 ! fakesink name=end sync=true",
        noise(50)
    );
    let playing = Playing::play(&line);
    playing.end().unwrap();
    let pad = playing.0.by_name("end").unwrap().static_pad("sink").unwrap();
    let mut latency = gst::query::Latency::new();
    assert!(playing.0.query(&mut latency));
    let (is_live, least, _) = latency.result();
    assert!(is_live && least >= gst::ClockTime::from_mseconds(300), "{least}");
    let before: gst::Structure = playing.filter().property("stats");
    let qos = |stats: &gst::Structure| -> u64 {
        stats.get::<gst::Structure>("sink_0").unwrap().get("qos").unwrap()
    };
    let late = gst::event::Qos::new(gst::QOSType::Underflow, 1.1, 5, gst::ClockTime::ZERO);
    pad.push_event(late);
    assert_eq!(playing.stop("sink_0").qos, qos(&before) + 1);
}

#[test]
fn mistakes_name_the_property_and_the_remedy() {
    let line = format!("{} ! selvedge name=s rate=9 sink_0::to=127.0.0.1:9 ! fakesink", noise(1));
    assert!(Playing::play(&line).end().unwrap_err().contains("leave it out"));
    let line = format!("{} ! selvedge name=s ! fakesink", noise(1));
    assert!(Playing::play(&line).end().unwrap_err().contains("property \"rate\" is 0"));
}
