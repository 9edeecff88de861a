//! Frames of a real clip go from a camera through a node to a viewer, in Rust, C and Python, and come out as they went in.
//! Programs that are killed harm nobody else. Needs `cc`, Python and FFmpeg.

#[allow(dead_code)]
#[path = "../../examples/camera.rs"]
mod camera;
#[allow(dead_code)]
#[path = "../../examples/viewer.rs"]
mod viewer;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use selvedge_comm_frames::{Camera, ConnectError, Counts, FrameInfo, FrameKind, Viewer};
use selvedge_control_config::view::{NodeView, StreamState};
use selvedge_node::{Node, NodeOptions};
use selvedge_tests_wait::until;
use selvedge_units::Duration;

const FRAMES: usize = 120;
const PERIOD_US: &str = "20000";
const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// A node with one stream from programs to programs, and a file of frames.
struct Bench {
    folder: tempfile::TempDir,
    node: Node,
    frames: Vec<Vec<u8>>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let frames = access_units(folder.path());
        let listed: Vec<u8> = frames.iter().flat_map(|frame| listed(frame)).collect();
        std::fs::write(folder.path().join("frames"), listed).unwrap();
        let text = "[link.up]\nrate = \"50 Mbit/s\"\n[stream.cam]\nperiod = \"20 ms\"\ndelay = \"20 s\"\n\
                    source = \"shm:cam.sock?encoding=H264&bitrate=4 Mbit/s\"\nto = \"shm:view.sock\"\n";
        let (base, file) = (folder.path().to_owned(), "own.toml".to_owned());
        let node = Node::start(text, NodeOptions { base, file, ..NodeOptions::default() });
        Self { node: node.unwrap(), folder, frames }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn camera_args(&self) -> [String; 4] {
        [self.path("cam.sock"), "H264".to_owned(), self.path("frames"), PERIOD_US.to_owned()]
    }

    fn viewer_args(&self, file: &str) -> [String; 3] {
        [self.path("view.sock"), self.path(file), FRAMES.to_string()]
    }

    fn until_listening(&self) {
        until("it listens", || Path::new(&self.path("view.sock")).exists());
    }

    /// Programs of another language, made by `command` from `camera` or `viewer`.
    fn pass(&self, command: impl Fn(&str) -> Command) {
        self.until_listening();
        let mut viewer = start(command("viewer").args(self.viewer_args("seen")));
        let camera = start(command("camera").args(self.camera_args())).0.wait().unwrap();
        assert!(camera.success() && viewer.0.wait().unwrap().success());
        self.check("seen");
    }

    fn check(&self, file: &str) {
        let seen = std::fs::read(self.path(file)).unwrap();
        assert!(seen == std::fs::read(self.path("frames")).unwrap(), "{} bytes", seen.len());
    }

    fn state(&self) -> StreamState {
        self.node.snapshot().streams[0].state
    }
}

fn listed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes(), frame].concat()
}

/// The first access units of a clip, each from its delimiter to the next.
fn access_units(folder: &Path) -> Vec<Vec<u8>> {
    let clip = Path::new(CRATE).join("../../../clips/one-by-one-person-detection.mp4");
    let file = folder.join("clip.h264");
    let count = FRAMES.to_string();
    let args = ["-an", "-c:v", "copy", "-frames:v", &count, "-bsf:v"];
    let ready = Command::new("ffmpeg")
        .args(["-v", "error", "-y", "-i"])
        .arg(clip)
        .args(args)
        .arg("h264_mp4toannexb,h264_metadata=aud=insert")
        .arg(&file)
        .status();
    assert!(ready.unwrap().success());
    let bytes = std::fs::read(file).unwrap();
    let starts: Vec<usize> =
        (0..bytes.len()).filter(|&at| bytes[at..].starts_with(&[0, 0, 0, 1, 9])).collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let units: Vec<_> =
        starts.iter().zip(ends).map(|(&from, to)| bytes[from..to].to_vec()).collect();
    assert_eq!(units.len(), FRAMES);
    units
}

/// A program that is killed with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program; a viewer has connected when this returns.
fn start(command: &mut Command) -> Started {
    let mut child =
        command.stdout(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let is_viewer = format!("{command:?}").contains("view.sock");
    if is_viewer {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "connected\n");
    }
    Started(child)
}

/// A library that was built along with this test.
fn library(end: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let all =
        [deps, deps.parent().unwrap()].into_iter().flat_map(|folder| folder.read_dir().unwrap());
    let named = all.flatten().filter(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.starts_with("libselvedge_frames") && name.ends_with(end)
    });
    let newest = named.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("cargo builds the libraries for this test").path()
}

fn python(program: &str) -> Command {
    let mut command = Command::new("python3");
    command.arg("-B").arg(Path::new(CRATE).join("../python").join(format!("{program}.py")));
    command.env("SELVEDGE_FRAMES_LIBRARY", library(".so"));
    command
}

