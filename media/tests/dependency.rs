//! References stated by dependency descriptors, through depayloaders and parsers of GStreamer.

#![cfg(feature = "gstreamer")]

mod support;

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};

use selvedge_control_config::SourceUri;
use selvedge_data_stream::References;
use selvedge_media::dependency::DEPENDENCY_URI;
use selvedge_media::sdp::{Described, Session};
use selvedge_media::{End, MediaFrame};
use support::{file, open, take};

/// The extension's local identifier, and the frame that is lost in transit.
const ID: u8 = 5;
const LOST: usize = 7;
const FRAMES: usize = 30;

/// The differences that a frame states: other ones than its own headers would.
fn differences(frame: usize) -> Vec<usize> {
    [2, 5].into_iter().filter(|back| *back <= frame).collect()
}

/// A descriptor with custom differences; the first brings a structure of one template.
fn descriptor(frame: usize) -> Vec<u8> {
    let mut fields = vec![(2, 0b11), (6, 0), (16, frame)];
    if frame == 0 {
        // One target, one layer, no differences, chains or sizes.
        fields.extend([(5, 0b10010), (6, 0), (5, 0), (2, 3), (2, 2), (1, 0), (1, 0), (1, 0)]);
    } else {
        fields.push((5, 0b00010));
    }
    fields.extend(differences(frame).iter().flat_map(|back| [(2, 1), (4, back - 1)]));
    fields.push((2, 0));
    let bits = |(width, value): &(usize, usize)| {
        let value = *value;
        (0..*width).rev().map(move |bit| (value >> bit & 1) as u8).collect::<Vec<_>>()
    };
    let bits = fields.iter().flat_map(bits).collect::<Vec<_>>();
    bits.chunks(8)
        .map(|bits| bits.iter().fold(0, |byte, bit| byte << 1 | bit) << (8 - bits.len()))
        .collect()
}

/// A packet with the descriptor in an extension of the two-byte form.
fn extended(packet: &[u8], descriptor: &[u8]) -> Vec<u8> {
    let mut element = [&[ID, descriptor.len() as u8], descriptor].concat();
    element.resize(element.len().next_multiple_of(4), 0);
    let extension = [&[0x10, 0, 0, (element.len() / 4) as u8], &element[..]].concat();
    [&[packet[0] | 0x10], &packet[1..12], &extension, &packet[12..]].concat()
}

/// The same framed by RFC 4571.
fn framed(packet: &[u8], descriptor: &[u8]) -> Vec<u8> {
    let packet = extended(packet, descriptor);
    [&(packet.len() as u16).to_be_bytes()[..], &packet].concat()
}

/// The references of all frames of such a file after these elements.
fn received(stream: &[u8], elements: &str, caps: &str) -> Vec<Option<References>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream");
    std::fs::write(&path, stream).unwrap();
    let line = format!(
        "filesrc location={} ! application/x-rtp-stream,media=video,encoding-name=H264,\
         clock-rate=90000,payload=96{caps} ! rtpstreamdepay ! {elements}",
        path.display()
    );
    let mut source = open(&SourceUri::Launch { line, bitrate: None }).unwrap();
    let (seen, end) = take(&mut source, usize::MAX);
    assert_eq!(end, Ok(End::Eos { note: None }));
    seen.iter().map(|frame| frame.picture.refs).collect()
}

#[test]
fn descriptors_state_the_references_of_received_frames() {
    let mut source = open(&file("one-by-one-person-detection.mp4", false)).unwrap();
    let (seen, _) = take(&mut source, FRAMES);
    let mut stream = Vec::new();
    for (number, frame) in seen.iter().enumerate().filter(|(number, _)| *number != LOST) {
        for packet in &frame.packets {
            stream.extend(framed(packet, &descriptor(number)));
        }
    }
    let came = (0..FRAMES).filter(|frame| *frame != LOST).collect::<Vec<_>>();
    let place = |frame: usize| came.iter().position(|other| *other == frame);
    let expected = came.iter().map(|&frame| {
        let named = differences(frame).into_iter().map(|back| place(frame - back));
        let back = |other: usize| (place(frame).unwrap() - other) as u32;
        let all = named.collect::<Option<Vec<_>>>();
        Some(all.map_or(References::UNKNOWN, |all| References::to(all.into_iter().map(back))))
    });
    let expected = expected.collect::<Vec<_>>();
    let extension = format!(",extmap-{ID}=(string)\"{DEPENDENCY_URI}\"");
    for elements in ["rtph264depay ! h264parse", "rtph264depay"] {
        assert_eq!(received(&stream, elements, &extension), expected, "{elements}");
    }
    // Without a line in the SDP the extension is unknown: the pictures' own headers count.
    let others = received(&stream, "rtph264depay", "");
    assert_eq!(others.len(), expected.len());
    assert_ne!(others, expected);
}

#[test]
fn a_description_that_names_the_extension_is_enough() {
    let mut clip = open(&file("one-by-one-person-detection.mp4", false)).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let described = Described { dependency: Some(ID), ..Described::new(clip.info(), free) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sdp");
    let text = Session { name: "x".into(), streams: vec![described] }.to_string();
    std::fs::write(&path, text).unwrap();
    let mut source =
        open(&SourceUri::Sdp { path: path.to_str().unwrap().into(), from: None }).unwrap();
    let (mut frame, mut number) = (0, 0_u16);
    let mut send = |seen: MediaFrame<'_>| {
        for packet in seen.packets {
            let mut packet = extended(packet, &descriptor(frame));
            packet[2..4].copy_from_slice(&number.to_be_bytes());
            number += 1;
            socket.send_to(&packet, free).unwrap();
        }
        frame += 1;
    };
    let stop = AtomicBool::new(false);
    let received = std::thread::scope(|scope| {
        scope.spawn(|| clip.run(&mut send, &stop));
        let (received, _) = take(&mut source, FRAMES / 2);
        stop.store(true, Ordering::Relaxed);
        received
    });
    let refs: Vec<_> = received.iter().map(|frame| frame.picture.refs).collect();
    let back = |frame| differences(frame).into_iter().map(|back| back as u32);
    let expected: Vec<_> = (0..FRAMES / 2).map(|f| Some(References::to(back(f)))).collect();
    assert_eq!(refs, expected);
}
