//! Sources in the network, each in a process of its own: what that may not do, that it dies alone, that it
//! ends with its node, and that it shows nobody its login.

mod support;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use selvedge_control_config::view::{NodeView, PictureForm};
use selvedge_node::{Node, NodeOptions};
use serde_json::Value;
use support::{
    CORRIDOR, Folder, Running, Stream, TIMEOUT, child_named, children, clip, ffmpeg, file_source,
    free_port, http, kill, lecture, node_file, sink, skipped, until,
};

const AMPLE: &str = "rate = \"50 Mbit/s\"";
const PATIENT: &str = "delay = \"60 s\"\nring = 1024\npool = \"16 MB\"\n";
/// What a process may take of memory that it shares with nobody, in kB.
const PRIVATE_KB: u64 = 25_000;

/// The only process that a node has started.
fn only_child(node: u32) -> u32 {
    let mut found = Vec::new();
    until("one source has a process", || {
        found = children(node);
        found.len() == 1 && status(found[0], "Seccomp") == "2"
    });
    found[0]
}

fn status(id: u32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t"));
    value.unwrap_or_default().to_owned()
}

fn count(stream: &Value, key: &str) -> u64 {
    stream[key].as_u64().unwrap_or_else(|| panic!("no {key} in {stream}"))
}

/// A sender, and a node that relays what it sends as `relayed`, beside a clip of its own.
fn relay(folder: &Folder) -> (Running, Running, String) {
    let at = free_port();
    let (_receivers, to): (Vec<_>, Vec<_>) = (0..2).map(|_| sink()).unzip();
    let streams = [
        Stream {
            name: "relayed",
            source: format!("rtp://{at}?encoding=H264"),
            to: to[0],
            more: PATIENT,
        },
        Stream {
            name: "clip",
            source: file_source(&clip(CORRIDOR), true),
            to: to[1],
            more: PATIENT,
        },
    ];
    let file = folder.write("relay.toml", node_file(AMPLE, &streams));
    let mut node = Running::selvedge(["run".as_ref(), file.as_os_str()]);
    let page = node.page();
    let (sender, _) = lecture(folder, at, PATIENT);
    (sender, node, page)
}

fn frames(page: &str, name: &str) -> u64 {
    count(&http::stream(page, name), "frames")
}

#[test]
fn a_source_in_the_network_may_do_nothing_else_and_dies_alone() {
    let folder = Folder::new();
    let (_sender, node, page) = relay(&folder);
    until("frames are relayed", || frames(&page, "relayed") > 20);
    let mut process = only_child(node.id());
    for (key, value) in
        [("CapEff", "0000000000000000"), ("CapPrm", "0000000000000000"), ("NoNewPrivs", "1")]
    {
        assert_eq!(status(process, key), value, "{key}");
    }
    let private = private_kb(process);
    println!("{private} kB are its own");
    assert!(private < PRIVATE_KB, "{private} kB are its own");

    // Of a signal that is sent the first SEGV is the runtime's, which looks for a stack that overflowed.
    for signal in ["KILL", "ILL", "KILL"] {
        let before = frames(&page, "relayed");
        let deaths = node.stderr().matches("died").count();
        let killed = Instant::now();
        kill(signal, process);
        until("it is shown as retried", || {
            let log = node.stderr();
            log.matches("died").count() > deaths
                || http::stream(&page, "relayed")["state"] == "retrying"
        });
        until("another process has its place", || {
            !children(node.id()).contains(&process) && !children(node.id()).is_empty()
        });
        println!("another process after {:?}", killed.elapsed());
        until("frames are relayed again", || frames(&page, "relayed") > before + 10);
        process = only_child(node.id());
    }
    let clip = http::stream(&page, "clip");
    assert_eq!((count(&clip, "missed"), &clip["dropped"]), (0, &serde_json::json!({})), "{clip}");
    assert_eq!(clip["state"], "running");

    // A node that is killed takes it along, also one that would not end by itself.
    kill("STOP", process);
    kill("KILL", node.id());
    until("the process has ended", || !Path::new(&format!("/proc/{process}/exe")).exists());
}

