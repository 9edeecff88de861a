//! SDP: written, read, and refused.

use super::*;
use crate::picture::Codec;
use proptest::prelude::*;
use selvedge_units::Duration;

fn info(codec: Codec) -> StreamInfo {
    StreamInfo {
        codec,
        payload_type: codec.payload_type(),
        clock_rate: if codec.is_audio() { 16_000 } else { 90_000 },
        fmtp: (codec == Codec::H264).then(|| "packetization-mode=1".into()),
        channels: codec.is_audio().then_some(1),
        period: Duration::from_millis(40),
        width: None,
        height: None,
    }
}

fn to(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

#[test]
fn a_stream_is_written_as_players_read_it() {
    let streams = vec![Described::new(&info(Codec::H264), to(5004))];
    let text = Session { name: "hall".into(), streams }.to_string();
    let expected = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=hall\r\nt=0 0\r\nm=video 5004 RTP/AVP \
                    96\r\nc=IN IP4 127.0.0.1\r\na=rtpmap:96 H264/90000\r\na=fmtp:96 \
                    packetization-mode=1\r\na=extmap:1 urn:x-selvedge:frame\r\na=extmap:2 \
                    urn:x-selvedge:deadline\r\na=recvonly\r\n";
    assert_eq!(text, expected);
}

#[test]
fn every_codec_is_read_back() {
    let ports = 5004..;
    let streams = Codec::ALL.iter().zip(ports.step_by(2));
    let streams = streams.map(|(&codec, port)| Described::new(&info(codec), to(port))).collect();
    let session = Session { name: "all of them".into(), streams };
    assert_eq!(Session::parse(&session.to_string()), Ok(session));
}

#[test]
fn other_addresses_are_read_back() {
    for ip in ["::1", "239.1.2.3", "ff02::5", "192.0.2.7"] {
        let stream = Described::new(&info(Codec::Jpeg), SocketAddr::new(ip.parse().unwrap(), 9));
        let session = Session { name: "x".into(), streams: vec![stream] };
        assert_eq!(Session::parse(&session.to_string()), Ok(session));
    }
}

#[test]
fn a_foreign_file_is_understood() {
    // As FFmpeg writes it: one address for all, a static type without a map, other attributes.
    let text = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=No Name\nc=IN IP4 127.0.0.1\nt=0 0\n\
                a=tool:libavformat\nm=video 5004 RTP/AVP 32\nb=AS:500\nm=application 9 UDP/BFCP *\n\
                a=rtpmap:broken\nm=audio 5006 RTP/AVPF 97 98\na=rtpmap:98 opus/48000/2\n\
                a=rtpmap:97 L16/48000/2\na=extmap:2/recvonly urn:x-selvedge:frame\n";
    let session = Session::parse(text).unwrap();
    assert_eq!(session.streams.len(), 2);
    let [video, audio] = &session.streams[..] else { panic!("two streams") };
    assert_eq!((video.encoding.as_str(), video.clock_rate, video.extension), ("MPV", 90_000, None));
    assert_eq!((audio.encoding.as_str(), audio.channels), ("L16", Some(2)));
    assert_eq!((audio.to.port(), audio.extension, audio.audio), (5006, Some(2), true));
}

#[test]
fn the_dependency_descriptor_has_its_number() {
    let text = format!(
        "v=0\nc=IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 26\na=extmap:20/sendonly {DEPENDENCY_URI}\n"
    );
    let session = Session::parse(&text).unwrap();
    assert_eq!((session.streams[0].dependency, session.streams[0].extension), (Some(20), None));
    assert_eq!(Session::parse(&session.to_string()).unwrap().streams, session.streams);
}

#[test]
fn an_error_names_its_line() {
    let zero = format!("a=extmap:0 {DEPENDENCY_URI}");
    let say = |lines: &[&str]| {
        let head = ["v=0", "s=x", "c=IN IP4 127.0.0.1"];
        Session::parse(&[&head, lines].concat().join("\n")).unwrap_err().to_string()
    };
    for (lines, line, problem) in [
        (&["nonsense"][..], 4, "x=value"),
        (&["m=video"], 4, "write m=video PORT"),
        (&["m=video 99999 RTP/AVP 96"], 4, "65535"),
        (&["m=video 5004 UDP/TLS/RTP/SAVP 96"], 4, "RTP/AVP"),
        (&["m=video 5004 RTP/SAVP 26"], 4, "a=crypto:1 AES_CM_128"),
        (&["m=video 5004 RTP/AVP 26", "a=crypto:1 F8_128 inline:c2VjcmV0"], 4, "no key"),
        (&["m=video 5004 RTP/AVP 128"], 4, "127"),
        (&["m=video 5004 RTP/AVP 96", "a=rtpmap:96 H264"], 5, "ENCODING/RATE"),
        (&["m=video 5004 RTP/AVP 96", "a=rtpmap:96 H264/0"], 5, "ENCODING/RATE"),
        (&["m=video 5004 RTP/AVP 96", "c=IN IP4 example.org"], 5, "in numbers"),
        (&["m=video 5004 RTP/AVP 96", "c=IN IP4 ::1"], 5, "in numbers"),
        (&["m=video 5004 RTP/AVP 26", "a=extmap:15 urn:x-selvedge:frame"], 5, "1 to 14"),
        (&["m=video 5004 RTP/AVP 26", &zero], 5, "1 to 255"),
        (&["m=video 5004 RTP/AVP 26", "a=fmtp:26"], 5, "nothing behind"),
        (&["m=video 5004 RTP/AVP 96"], 4, "a=rtpmap:96"),
    ] {
        let text = say(lines);
        assert!(text.starts_with(&format!("line {line},")), "{lines:?}: {text}");
        assert!(text.contains(problem), "{lines:?}: {text}");
    }
    let bare = Session::parse("v=0\nm=video 5004 RTP/AVP 26").unwrap_err().to_string();
    assert!(bare.contains("c=IN IP4"), "{bare}");
}

#[test]
fn what_is_no_session_is_refused() {
    assert_eq!(Session::parse(""), Err(SdpError::NotSdp));
    assert_eq!(Session::parse("[node]\n"), Err(SdpError::NotSdp));
    assert_eq!(Session::parse("v=0\ns=x\n"), Err(SdpError::Empty));
    assert_eq!(Session::parse("v=0\nm=video 0 RTP/AVP 96\n"), Err(SdpError::Empty));
    let long = format!("v=0\ns={}", "x".repeat(TEXT_MAX));
    assert_eq!(Session::parse(&long), Err(SdpError::TooLong(long.len())));
    let many = "m=video 5004 RTP/AVP 26\n".repeat(STREAMS_MAX + 1);
    let many = Session::parse(&format!("v=0\nc=IN IP4 127.0.0.1\n{many}")).unwrap_err();
    assert!(many.to_string().contains("more than 64"), "{many}");
}

#[test]
fn a_name_can_not_add_lines() {
    let streams = vec![Described::new(&info(Codec::Mpv), to(5004))];
    let session = Session { name: "a\r\nm=video 1 RTP/AVP 26".into(), streams };
    assert_eq!(Session::parse(&session.to_string()).unwrap().streams.len(), 1);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "v=0\n([vosctma]=[ -~]{0,40}\n){0,12}") {
        let _ = Session::parse(&text);
    }

    #[test]
    fn any_attributes_are_survived(
        lines in prop::collection::vec("a=(rtpmap|fmtp|extmap):[0-9/ a-zA-Z]{0,20}", 0..6)
    ) {
        let text = format!("v=0\nc=IN IP4 1.2.3.4\nm=video 5 RTP/AVP 96\n{}", lines.join("\n"));
        if let Ok(session) = Session::parse(&text) {
            prop_assert_eq!(Session::parse(&session.to_string()), Ok(session));
        }
    }
}
