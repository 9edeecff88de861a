//! Attacks on a sealed stream, from the outside: `run` sends, `play stack://` receives, and somebody without
//! the secret sits on the way, records, changes, repeats and makes up datagrams. What is decodable at the
//! receiver stays within 1 % of what is without an attack, and SIGTERM ends both ends in time.

mod support;

use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::wire::{Send, Wire};
use support::{
    Folder, Running, Stream, ffmpeg, file_source, free_port, http, node_file, play, skipped, until,
};

const LINES: [&str; 2] = ["ui | reliable | frag(1400) | net", "ui | unreliable | net"];

/// Frames that a run carries at least: enough to see one in a hundred.
const FRAMES: u64 = 300;

/// The aim is a second; a machine with much else to do has five times as long.
const END: Duration = Duration::from_secs(5);

/// Both ends: a node that sends 100 pictures a second by the way `to`, and where its page is.
struct Ends {
    folder: Folder,
    source: String,
}

impl Ends {
    /// `None` without FFmpeg.
    fn new() -> Option<Self> {
        let folder = Folder::new();
        let clip = folder.join("fast.mp4");
        let path = clip.to_str().expect("a plain path");
        let pictures = "testsrc2=size=160x120:rate=100";
        let form = ["-t", "6", "-c:v", "libx264", "-preset", "veryfast", "-g", "50", "-bf", "0"];
        ffmpeg(["-f", "lavfi", "-i", pictures].into_iter().chain(form).chain([path])).then(|| {
            for (name, byte) in [("ours", "01"), ("other", "02")] {
                folder.write(name, byte.repeat(32) + "\n");
            }
            let source = file_source(&clip, true);
            Self { folder, source }
        })
    }

    fn secret(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn node(&self, to: SocketAddr, stack: &str) -> (Running, String) {
        let stream =
            Stream { name: "lecture", source: self.source.clone(), to, more: "delay = \"1 s\"" };
        let link = format!("rate = \"40 Mbit/s\"\nstack = \"{stack}\"\nsecret = \"ours\"");
        let path = self.folder.write("node.toml", node_file(&link, &[stream]));
        let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
        let page = node.page();
        (node, page)
    }

    fn play(&self, at: SocketAddr) -> Running {
        let secret = self.secret("ours");
        let source = format!("stack://{at}");
        play(&[&source, "--secret", secret.to_str().expect("a plain path")], at)
    }
}

fn number(stream: &Value, key: &str) -> u64 {
    stream[key].as_u64().unwrap_or_else(|| panic!("no {key} in {stream}"))
}

/// Asks the program to end, which it does in time; what it printed.
fn ended(program: Running) -> String {
    let began = Instant::now();
    program.signal("TERM");
    let ended = program.end(END);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    eprintln!("ended after {:?}", began.elapsed());
    ended.stdout
}

/// Lets `FRAMES` more frames come and ends both while the attack goes on: frames that the receiver knows of, and
/// those that are decodable there.
fn counted(node: Running, page: &str, play: Running) -> (u64, u64) {
    let seen = || number(&http::stream(page, "lecture"), "decodable");
    let before = seen();
    until("frames are decodable at the receiver", || seen() >= before + FRAMES);
    let says = http::stream(page, "lecture");
    let printed = ended(play);
    ended(node);
    let measured: Value = serde_json::from_str(&printed).expect("it prints JSON");
    let streams = measured["streams"].as_object().expect("an object");
    assert_eq!(streams.len(), 1, "no other sender was heard: {measured}");
    let got = streams.values().next().expect("it is there");
    let (frames, decodable) = (number(got, "frames"), number(got, "decodable"));
    assert_eq!(number(got, "duplicates"), 0, "{got}");
    let (node, receiver) = (number(&says, "decodable"), number(&says["received"], "complete"));
    assert!(node <= receiver && receiver <= frames, "{says} {got}");
    (frames, decodable)
}

/// The same; all but 1 % of the frames must be decodable, as all are without an attack.
fn judged(node: Running, page: &str, play: Running) {
    let (frames, decodable) = counted(node, page, play);
    assert!(frames >= FRAMES && decodable * 100 >= frames * 99, "{decodable} of {frames}");
}

/// Both ends with this attack on the way.
fn holds<A: FnMut(&[u8], bool, Send<'_>) + std::marker::Send + 'static>(
    test: &str,
    attack: impl Fn() -> A,
) {
    let Some(ends) = Ends::new() else { return skipped(test, "no FFmpeg") };
    for line in LINES {
        let receiver = free_port();
        let play = ends.play(receiver);
        let mut attack = attack();
        let wire = Wire::to(receiver, move |datagram, to_receiver, send| {
            attack(datagram, to_receiver, send);
            send(to_receiver, datagram);
        });
        let (node, page) = ends.node(wire.at, line);
        judged(node, &page, play);
    }
}

const fn is_handshake(datagram: &[u8]) -> bool {
    matches!(datagram, [0, 0, 0, 0, ..])
}

#[test]
fn without_an_attack_all_is_decodable() {
    holds("without_an_attack_all_is_decodable", || |_: &[u8], _, _: Send<'_>| {});
}

#[test]
fn a_wire_that_loses_packets_takes_frames_so_the_other_tests_can_fail() {
    let test = "a_wire_that_loses_packets_takes_frames_so_the_other_tests_can_fail";
    let Some(ends) = Ends::new() else { return skipped(test, "no FFmpeg") };
    let receiver = free_port();
    let play = ends.play(receiver);
    let mut count = 0_u32;
    let wire = Wire::to(receiver, move |datagram, to_receiver, send| {
        count += 1;
        if is_handshake(datagram) || !count.is_multiple_of(50) {
            send(to_receiver, datagram);
        }
    });
    let (node, page) = ends.node(wire.at, LINES[1]);
    let (frames, decodable) = counted(node, &page, play);
    assert!(decodable * 100 < frames * 99, "{decodable} of {frames}");
}

#[test]
fn replayed_hellos_harm_nothing() {
    holds("replayed_hellos_harm_nothing", || {
        let (mut hello, mut packets) = (Vec::new(), 0);
        move |datagram: &[u8], to_receiver, send: Send<'_>| {
            if datagram.starts_with(&[0, 0, 0, 0, 1, 3]) {
                hello = datagram.to_vec();
            }
            packets += u32::from(to_receiver && !is_handshake(datagram));
            if packets % 100 == 20 {
                for n in 0..200_u32 {
                    send(true, &hello);
                    let mut other = hello.clone();
                    other[7..11].copy_from_slice(&(n + 1).to_be_bytes());
                    send(true, &other);
                }
            }
        }
    });
}

#[test]
fn forged_numbers_and_acknowledgements_harm_nothing() {
    holds("forged_numbers_and_acknowledgements_harm_nothing", || {
        let mut count = 0_u32;
        move |datagram: &[u8], to_receiver, send: Send<'_>| {
            if is_handshake(datagram) {
                return;
            }
            count += 1;
            let mut forged = datagram.to_vec();
            match count % 4 {
                0 => forged[4..12].copy_from_slice(&(1_u64 << 62).to_be_bytes()),
                1 => forged[4..12].copy_from_slice(&u64::MAX.to_be_bytes()),
                2 => forged.iter_mut().skip(12).take(16).for_each(|byte| *byte ^= 0x55),
                _ => forged.truncate(20),
            }
            send(to_receiver, &forged);
            send(!to_receiver, &forged);
        }
    });
}

#[test]
fn replayed_datagrams_are_delivered_once() {
    holds("replayed_datagrams_are_delivered_once", || {
        let mut kept: Vec<Vec<u8>> = Vec::new();
        move |datagram: &[u8], to_receiver, send: Send<'_>| {
            send(to_receiver, datagram);
            send(!to_receiver, datagram);
            if to_receiver {
                let place = kept.len() % 64;
                kept.push(datagram.to_vec());
                send(true, &kept[place]);
                kept.truncate(64);
            }
        }
    });
}

