//! VLC opens the SDP file that a node writes, and decodes what comes. It is not among the packages
//! that are installed for tests (Debian: vlc-bin, vlc-plugin-base); without it this says so.
//!
//! Debian builds VLC without live555, by which VLC opens SDP files elsewhere; its FFmpeg demuxer
//! does so too, but has to be asked for.

mod support;

use std::path::Path;
use std::process::Command;

use support::{
    CORRIDOR, Folder, Running, Stream, TIMEOUT, clip, file_source, free_port, node_file, program,
    skipped, udp_is_bound,
};

/// Pictures that are to be decoded, 10 a second.
const PICTURES: usize = 30;
/// Bytes of a picture of the clip as PNG, at least; a grey one takes far less.
const DETAILED: u64 = 100_000;

#[test]
fn vlc_decodes_what_the_sdp_file_describes() {
    let name = "vlc_decodes_what_the_sdp_file_describes";
    let Some(mut vlc) = vlc() else { return skipped(name, "needs cvlc") };
    let folder = Folder::new();
    let to = free_port();
    let stream = Stream {
        name: "lecture",
        source: file_source(&clip(CORRIDOR), true),
        to,
        more: "sdp = \"lecture.sdp\"",
    };
    let path = folder.write("node.toml", node_file("rate = \"20 Mbit/s\"", &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
    node.page();
    let pictures = folder.join("pictures");
    std::fs::create_dir(&pictures).expect("the folder can be written");
    vlc.args(["--intf", "dummy", "--no-audio", "--demux=avformat", "--vout=vdummy"])
        // Each picture that is shown is written to a file.
        .args(["--video-filter=scene", "--scene-format=png", "--scene-ratio=1"])
        .arg(format!("--scene-path={}", pictures.display()))
        .arg(folder.join("lecture.sdp"))
        .env("HOME", folder.path())
        .env_remove("DISPLAY");
    let mut vlc = Running::start(&mut vlc);
    vlc.until("listens", |_| udp_is_bound(to));
    vlc.until("decodes", |_| detailed(&pictures) >= PICTURES);
}

/// VLC without a window, if it is installed. It refuses to run as root: in a namespace where it is
/// somebody else it may still read what root may.
fn vlc() -> Option<Command> {
    let is_there = |words: &[&str]| {
        Running::start(program(words[0]).args(&words[1..])).end(TIMEOUT).code == Some(0)
    };
    if is_there(&["cvlc", "--version"]) {
        return Some(program("cvlc"));
    }
    let other = ["unshare", "--user", "--map-user=1000", "cvlc"];
    is_there(&[&other[..], &["--version"]].concat()).then(|| {
        let mut command = program(other[0]);
        command.args(&other[1..]);
        command
    })
}

/// Pictures in the folder that show something.
fn detailed(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder).expect("it is there").flatten();
    files.filter(|file| file.metadata().is_ok_and(|meta| meta.len() >= DETAILED)).count()
}
