//! Whole-program tests: the `selvedge` command as a child process, folders and ports of a test's
//! own. Every wait is for a condition and has a deadline; a child that is left is ended by its id.

// Each test program uses a part of this.
#![allow(dead_code)]

pub(crate) mod help;
pub(crate) mod http;
pub(crate) mod wire;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Read;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use selvedge_tests_wait::holds_within;
pub(crate) use selvedge_tests_wait::until;
use serde_json::Value;

/// For what takes no time of its own, on a machine with much else to do.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A clip that comes with the project.
pub(crate) fn clip(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clips").join(name)
}

/// The first bytes of a clip, its length left open as by who writes into a pipe: only an index knows
/// more.
pub(crate) fn beginning_of(name: &str, len: usize) -> Vec<u8> {
    let mut bytes = std::fs::read(clip(name)).expect("the clip is there");
    match bytes.windows(4).position(|word| word == b"mdat") {
        Some(media) => bytes[media - 4..media].fill(0),
        None => {
            assert_eq!(&bytes[..4], b"RIFF");
            bytes[4..8].fill(0xff);
        }
    }
    bytes.truncate(len);
    bytes
}

/// The clip with all kinds of frames: 1394 of them, 10 a second, 140 I, 434 P, 820 B.
pub(crate) const CORRIDOR: &str = "one-by-one-person-detection.mp4";

/// A folder of a test's own, removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("the build's folder can be written");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).expect("the folder can be written");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A stream of a node file.
pub(crate) struct Stream<'a> {
    pub(crate) name: &'a str,
    pub(crate) source: String,
    pub(crate) to: std::net::SocketAddr,
    /// More lines of its table.
    pub(crate) more: &'a str,
}

/// The text of a node file with one link, whose page is at any free port.
pub(crate) fn node_file(link: &str, streams: &[Stream<'_>]) -> String {
    let mut text =
        format!("[node]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\n[link.uplink]\n{link}\n");
    for Stream { name, source, to, more } in streams {
        let _ = writeln!(
            text,
            "[stream.{name}]\nsource = '{source}'\nto = \"rtp://{to}\"\nthumbnail = false\n{more}"
        );
    }
    text
}

/// A node that sends the corridor's clip there as its stream `lecture`, over an ample link, and where
/// its page is.
pub(crate) fn lecture(folder: &Folder, to: std::net::SocketAddr, more: &str) -> (Running, String) {
    let source = file_source(&clip(CORRIDOR), true);
    let stream = Stream { name: "lecture", source, to, more };
    let path = folder.write("node.toml", node_file("rate = \"20 Mbit/s\"", &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
    let page = node.page();
    (node, page)
}

/// Lets that node send some more frames.
pub(crate) fn some_frames(page: &str) {
    let sent = || http::stream(page, "lecture")["sent"].as_u64().expect("a count");
    let before = sent();
    until("frames are sent", || sent() >= before + 30);
}

/// The source that is this file.
pub(crate) fn file_source(path: &Path, repeat: bool) -> String {
    format!("file:{}{}", path.display(), if repeat { "?loop" } else { "" })
}

/// A port that was free a moment ago, of those that the system gives to nobody who does not ask for one.
pub(crate) fn free_port() -> std::net::SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(16);
    let mut candidates = std::iter::repeat_with(|| {
        let number = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        std::net::SocketAddr::from(([127, 0, 0, 1], 10_000 + (number % 22_000) as u16))
    });
    let is_free = |at: &std::net::SocketAddr| {
        std::net::UdpSocket::bind(at).is_ok() && std::net::TcpListener::bind(at).is_ok()
    };
    candidates.by_ref().take(22_000).find(is_free).expect("not all ports are taken")
}

/// Starts `play` and waits until it listens.
pub(crate) fn play(args: &[&str], at: std::net::SocketAddr) -> Running {
    let mut play = Running::selvedge(["play", "--json"].iter().chain(args));
    play.until("listens", |_| udp_is_bound(at));
    play
}

/// What `play` says of its only stream once it is asked to stop.
pub(crate) fn played(play: Running) -> Value {
    play.signal("INT");
    let json = play.end(TIMEOUT).json();
    let streams = json["streams"].as_object().expect("an object");
    assert_eq!(streams.len(), 1, "{json}");
    streams.values().next().expect("it is there").clone()
}

/// The packets of a recording in rtpdump format: milliseconds since its beginning, and what came.
pub(crate) fn rtpdump(bytes: &[u8], to: std::net::SocketAddr) -> Vec<(u32, Vec<u8>)> {
    let first = format!("#!rtpplay1.0 {}/{}\n", to.ip(), to.port());
    assert!(bytes.starts_with(first.as_bytes()), "{:?}", bytes.get(..first.len()));
    let mut rest = &bytes[first.len() + 16..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let payload = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        assert_eq!(length, payload + 8, "whole packets");
        assert_eq!(rest[8] >> 6, 2, "RTP version 2");
        let at = u32::from_be_bytes([rest[4], rest[5], rest[6], rest[7]]);
        packets.push((at, rest[8..length].to_vec()));
        rest = &rest[length..];
    }
    packets
}

/// A receiver that never reads: a port that is taken, so that packets have somewhere to go.
pub(crate) fn sink() -> (UdpSocket, std::net::SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("the loopback has a free port");
    let address = socket.local_addr().expect("it is bound");
    (socket, address)
}

/// How long after `add` was begun the first packet came to this receiver.
pub(crate) fn first_packet(receiver: &UdpSocket, add: impl FnOnce()) -> Duration {
    receiver.set_read_timeout(Some(TIMEOUT)).expect("not zero");
    let began = Instant::now();
    std::thread::scope(|scope| {
        let came = scope.spawn(|| receiver.recv(&mut [0; 2048]).map(|_| began.elapsed()));
        add();
        came.join().expect("no panic").expect("a packet comes")
    })
}

/// A command to start this program, which ends with the thread that started it: a test program
/// that is killed leaves nobody behind.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", name]);
    command
}

/// A program that runs, and what it has said so far.
pub(crate) struct Running {
    child: Child,
    said: [Arc<Mutex<Vec<u8>>>; 2],
    readers: Vec<JoinHandle<()>>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Exit status; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// What it printed, as JSON; it must have succeeded.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.code, Some(0), "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// It refused its input: status 2, nothing on standard output, every word of these said.
    pub(crate) fn refused(&self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no \"{word}\" in: {self:?}");
        }
    }
}

