//! RTMP with TLS to nginx behind its own TLS proxy, and over a way that loses segments, which TCP sends again.

#![cfg(feature = "gstreamer")]

#[path = "../../tests/hosts/mod.rs"]
#[allow(dead_code, reason = "other tests cut hosts off")]
mod hosts;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use selvedge_control_config::view::NodeView;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_units::Duration;

/// No slowness of the machine takes so long.
const SOON: Duration = Duration::from_secs(60);
/// The folder of a node in a process of its own.
const RUNS: &str = "SELVEDGE_TEST_RUNS";

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn done(command: &mut Command) {
    let done = command.stderr(Stdio::null()).stdout(Stdio::null()).status();
    assert!(done.as_ref().is_ok_and(|done| done.success()), "{command:?}: {done:?}");
}

/// A folder with a clip by FFmpeg: moving noise, 25 pictures a second, a second a group, and sound.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let card = "testsrc2=size=320x240:rate=25,noise=alls=20:allf=t";
    let sound = "sine=frequency=440:sample_rate=48000";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-y", "-nostdin", "-f", "lavfi", "-i", card, "-f", "lavfi", "-i", sound]);
    ffmpeg.args([
        "-c:a",
        "aac",
        "-c:v",
        "libx264",
        "-preset",
        "ultrafast",
        "-g",
        "25",
        "-b:v",
        "1M",
    ]);
    done(ffmpeg.args(["-t", "8"]).arg(folder.path().join("clip.mp4")));
    folder
}

/// Writes the file of a node that sends both of the clip to one server.
fn write_node(folder: &Path, rate: &str, to: &str) -> String {
    let streams = ["picture", "sound"].map(|name| {
        let of = if name == "sound" { "sound&" } else { "" };
        format!("[stream.{name}]\nsource = \"file:clip.mp4?{of}loop\"\nto = \"{to}\"\nthumbnail = false\n")
    });
    let text = format!("[link.up]\nrate = \"{rate}\"\n{}", streams.concat());
    std::fs::write(folder.join("node.toml"), &text).unwrap();
    text
}

/// Runs a node until it is killed, and prints what becomes of it; if that is what this process is for.
fn runs_until_killed() -> bool {
    let Some(folder) = std::env::var_os(RUNS).map(PathBuf::from) else { return false };
    let text = std::fs::read_to_string(folder.join("node.toml")).unwrap();
    let node = Node::start(&text, NodeOptions { base: folder, ..NodeOptions::default() }).unwrap();
    let mut last = String::new();
    wait_until(SOON, || {
        let detail = node.snapshot().streams[0].detail.clone();
        let sent = node.counts("picture").map_or(0, |counts| counts.totals.sent);
        let now = format!("sent {sent} {detail}");
        if now != last {
            println!("{now}");
            last = now;
        }
        false
    });
    true
}

/// Reads what a node prints until it has sent so many pictures.
fn until_sent(node: &mut Child, pictures: u64) {
    let lines = BufReader::new(node.stdout.as_mut().unwrap()).lines().map_while(Result::ok);
    let mut last = String::new();
    for line in lines {
        let sent = line.strip_prefix("sent ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        if sent.is_some_and(|sent: u64| sent >= pictures) {
            return;
        }
        last = line;
    }
    panic!("it ended: {last}");
}

