//! RTSP cameras for tests, each a process of GStreamer's own server; see `camera.c`, which is built here.

// Not every test program needs all of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The program of all cameras, built once; `Err` says what is missing.
pub(crate) fn program() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref().map_err(String::as_str)
}

fn build() -> Result<PathBuf, String> {
    let source = Path::new(file!()).with_file_name("camera.c");
    // Paths of sources begin at the workspace, and tests run in their package.
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|folder| folder.join(&source))
        .find(|path| path.exists())
        .ok_or("camera.c is not there")?;
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("camera-{}", std::process::id()));
    let flags = Command::new("pkg-config")
        .args(["--cflags", "--libs", "gstreamer-rtsp-server-1.0"])
        .output()
        .map_err(|error| format!("pkg-config: {error}"))?;
    if !flags.status.success() {
        return Err("needs libgstrtspserver-1.0-dev".into());
    }
    let flags = String::from_utf8_lossy(&flags.stdout).into_owned();
    let built = Command::new("cc")
        .args([Path::new("-o"), &program, &source])
        .args(flags.split_whitespace())
        .status()
        .map_err(|error| format!("cc: {error}"))?;
    if built.success() { Ok(program) } else { Err(format!("cc: {built}")) }
}

/// A camera at work; ended when dropped.
pub(crate) struct Camera(Child);

impl Camera {
    /// Starts one at `rtsp://HOST:PORT/camera`, by this command in front of the program's name. It
    /// listens when this returns. `login` is `USER:PASSWORD` or empty; `line` ends in `pay0`.
    pub(crate) fn start(mut on: Command, host: &str, port: u16, login: &str, line: &str) -> Self {
        let child = on.args([host, &port.to_string(), login, line]).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{on:?}: {error}"));
        let mut said = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut said).expect("it says that it listens");
        assert_eq!(said, "listens\n", "the camera at {host}:{port} did not start");
        Self(child)
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What makes a camera show this file again and again: H.264 as FFmpeg writes it to `.h264`, with 25
/// pictures a second.
pub(crate) fn loop_of(file: &Path) -> String {
    format!(
        "( multifilesrc location={} loop=true \
         caps=video/x-h264,stream-format=byte-stream,framerate=25/1 ! h264parse ! \
         rtph264pay name=pay0 pt=96 )",
        file.display()
    )
}