impl Running {
    /// Starts `selvedge` with these arguments.
    pub(crate) fn selvedge(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        // The laboratory's tests use this file, too, and have no such program.
        let Some(selvedge) = option_env!("CARGO_BIN_EXE_selvedge") else {
            panic!("only tests of the package selvedge run it")
        };
        Self::start(program(selvedge).args(args).env_remove("SELVEDGE_LOG"))
    }

    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let said = [Arc::default(), Arc::default()];
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        let readers = vec![collect(stdout, &said[0]), collect(stderr, &said[1])];
        Self { child, said, readers }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to standard error so far.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.said[1].lock().unwrap()).into_owned()
    }

    /// What it has written to standard output so far.
    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.said[0].lock().unwrap()).into_owned()
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Sends it a signal, such as `INT`.
    pub(crate) fn signal(&self, name: &str) {
        kill(name, self.id());
    }

    /// The address of the page, once it is served.
    pub(crate) fn page(&mut self) -> String {
        let mut found = None;
        self.until("serves its page", |running| {
            let text = running.stderr();
            let line = text.lines().find(|line| line.starts_with("page: http://"));
            found = line.map(|line| line["page: http://".len()..].trim_end_matches('/').to_owned());
            found.is_some() && text.ends_with('\n')
        });
        found.expect("the wait was for it")
    }

    /// Waits until it does what is said; it must not end before.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let is_done = holds_within(TIMEOUT, || {
            // In this order: what it did last counts.
            let status = self.child.try_wait();
            let is_done = done(self);
            if let (false, Ok(Some(status))) = (is_done, status) {
                panic!("it ended ({status}) before it {what}: {}", self.stderr());
            }
            is_done
        });
        assert!(is_done, "it never {what}: {}", self.stderr());
    }

    /// Waits for its end, no longer than this.
    pub(crate) fn end(mut self, limit: Duration) -> Ended {
        let mut status = None;
        holds_within(limit, || {
            status = self.child.try_wait().expect("it is our child");
            status.is_some()
        });
        let Some(status) = status else {
            panic!("still runs after {limit:?}: {}", self.stderr());
        };
        // A program that it started may hold its output open and live longer: no wait without a bound.
        let is_read = holds_within(TIMEOUT, || self.readers.iter().all(JoinHandle::is_finished));
        assert!(is_read, "its output is still held open by another program: {}", self.stderr());
        for reader in self.readers.drain(..) {
            reader.join().expect("reading does not panic");
        }
        let text = |n: usize| String::from_utf8_lossy(&self.said[n].lock().unwrap()).into_owned();
        Ended { code: status.code(), stdout: text(0), stderr: text(1) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of no effect on one that has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The coprocessor is another package's program: `cargo test --workspace` builds it.
pub(crate) fn coprocessor_is_built(test: &str) -> bool {
    let built = option_env!("CARGO_BIN_EXE_selvedge")
        .is_some_and(|path| Path::new(path).with_file_name("selvedge-coproc").exists());
    if !built {
        skipped(test, "selvedge-coproc is not built (cargo build -p selvedge-place-coprocessor)");
    }
    built
}

/// The processes that a program has started and that run.
pub(crate) fn children(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split(' ').filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// One of this name among them.
pub(crate) fn child_named(of: u32, name: &str) -> Option<u32> {
    let is_it = |id: &u32| {
        let found = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
        found.trim_end() == name
    };
    children(of).into_iter().find(is_it)
}

pub(crate) fn kill(signal: &str, id: u32) {
    let done = Command::new("kill").args([&format!("-{signal}"), &id.to_string()]).status();
    assert!(done.is_ok_and(|done| done.success()), "no process {id}");
}

/// Runs `selvedge` to its end.
pub(crate) fn selvedge(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ended {
    Running::selvedge(args).end(TIMEOUT)
}

fn collect(mut from: impl Read + Send + 'static, into: &Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    let into = Arc::clone(into);
    std::thread::spawn(move || {
        let mut buffer = [0; 8192];
        while let Ok(len) = from.read(&mut buffer)
            && len > 0
        {
            into.lock().unwrap().extend_from_slice(&buffer[..len]);
        }
    })
}

/// Says, past the harness, which hides what a passing test prints, that a test was not run.
pub(crate) fn skipped(test: &str, why: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = std::io::Write::write_all(&mut stderr, format!("SKIPPED: {test}: {why}\n").as_bytes());
}

/// How often `make soak` measures anew: `SOAK_RUNS`.
pub(crate) fn soak_runs() -> usize {
    std::env::var("SOAK_RUNS").map_or(5, |runs| runs.parse().expect("SOAK_RUNS is a number"))
}

/// Runs FFmpeg to its end; false if there is none.
pub(crate) fn ffmpeg(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> bool {
    let mut command = program("ffmpeg");
    command.args(["-y", "-nostdin", "-v", "error"]).args(args);
    let there = Running::start(program("ffmpeg").arg("-version")).end(TIMEOUT);
    if there.code != Some(0) {
        return false;
    }
    let ended = Running::start(&mut command).end(TIMEOUT);
    assert_eq!(ended.code, Some(0), "{command:?}: {ended:?}");
    true
}

/// Whether somebody of this network namespace listens at this UDP address.
pub(crate) fn udp_is_bound(at: std::net::SocketAddr) -> bool {
    udp_is_bound_in(std::process::id(), at.port())
}

/// Whether somebody of this process's network namespace listens at this UDP port.
pub(crate) fn udp_is_bound_in(process: u32, port: u16) -> bool {
    let port = format!(":{port:04X}");
    let is_it =
        |line: &str| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&port));
    ["udp", "udp6"].iter().any(|table| {
        let table = std::fs::read_to_string(format!("/proc/{process}/net/{table}"));
        table.unwrap_or_default().lines().skip(1).any(is_it)
    })
}