#[test]
fn small_pictures_leave_a_source_small() {
    let folder = Folder::new();
    let (sent, relayed): (Vec<_>, Vec<_>) = [("a", free_port()), ("b", free_port())]
        .map(|(name, at)| {
            let source = format!("rtp://{at}?encoding=H264");
            let sent =
                Stream { name, source: file_source(&clip(CORRIDOR), true), to: at, more: "" };
            (sent, Stream { name, source, to: free_port(), more: PATIENT })
        })
        .into_iter()
        .unzip();
    let text = node_file(AMPLE, &relayed).replace("thumbnail = false\n", "");
    let file = folder.write("relay.toml", text);
    let mut node = Running::selvedge(["run".as_ref(), file.as_os_str()]);
    let page = node.page();
    let file = folder.write("sender.toml", node_file(AMPLE, &sent));
    let _sender = Running::selvedge(["run".as_ref(), file.as_os_str()]);
    // Two of them share what only a source has loaded.
    until("pictures were decoded for some seconds", || {
        frames(&page, "a") > 100 && frames(&page, "b") > 100
    });
    for process in children(node.id()) {
        let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("it is our child's");
        assert!(maps.contains("openh264") || maps.contains("libavcodec"), "no decoder:\n{maps}");
        let private = private_kb(process);
        println!("{private} kB are its own");
        assert!(private < PRIVATE_KB, "{private} kB are its own");
    }
}

/// What only this process has in memory.
fn private_kb(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).expect("it is our child's");
    let of = |key: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(key)).expect("the kernel says it");
        line.trim_matches([' ', ':', 'k', 'B']).parse::<u64>().expect("a number")
    };
    of("Private_Clean") + of("Private_Dirty")
}

#[test]
fn a_program_isolates_its_sources_by_the_command_and_gets_small_pictures() {
    let (folder, at) = (Folder::new(), free_port());
    let (_receiver, to) = sink();
    let text = format!(
        "[link.uplink]\n{AMPLE}\n[stream.relayed]\nsource = \"rtp://{at}?encoding=H264\"\n\
         to = \"rtp://{to}\"\n{PATIENT}"
    );
    let command = env!("CARGO_BIN_EXE_selvedge").into();
    let options = NodeOptions { isolates_by: Some(command), ..NodeOptions::default() };
    let node = Node::start(&text, options).expect("a good file");
    let (_sender, _) = lecture(&folder, at, PATIENT);
    until("a small picture is there", || node.thumbnail("relayed").is_some());
    let (_, jpeg) = node.thumbnail("relayed").expect("it was there");
    assert!(jpeg.starts_with(&[0xff, 0xd8, 0xff]));
    for form in [PictureForm::Coded, PictureForm::Images] {
        let shown = || node.pictures(0, form, None).list;
        until(&format!("moving pictures of what is sent are there as {form:?}"), || {
            !shown().is_empty()
        });
        let is_jpeg = shown()[0].bytes.starts_with(&[0xff, 0xd8, 0xff]);
        assert_eq!(is_jpeg, form == PictureForm::Images);
    }
    let plugins = plugins(std::process::id());
    assert!(plugins.is_empty(), "the node could parse media by {plugins:?}");
    let source = child_named(std::process::id(), "selvedge-source").expect("it runs");
    drop(node.stop());
    assert!(!Path::new(&format!("/proc/{source}")).exists(), "it ended with its node");
}

/// What a process has loaded of GStreamer that parses, decodes or connects.
fn plugins(id: u32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{id}/maps")).expect("it runs");
    let loaded = maps.lines().filter_map(|line| line.split_once("gstreamer-1.0/"));
    let mut names: Vec<_> = loaded.map(|(_, name)| name.to_owned()).collect();
    names.dedup();
    names
}

#[test]
fn a_check_opens_what_is_in_the_network_by_a_process_of_its_own() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    // It takes connections, and never answers.
    let camera = TcpListener::bind("127.0.0.1:0").expect("the loopback has ports");
    let at = camera.local_addr().expect("it is bound");
    let stream = Stream { name: "camera", source: format!("rtsp://{at}/camera"), to, more: "" };
    let file = folder.write("node.toml", node_file(AMPLE, &[stream]));
    let check = Running::selvedge(["check".as_ref(), file.as_os_str()]);
    let process = only_child(check.id());
    assert!(plugins(process).iter().any(|name| name.contains("rtsp")));
    let plugins = plugins(check.id());
    assert!(plugins.is_empty(), "the check could parse media by {plugins:?}");
    let ended = check.end(TIMEOUT);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("no media from"), "{ended:?}");
    assert!(!Path::new(&format!("/proc/{process}")).exists(), "it ended with its check");
}

#[test]
fn a_node_gives_up_what_it_does_not_need() {
    const KILL: u64 = 1 << 5;
    const MODULES: u64 = 1 << 16;
    const PTRACE: u64 = 1 << 19;
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let (node, _page) = lecture(&folder, to, "");
    let bits = |key| u64::from_str_radix(&status(node.id(), key), 16).expect("hexadecimal");
    for key in ["CapEff", "CapPrm", "CapInh"] {
        assert_eq!(bits(key) & (KILL | MODULES | PTRACE), 0, "{key}");
    }
    assert_eq!(status(node.id(), "NoNewPrivs"), "1");
    let tasks = fs::read_dir(format!("/proc/{}/task", node.id())).expect("it runs");
    for task in tasks.flatten() {
        let text = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let has = text.lines().find_map(|line| line.strip_prefix("CapEff:\t"));
        let has = has.and_then(|bits| u64::from_str_radix(bits, 16).ok()).unwrap_or_default();
        assert_eq!(has & PTRACE, 0, "{text}");
    }
}