#[test]
fn frames_pass_from_rust_to_rust() {
    let bench = Bench::new();
    bench.until_listening();
    let (sender, connected) = mpsc::channel();
    let args = bench.viewer_args("seen");
    let viewer = std::thread::spawn(move || {
        viewer::run(&args, move || sender.send(()).unwrap()).map_err(|error| error.to_string())
    });
    connected.recv().unwrap();
    let written = camera::run(&bench.camera_args()).unwrap();
    let read = viewer.join().unwrap().unwrap();
    bench.check("seen");
    let mut spans: Vec<u64> =
        written.iter().zip(&read).map(|(from, to)| to.since(*from).0 / 1000).collect();
    spans.sort_unstable();
    println!("write to read: median {} us, longest {} us", spans[FRAMES / 2], spans[FRAMES - 1]);
}

#[test]
fn frames_pass_from_c_to_c() {
    let bench = Bench::new();
    let compiled = |program: &str| {
        let to = bench.folder.path().join(program);
        let done = Command::new("cc")
            .args(["-std=c99", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
            .arg(Path::new(CRATE).join("include"))
            .arg(Path::new(CRATE).join("examples").join(format!("{program}.c")))
            .arg(library(".a"))
            .args(["-lpthread", "-ldl", "-lm", "-o"])
            .arg(&to)
            .status();
        assert!(done.unwrap().success());
        Command::new(to)
    };
    bench.pass(compiled);
}

#[test]
fn frames_pass_from_python_to_python() {
    Bench::new().pass(python);
}

#[test]
fn killed_programs_harm_nobody_else() {
    let bench = Bench::new();
    bench.until_listening();
    let camera_path = bench.path("cam.sock");
    let mut watching = Viewer::connect(Path::new(&bench.path("view.sock"))).unwrap();
    let mut doomed = start(python("viewer").args(bench.viewer_args("other")));
    let mut first = start(python("camera").args(bench.camera_args()));
    let (mut frame, mut read) = (Vec::new(), 0);
    let mut next = |watching: &mut Viewer| {
        let info = watching.read(Duration::from_secs(60), &mut frame).unwrap().unwrap();
        assert_eq!(frame, bench.frames[read % FRAMES], "frame {read}");
        (info, read += 1).0
    };
    let info = next(&mut watching);
    assert!((info.kind, info.is_decodable) == (FrameKind::Key, true), "{info:?}");
    // A second camera is refused, with the reason.
    match Camera::connect(Path::new(&camera_path), "H264") {
        Err(ConnectError::Refused(why)) => assert!(why.contains("another camera"), "{why}"),
        other => panic!("{other:?}"),
    }
    doomed.0.kill().unwrap();
    for _ in 0..10 {
        next(&mut watching);
    }
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    until("the node notices", || bench.state() == StreamState::Retrying);
    // All that it wrote before comes, and then what another camera writes.
    let rest =
        std::iter::from_fn(|| watching.read(Duration::from_millis(300), &mut Vec::new()).unwrap());
    let _ = rest.count();
    let mut second = Camera::connect(Path::new(&camera_path), "h264").unwrap();
    let counts = second.counts();
    assert!(counts.taken >= 11 && counts.taken < FRAMES as u64, "{counts:?}");
    second.write(FrameInfo::default(), &bench.frames[0]).unwrap();
    let info = watching.read(Duration::from_secs(60), &mut frame).unwrap().unwrap();
    assert!(frame == bench.frames[0] && info.is_decodable, "{info:?}");
    assert_eq!(bench.state(), StreamState::Running);
    let sent = |Counts { taken, sent, dropped, decodable, .. }| {
        taken == counts.taken + 1 && [sent, decodable] == [taken; 2] && dropped == 0
    };
    until("the camera sees the fate of all frames", || sent(second.counts()));
    // The node goes: both see that.
    drop(bench.node);
    assert!(watching.read(Duration::from_secs(60), &mut frame).is_err());
    until("the camera sees it", || !second.is_connected());
}

#[test]
fn the_header_declares_every_function_and_no_other() {
    let names = |text: &str, from: &[&str]| -> std::collections::BTreeSet<String> {
        let lines = text.lines().filter(|line| from.iter().any(|word| line.starts_with(word)));
        let named = lines.filter_map(|line| {
            let before = &line[..line.find('(')?];
            Some(before[before.rfind("selvedge_")?..].to_owned())
        });
        named.collect()
    };
    let declared =
        names(include_str!("../include/selvedge_frames.h"), &["int ", "void ", "const char"]);
    let defined = names(include_str!("../src/lib.rs"), &["pub unsafe extern", "pub extern"]);
    assert_eq!(declared, defined);
    assert_eq!(declared.len(), 11);
}
