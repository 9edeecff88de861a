//! What a stream of a media file costs the machine that serves it: a coprocessor that reads a packed file (path C of
//! NI coprocessors, section 2.2.1), beside nginx, which sends the same file by `sendfile` at the file's own rate,
//! and beside FFmpeg, a process for each stream. All go over the loopback, whose receiving half counts for the sender.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use selvedge_control_config::LinkConfig;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::{Contract, Spec, Window};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::client::{Attachment, ClientError, Program};
use selvedge_place_coprocessor::server::default_socket;
use selvedge_units::{Bitrate, Bytes, Duration};

/// Why files can't be served.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// The file can't be packed.
    #[error("{0} can't pack the file; build it: cargo build --release -p selvedge")]
    Pack(String),
    /// The coprocessor's.
    #[error("the coprocessor: {0}")]
    Coprocessor(#[from] ClientError),
    /// A program or a socket.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        why: std::io::Error,
    },
}

fn system(what: &'static str) -> impl FnOnce(std::io::Error) -> FilesError {
    move |why| FilesError::System { what, why }
}

/// Who serves the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// A coprocessor that reads a packed file for each stream.
    Coprocessor,
    /// nginx with one worker, a connection for each stream.
    Nginx,
    /// A process of FFmpeg for each stream, which copies packets without encoding.
    Ffmpeg,
}

/// A media file to serve: a copy that is packed, in a folder that goes with this value.
#[derive(Debug)]
pub struct Serving {
    folder: PathBuf,
    name: String,
    /// How long it plays.
    plays: Duration,
    /// What it needs.
    pub rate: Bitrate,
}