#[test]
fn a_login_is_in_no_list_of_processes() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let source = format!("rtsp://keeper:hush-hush@{}/camera", free_port());
    let stream = Stream { name: "camera", source, to, more: "" };
    let file = folder.write("node.toml", node_file(AMPLE, &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), file.as_os_str()]);
    let page = node.page();
    until("the camera is absent", || http::stream(&page, "camera")["state"] == "retrying");
    let process = only_child(node.id());
    for name in ["cmdline", "environ", "comm"] {
        let shown = fs::read(format!("/proc/{process}/{name}")).expect("it runs");
        assert!(!String::from_utf8_lossy(&shown).contains("hush"), "{name}");
    }
    until("the page says where nothing comes from", || {
        let detail = http::stream(&page, "camera")["detail"].to_string();
        detail.contains("no media from \\\"rtsp://***@")
    });
    assert!(!node.stderr().contains("hush"), "{}", node.stderr());
    // The same process tries again: an attempt is cheap.
    let attempts = |node: &Running| node.stderr().matches("source failed").count();
    until("it was tried again", || attempts(&node) >= 3);
    assert_eq!(children(node.id()), [process]);
    node.signal("TERM");
    assert_eq!(node.end(Duration::from_secs(5)).code, Some(0));
    assert!(!Path::new(&format!("/proc/{process}")).exists(), "it ended with its node");
}

/// FFmpeg, which sends a test card to this port and seals its packets with this key.
fn sealing(key: &str, at: SocketAddr) -> Running {
    let mut sender = support::program("ffmpeg");
    sender.args(["-nostdin", "-v", "error", "-re", "-f", "lavfi", "-i"]);
    sender.args(["testsrc2=size=160x120:rate=25", "-c:v", "libx264", "-tune", "zerolatency"]);
    sender.args(["-g", "10", "-bsf:v", "dump_extra", "-f", "rtp"]);
    sender.args(["-srtp_out_suite", "AES_CM_128_HMAC_SHA1_80", "-srtp_out_params", key]);
    Running::start(sender.arg(format!("srtp://{at}")))
}

#[test]
fn a_sealed_source_is_opened_in_its_process_and_its_key_is_shown_nowhere() {
    // Of RFC 4568, and another one.
    const KEY: &str = "d0RmdmcmVCspeEc3QGZiNWpVLFJhQX1cfHAwJSoj";
    const OTHER: &str = "YUJDZGVmZ2hJSktMbW5vcHFyc3R1dnd4eXowMTIz";
    let name = "a_sealed_source_is_opened_in_its_process_and_its_key_is_shown_nowhere";
    if !ffmpeg(["-version"]) {
        return skipped(name, "needs ffmpeg");
    }
    let (folder, at) = (Folder::new(), free_port());
    let (_receiver, to) = sink();
    let sdp = format!(
        "v=0\nc=IN IP4 127.0.0.1\nm=video {} RTP/SAVP 96\na=rtpmap:96 H264/90000\n\
         a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:{KEY}\n",
        at.port()
    );
    folder.write("door.sdp", sdp);
    let stream = Stream { name: "door", source: "sdp:door.sdp".into(), to, more: PATIENT };
    let file = folder.write("node.toml", node_file(AMPLE, &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), file.as_os_str()]);
    let page = node.page();
    let door = || http::stream(&page, "door");
    let wrong = sealing(OTHER, at);
    until("packets of another key are refused", || {
        count(&door(), "refused_packets") > 20
            && door()["detail"].to_string().contains("not sealed with the key in the SDP")
    });
    assert_eq!(frames(&page, "door"), 0);
    drop(wrong);
    let _sender = sealing(KEY, at);
    until("frames are relayed", || frames(&page, "door") > 20);
    let process = only_child(node.id());
    let mut shown: Vec<_> = [("cmdline", process), ("environ", process), ("cmdline", node.id())]
        .map(|(name, id)| fs::read_to_string(format!("/proc/{id}/{name}")).expect("it runs"))
        .into();
    shown.extend(["/api/v1/node", "/metrics"].map(|path| http::request(&page, "GET", path, "").1));
    shown.push(node.stderr());
    for text in shown {
        assert!(!text.contains(&KEY[..12]), "{text}");
    }
}

#[test]
fn only_a_node_starts_the_process_of_a_source() {
    let ended = support::selvedge(["source-process"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("only a node starts this"), "{ended:?}");
}