#[test]
fn forged_refusals_end_no_attempt_to_connect() {
    holds("forged_refusals_end_no_attempt_to_connect", || {
        move |datagram: &[u8], _, send: Send<'_>| {
            if !is_handshake(datagram) || datagram.len() < 11 {
                return;
            }
            for kind in [2, 4] {
                let mut forged = datagram[..11].to_vec();
                forged[5] = kind;
                forged.extend_from_slice(&[0x77; 64]);
                send(false, &forged);
            }
        }
    });
}

/// A peer that connects, or tries to, and says next to nothing.
fn stranger(at: SocketAddr, more: &[&str]) -> Running {
    let at = at.to_string();
    let quiet = ["stack", "send", &at, "--every", "60 s", "--seconds", "60", "--stack", LINES[1]];
    Running::selvedge(quiet.iter().chain(more))
}

#[test]
fn strangers_and_an_idle_peer_harm_nobody() {
    let test = "strangers_and_an_idle_peer_harm_nobody";
    let Some(ends) = Ends::new() else { return skipped(test, "no FFmpeg") };
    for line in LINES {
        let receiver = free_port();
        let play = ends.play(receiver);
        let (node, page) = ends.node(receiver, line);
        let [ours, other] = ["ours", "other"].map(|name| ends.secret(name));
        let [ours, other] = [&ours, &other].map(|path| path.to_str().expect("a plain path"));
        let beside = [&["--secret", ours][..], &["--secret", other], &[]]
            .map(|more| stranger(receiver, more));
        // Packets as they are without the secure layer.
        let socket = UdpSocket::bind("127.0.0.1:0").expect("the loopback has a free port");
        for n in 0..1000_u32 {
            let datagram = [&n.to_be_bytes()[..], &[n.to_le_bytes()[0]; 100]].concat();
            socket.send_to(&datagram, receiver).expect("it is on the loopback");
        }
        judged(node, &page, play);
        drop(beside);
    }
}

#[test]
fn a_sender_that_was_killed_and_comes_again_is_heard() {
    let test = "a_sender_that_was_killed_and_comes_again_is_heard";
    let Some(ends) = Ends::new() else { return skipped(test, "no FFmpeg") };
    for line in LINES {
        let receiver = free_port();
        let first = ends.play(receiver);
        let (node, page) = ends.node(receiver, line);
        until("the first is heard", || number(&http::stream(&page, "lecture"), "decodable") >= 50);
        node.signal("KILL");
        let (again, page) = ends.node(receiver, line);
        let seen = || number(&http::stream(&page, "lecture"), "decodable");
        until("the second is heard", || seen() >= 50);
        let (sent, before) =
            (number(&http::stream(&page, "lecture")["received"], "frames"), seen());
        until("frames are decodable at the receiver", || seen() >= before + FRAMES);
        let got = http::stream(&page, "lecture");
        let frames = number(&got["received"], "frames") - sent;
        assert!((number(&got, "decodable") - before) * 100 >= frames * 99, "{got}");
        ended(first);
        ended(again);
    }
}