impl Serving {
    /// Copies and packs a file, by `selvedge` beside this program.
    ///
    /// # Errors
    /// [`FilesError::Pack`], [`FilesError::System`].
    pub fn prepare(file: &Path) -> Result<Self, FilesError> {
        let folder = std::env::temp_dir().join(format!("selvedge-files-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(system("a folder"))?;
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let mut new = Self { folder, name, plays: Duration::ZERO, rate: Bitrate(0) };
        let length = fs::copy(file, new.file()).map_err(system("a copy of the file"))?;
        let own = std::env::current_exe().map_err(system("this program's path"))?;
        let program = own.with_file_name("selvedge");
        let packed = || FilesError::Pack(program.display().to_string());
        let ended = Command::new(&program).args(["pack", "--json"]).arg(new.file()).output();
        let ended = ended.map_err(|_| packed())?;
        let said: serde_json::Value =
            serde_json::from_slice(&ended.stdout).map_err(|_| packed())?;
        new.plays = Duration((said["plays_ms"].as_f64().ok_or_else(packed)? * 1e6) as u64);
        new.rate = Bytes(length) / new.plays;
        Ok(new)
    }

    fn file(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// The part of a processor that one of so many streams takes, measured for so long.
    ///
    /// # Errors
    /// [`FilesError`]; nothing runs then.
    pub fn measure(
        &self,
        server: Server,
        streams: usize,
        lasts: Duration,
    ) -> Result<f64, FilesError> {
        let all = match server {
            Server::Coprocessor => self.coprocessor(streams, lasts),
            Server::Nginx => self.nginx(streams, lasts),
            Server::Ffmpeg => self.ffmpeg(streams, lasts),
        }?;
        Ok(all / streams as f64)
    }

    fn coprocessor(&self, streams: usize, lasts: Duration) -> Result<f64, FilesError> {
        let sink = UdpSocket::bind("127.0.0.1:0").map_err(system("a socket"))?;
        let to = sink.local_addr().map_err(system("a socket's address"))?;
        let link = LinkConfig {
            burst: Bytes(64_000),
            ..LinkConfig::new("files", Bitrate::from_mbps(10_000), Discipline::Dwcs)
        };
        let socket = default_socket(&format!("files-{}", std::process::id()));
        let program = Program::new(&link, socket.clone(), &["--class", "fair"]);
        let attachment = Attachment::new("files", socket, Some(program))?;
        let window = Window { lose: 1, of: 10 };
        let contract = Contract {
            delay: Some(Duration::from_millis(100)),
            ..Contract::new(Duration::from_millis(33), window)
        };
        let pack = format!("{}.pack", self.file().display());
        for n in 0..streams {
            let spec = Spec::new(&format!("file{n}"), to).with_contract(contract);
            attachment.read(spec, (&pack, true), n as u32 + 1, None)?;
        }
        Ok(share_of(&[attachment.link().pid], lasts))
    }

    fn nginx(&self, streams: usize, lasts: Duration) -> Result<f64, FilesError> {
        let at = free_port().map_err(system("a port"))?;
        let rate = self.rate.0 / 8;
        let folder = self.folder.display();
        let text = format!(
            "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n\
             events {{ worker_connections 4096; }}\n\
             http {{ access_log off; sendfile on; client_body_temp_path {folder}/body;\n\
             proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;\n\
             uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;\n\
             server {{ listen {at}; root {folder}; limit_rate {rate}; }} }}\n"
        );
        let config = self.folder.join("nginx.conf");
        fs::write(&config, text).map_err(system("nginx's file"))?;
        let mut command = Command::new("nginx");
        command.arg("-c").arg(&config).stderr(Stdio::null());
        let server = Running(command.spawn().map_err(system("nginx"))?);
        for _ in 0..streams {
            let name = self.name.clone();
            thread::spawn(move || fetch(at, &name, lasts));
        }
        Ok(share_of(&[server.0.id()], lasts))
    }

    fn ffmpeg(&self, streams: usize, lasts: Duration) -> Result<f64, FilesError> {
        let sink = UdpSocket::bind("127.0.0.1:0").map_err(system("a socket"))?;
        let to = sink.local_addr().map_err(system("a socket's address"))?;
        let mut all = Vec::new();
        for _ in 0..streams {
            let mut command = Command::new("ffmpeg");
            command.args(["-nostdin", "-v", "error", "-re", "-stream_loop", "-1", "-i"]);
            command.arg(self.file()).args(["-map", "0:v:0", "-c", "copy", "-f", "rtp"]);
            command.arg(format!("rtp://{to}")).stdout(Stdio::null()).stderr(Stdio::null());
            all.push(Running(command.spawn().map_err(system("ffmpeg"))?));
        }
        let ids: Vec<_> = all.iter().map(|one| one.0.id()).collect();
        Ok(share_of(&ids, lasts))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Only what the measurement made.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The part of a processor that processes take, after a second in which they begin.
fn share_of(processes: &[u32], lasts: Duration) -> f64 {
    let all = || processes.iter().map(|&id| processor_time(id).0).sum::<u64>();
    let clock = Clock::shared();
    clock.sleep_until(clock.now() + Duration::from_secs(1));
    let before = all();
    clock.sleep_until(clock.now() + lasts);
    all().saturating_sub(before) as f64 / lasts.0 as f64
}

/// A process that ends with this value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// Gets a file again and again for so long, and keeps nothing of it.
fn fetch(at: SocketAddr, name: &str, lasts: Duration) {
    let clock = Clock::shared();
    let ends = clock.now() + lasts + Duration::from_secs(3);
    let mut bytes = [0; 16 << 10];
    while clock.now() < ends {
        let Ok(mut stream) = TcpStream::connect(at) else {
            // The server is beginning, or has ended.
            clock.sleep_until(clock.now() + Duration::from_millis(20));
            continue;
        };
        let request = format!("GET /{name} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
        if stream.write_all(request.as_bytes()).is_ok() {
            while stream.read(&mut bytes).is_ok_and(|read| read > 0) {}
        }
    }
}

/// What all threads of a process have run, by the kernel's own count.
fn processor_time(process: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let ran = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    Duration(tasks.filter_map(ran).sum())
}
