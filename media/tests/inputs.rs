//! Inputs whose streams appear later: demultiplexers in launch lines, and the network by name.

#![cfg(feature = "gstreamer")]

#[path = "../../tests/cameras/mod.rs"]
mod cameras;
mod support;

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use selvedge_control_config::SourceUri;
use selvedge_data_stream::Kind;
use selvedge_media::inspect::PAYLOAD_MAX;
use selvedge_media::{Codec, End, MediaFrame, Source, SourceError};
use selvedge_units::Duration;
use support::{Seen, open, take};

/// A folder with two seconds of a test card and a tone, by FFmpeg, in these containers.
struct Made(tempfile::TempDir);

impl Made {
    fn new() -> Self {
        let made = Self(tempfile::tempdir().unwrap());
        let picture = ["-f", "lavfi", "-i", "testsrc2=size=160x120:rate=25"];
        let sound = ["-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000"];
        let x264 = ["-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "12"];
        let mp4 = made.path("both.mp4");
        let rest = ["-c:a", "aac", "-t", "2", mp4.to_str().unwrap()];
        ffmpeg([&picture[..], &sound, &x264, &rest].concat());
        for name in ["both.ts", "both.mkv", "both.flv"] {
            let copy = ["-i", mp4.to_str().unwrap(), "-c", "copy"];
            ffmpeg([&copy[..], &[made.path(name).to_str().unwrap()]].concat());
        }
        let raw = made.path("only.h264");
        ffmpeg(vec!["-i", mp4.to_str().unwrap(), "-an", "-c", "copy", raw.to_str().unwrap()]);
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

fn ffmpeg(args: Vec<&str>) {
    let done = Command::new("ffmpeg").args(["-y", "-nostdin", "-v", "error"]).args(&args).status();
    assert!(done.as_ref().is_ok_and(|done| done.success()), "{args:?}: {done:?}");
}

/// A program that ends with the test.
struct Sender(Child);

impl Sender {
    fn ffmpeg(args: &[&str]) -> Self {
        let mut command = Command::new("ffmpeg");
        command.args(["-y", "-nostdin", "-v", "error"]).args(args).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Sends a clip over and over, as fast as it plays.
    fn looped(clip: &str, format: &str, to: &str) -> Self {
        Self::ffmpeg(&["-re", "-stream_loop", "-1", "-i", clip, "-c", "copy", "-f", format, to])
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn uri(text: &str) -> SourceUri {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Opens a source to which a peer may connect a little later.
fn open_soon(text: &str) -> Source {
    let limit = Duration::from_secs(5);
    selvedge_tests_wait::until_some(text, || {
        let opened = Source::open_within(
            &uri(text),
            Path::new(""),
            PAYLOAD_MAX,
            limit,
            &AtomicBool::new(false),
        );
        opened.inspect_err(|error| println!("{error}")).ok()
    })
}

/// Pictures that begin with one that needs no other.
fn is_whole(frames: &[Seen], most: usize) -> bool {
    frames.len() == most && frames[0].picture.kind == Kind::Intra
}

#[test]
fn launch_lines_work_with_pads_that_come_later() {
    let made = Made::new();
    let (mp4, ts, mkv) = (made.shown("both.mp4"), made.shown("both.ts"), made.shown("both.mkv"));
    for line in [
        format!("filesrc location={mp4} ! qtdemux ! h264parse"),
        format!("filesrc location={mp4} ! qtdemux name=d d.video_0 ! queue ! h264parse"),
        format!("filesrc location={mp4} ! qtdemux"),
        format!("filesrc location={mp4} ! parsebin"),
        format!("filesrc location={ts} ! tsdemux ! h264parse"),
        format!("filesrc location={ts} ! tsparse ! tsdemux"),
        format!("filesrc location={mkv} ! matroskademux ! h264parse"),
        format!("uridecodebin uri=file://{mp4} ! videoconvert ! x264enc key-int-max=12"),
    ] {
        let mut source = open(&uri(&format!("launch:{line}"))).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(source.info().codec, Codec::H264, "{line}");
        let (frames, _) = take(&mut source, 40);
        assert!(is_whole(&frames, 40), "{line}: {} frames", frames.len());
    }
}

#[test]
fn a_launch_line_without_an_end_still_says_so() {
    for line in ["videotestsrc ! fakesink", "filesrc location=x ! fakesink"] {
        let error = open(&uri(&format!("launch:{line}"))).unwrap_err();
        assert!(error.to_string().contains("nothing comes out"), "{line}: {error}");
    }
}

#[test]
fn a_transport_stream_in_datagrams_is_taken_by_name_and_by_line() {
    let made = Made::new();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let ts = made.shown("both.ts");
    let to = format!("udp://127.0.0.1:{port}?pkt_size=1316");
    let _sender = Sender::looped(&ts, "mpegts", &to);
    for source in [
        format!("udp://127.0.0.1:{port}"),
        format!("launch:udpsrc port={port} ! tsdemux ! h264parse"),
        format!("launch:udpsrc port={port} ! parsebin"),
    ] {
        let mut source = open_soon(&source);
        assert_eq!(source.info().codec, Codec::H264);
        assert!(is_whole(&take(&mut source, 20).0, 20));
    }
}

#[test]
fn a_source_of_rare_pictures_is_not_given_up_between_two() {
    let made = Made::new();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let to = format!("udp://127.0.0.1:{port}?pkt_size=1316");
    let sender = Sender::looped(&made.shown("both.ts"), "mpegts", &to);
    let mut source = open_soon(&format!("udp://127.0.0.1:{port}"));
    source.expect_period(Duration::from_secs(4));
    // Longer than other sources may be silent.
    let signal = |name| {
        let id = sender.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    };
    signal("STOP");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| source.run(&mut |_: MediaFrame<'_>| {}, &stop));
        let began = Instant::now();
        selvedge_tests_wait::until("it was silent for 6 s, or gave up", || {
            began.elapsed().as_secs() >= 6 || runs.is_finished()
        });
        assert!(!runs.is_finished(), "{:?}", runs.join());
        signal("CONT");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(runs.join().unwrap(), Ok(End::Stopped));
    });
}

#[test]
fn srt_is_taken_by_name_and_by_line() {
    let made = Made::new();
    let ts = made.shown("both.ts");
    for form in [
        "srt://127.0.0.1:PORT?mode=caller",
        "launch:srtsrc uri=srt://127.0.0.1:PORT ! tsdemux ! h264parse",
    ] {
        let port = free_port();
        let to = format!("srt://127.0.0.1:{port}?mode=listener");
        let _sender = Sender::looped(&ts, "mpegts", &to);
        let mut source = open_soon(&form.replace("PORT", &port.to_string()));
        assert_eq!(source.info().codec, Codec::H264, "{form}");
        assert!(is_whole(&take(&mut source, 20).0, 20), "{form}");
    }
}

/// nginx with its RTMP module, at this port.
fn rtmp_server(folder: &Path, port: u16) -> Sender {
    let shown = folder.display();
    let text = format!(
        "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;\ndaemon off; master_process off;\n\
         pid {shown}/pid; error_log {shown}/log;\nevents {{}}\n\
         rtmp {{ server {{ listen 127.0.0.1:{port}; application live {{ live on; }} }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(file).arg("-p").arg(folder).stderr(Stdio::null());
    Sender(command.spawn().unwrap())
}

#[test]
fn rtmp_is_taken_by_name() {
    let made = Made::new();
    let (flv, port) = (made.shown("both.flv"), free_port());
    let _server = rtmp_server(made.0.path(), port);
    let address = format!("127.0.0.1:{port}");
    selvedge_tests_wait::until("the server listens", || TcpStream::connect(&address).is_ok());
    let to = format!("rtmp://{address}/live/one");
    let _sender = Sender::looped(&flv, "flv", &to);
    let mut source = open_soon(&to);
    assert_eq!(source.info().codec, Codec::H264);
    assert!(is_whole(&take(&mut source, 20).0, 20));
}

#[test]
fn a_camera_gives_its_first_frame_within_a_second_and_no_login_is_shown() {
    let program = match cameras::program() {
        Ok(program) => program,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let made = Made::new();
    let port = free_port();
    let line = cameras::loop_of(&made.path("only.h264"));
    let camera = cameras::Camera::start(Command::new(program), "127.0.0.1", port, "me:w%rd", &line);
    let at = format!("127.0.0.1:{port}/camera");
    let mut took = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        let mut source = open(&uri(&format!("rtsp://me:w%25rd@{at}"))).unwrap();
        took.push(began.elapsed());
        assert_eq!((source.info().codec, source.info().width), (Codec::H264, Some(160)));
        assert!(is_whole(&take(&mut source, 10).0, 10));
    }
    println!("first units after {took:?}");
    let by_line = format!(
        "launch:rtspsrc location=rtsp://me:w%25rd@{at} protocols=tcp ! rtph264depay ! h264parse"
    );
    assert_eq!(open(&uri(&by_line)).unwrap().info().codec, Codec::H264);
    let refused = [
        format!("rtsp://me:wrong@{at}"),
        format!("launch:rtspsrc location=rtsp://me:wrong@{at} ! rtph264depay ! h264parse"),
        format!("launch:rtspsrc location=rtsp://me:wrong@{at} ! ! h264parse"),
    ];
    for text in refused {
        let error = open(&uri(&text)).unwrap_err();
        let shown = format!("{error} {error:?} {:?}", uri(&text).to_string());
        assert!(!shown.contains("wrong"), "{shown}");
    }
    drop(camera);
    let error = open(&uri(&format!("rtsp://me:wrong@{at}"))).unwrap_err();
    assert!(matches!(error, SourceError::Unreachable { .. }), "{error}");
    took.sort();
    assert!(took[2].as_millis() < 1000, "{took:?}");
}

#[test]
fn parameter_sets_that_stand_only_in_a_description_are_used() {
    let made = Made::new();
    let (mp4, sdp) = (made.shown("both.mp4"), made.shown("only.sdp"));
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let to = format!("rtp://127.0.0.1:{port}");
    // From MP4, FFmpeg leaves them out of the packets.
    let _sender = Sender::ffmpeg(&[
        "-re",
        "-stream_loop",
        "-1",
        "-i",
        &mp4,
        "-an",
        "-c",
        "copy",
        "-f",
        "rtp",
        "-sdp_file",
        &sdp,
        &to,
    ]);
    selvedge_tests_wait::until("the description is written", || {
        std::fs::read_to_string(&sdp).is_ok_and(|text| text.contains("sprop-parameter-sets"))
    });
    let mut source = open(&uri(&format!("sdp:{sdp}"))).unwrap();
    assert_eq!(source.info().codec, Codec::H264);
    let (frames, _) = take(&mut source, 20);
    let sets = |packet: &Vec<u8>| packet[12] & 0x1f == 7;
    assert!(frames.iter().any(|frame| frame.packets.iter().any(sets)), "no parameter sets");
}

#[test]
fn what_a_description_says_of_aac_is_handed_on() {
    let made = Made::new();
    let path = made.path("sound.sdp");
    let text = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=sound\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n\
        m=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/44100/2\r\n\
        a=fmtp:97 profile-level-id=2;mode=AAC-hbr;sizelength=13;indexlength=3;indexdeltalength=3; \
        config=1210\r\n";
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::write(&path, text.replace("audio 0", &format!("audio {port}"))).unwrap();
    let source = open(&uri(&format!("sdp:{}", made.shown("sound.sdp")))).unwrap();
    let fmtp = source.info().fmtp.as_deref().unwrap_or_default();
    for said in ["profile-level-id=2", "mode=AAC-hbr", "config=1210", "sizelength=13"] {
        assert!(fmtp.split(';').any(|part| part == said), "no {said} in \"{fmtp}\"");
    }
}

#[test]
fn a_description_that_is_wrong_says_so() {
    let made = Made::new();
    let write = |text: &str| {
        std::fs::write(made.path("wrong.sdp"), text).unwrap();
        open(&uri(&format!("sdp:{}", made.shown("wrong.sdp")))).unwrap_err()
    };
    assert!(matches!(write("hello"), SourceError::Description { .. }));
    let other = "v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\na=rtpmap:96 theora/90000\n";
    assert!(write(other).to_string().contains("encoding=theora"));
    let absent = open(&uri("sdp:/no/such.sdp")).unwrap_err();
    assert!(matches!(absent, SourceError::NotFound { .. }), "{absent}");
}