/// nginx with RTMP at one port and TLS in front of it at another; it records what it gets.
fn server(folder: &Path, at: &str, [plain, tls]: [u16; 2]) -> String {
    let shown = folder.display();
    let key =
        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"];
    let names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
    let mut openssl = Command::new("openssl");
    openssl.args(key).args(names).args(["-keyout", "key.pem", "-out", "certificate.pem"]);
    done(openssl.current_dir(folder));
    let text = format!(
        "load_module /usr/lib/nginx/modules/ngx_rtmp_module.so;\n\
         load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n\
         user root; daemon off; master_process off; pid {shown}/pid; error_log {shown}/log;\n\
         events {{}}\n\
         rtmp {{ server {{ listen {at}:{plain}; application live {{ live on; record all; \
         record_path {shown}; record_suffix .flv; }} }} }}\n\
         stream {{ server {{ listen {at}:{tls} ssl; ssl_certificate {shown}/certificate.pem; \
         ssl_certificate_key {shown}/key.pem; proxy_pass {at}:{plain}; }} }}\n"
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

fn nginx(folder: &Path, command: &mut Command, file: &str) -> Running {
    let errors = folder.join("errors");
    command.args(["-c", file, "-e"]).arg(errors).arg("-p").arg(folder).stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

/// How many pictures and blocks of sound are in a file.
fn recorded(file: &Path) -> [usize; 2] {
    ["v:0", "a:0"].map(|track| {
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "fatal", "-select_streams", track, "-show_entries", "frame=pts"]);
        let out = probe.args(["-of", "csv=p=0"]).arg(file).output().unwrap().stdout;
        String::from_utf8_lossy(&out).lines().count()
    })
}

fn free() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn with_tls_a_trusted_certificate_is_taken_and_another_refused() {
    if runs_until_killed() {
        return;
    }
    let folder = folder();
    let ports = [free(), free()];
    let config = server(folder.path(), "127.0.0.1", ports);
    let _server = nginx(folder.path(), &mut Command::new("nginx"), &config);
    let text = write_node(
        folder.path(),
        "20 Mbit/s",
        &format!("rtmps://localhost:{}/live/hush", ports[1]),
    );

    let base = folder.path().to_owned();
    let node = Node::start(&text, NodeOptions { base, ..NodeOptions::default() }).unwrap();
    let detail = || node.snapshot().streams[0].detail.clone();
    let refused = || detail().contains("certificate");
    assert!(wait_until(SOON, refused), "{}", detail());
    println!("{}", detail());
    assert!(!detail().contains("hush"), "{}", detail());
    drop(node.stop());
    assert_eq!(recorded(&folder.path().join("hush.flv")), [0, 0]);

    // The same with the certificate among those that this process trusts.
    let trust = "mount --bind \"$1\" /etc/ssl/certs/ca-certificates.crt && shift && exec \"$@\"";
    let test = "with_tls_a_trusted_certificate_is_taken_and_another_refused";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", trust, "sh"]).arg(folder.path().join("certificate.pem"));
    command.arg(std::env::current_exe().unwrap()).args(["--exact", test, "--nocapture"]);
    let mut node =
        Running(command.env(RUNS, folder.path()).stdout(Stdio::piped()).spawn().unwrap());
    until_sent(&mut node.0, 60);
    let got = || recorded(&folder.path().join("hush.flv"));
    assert!(wait_until(SOON, || got()[0] > 40 && got()[1] > 60), "{:?}", got());
}

/// A counter of TCP or of a device on a host.
fn counter(
    hosts: &hosts::Hosts,
    host: u8,
    command: &[&str],
    at: impl Fn(&str) -> Option<u64>,
) -> u64 {
    let out = hosts.on(host, command[0]).args(&command[1..]).output().unwrap().stdout;
    at(&String::from_utf8_lossy(&out)).expect("it is counted")
}

#[test]
fn what_tcp_sends_again_counts_against_the_rate() {
    if runs_until_killed() {
        return;
    }
    let hosts = match hosts::Hosts::new(2) {
        Ok(hosts) => hosts,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let folder = folder();
    let config = server(folder.path(), "10.77.0.2", [1935, 1936]);
    let _server = nginx(folder.path(), &mut hosts.on(2, "nginx"), &config);
    // What comes at once beyond this has no room.
    hosts.lose(2, "rate 8mbit burst 2kb limit 6kb");
    write_node(folder.path(), "700 kbit/s", "rtmp://10.77.0.2/live/hush");
    let test = "what_tcp_sends_again_counts_against_the_rate";
    let mut command = hosts.on(1, &std::env::current_exe().unwrap().display().to_string());
    command.args(["--exact", test, "--nocapture"]).env(RUNS, folder.path());
    let mut node = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    until_sent(&mut node.0, 20);
    let last = |text: &str| text.split_whitespace().last()?.parse().ok();
    let wire = || counter(&hosts, 1, &["cat", "/sys/class/net/eth0/statistics/tx_bytes"], last);
    let again = || {
        counter(&hosts, 1, &["grep", "-w", "^Tcp:", "/proc/net/snmp"], |text| {
            text.lines().nth(1)?.split_whitespace().nth(12)?.parse().ok()
        })
    };
    let (began, before, lost) = (Instant::now(), wire(), again());
    until_sent(&mut node.0, 160);
    let (bytes, lost, lasted) = (wire() - before, again() - lost, began.elapsed().as_secs_f64());
    // Ethernet's headers are not the link's. What was sent again leaves at once and is made up for later.
    let most = 700_000.0 / 8.0 * lasted * 1.015 + 30_000.0;
    println!("{bytes} B in {lasted:.1} s, at most {most:.0}; {lost} segments sent again");
    assert!(lost > 20, "{lost} segments were sent again");
    assert!((bytes as f64) < most, "{bytes} of at most {most}; {lost} sent again");
}
