//! A client's conversation in virtual time.

use selvedge_data_stream::References;
use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, write_packet};

use super::*;
use crate::frame::StreamInfo;
use crate::output::rtsp::login::Login;
use crate::output::rtsp::mount::Mounts;
use crate::picture::Codec;

const START: Instant = Instant(1_000_000_000);

fn info(codec: Codec) -> StreamInfo {
    StreamInfo {
        codec,
        payload_type: codec.payload_type(),
        clock_rate: if codec.is_audio() { 48_000 } else { 90_000 },
        fmtp: None,
        channels: codec.is_audio().then_some(2),
        period: Duration::from_millis(40),
        width: None,
        height: None,
    }
}

fn server(login: Option<Login>) -> ServerState {
    let mount = Arc::new(Mount::new("cam".into(), login));
    mount.describe(&[info(Codec::Opus), info(Codec::H264)]);
    let mounts = Arc::new(Mounts::from([("cam".to_owned(), mount)]));
    let sockets = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    ServerState { mounts, guard: Guard::default(), sockets, ports: [6000, 6001], players: 0 }
}

fn client() -> Client {
    let peer = "127.0.0.1:40000".parse().unwrap();
    Client::new(peer, "00112233445566778899aabbccddeeff".into(), START)
}

/// Sends a request; returns all that is written.
fn ask(client: &mut Client, server: &mut ServerState, text: &str, now: Instant) -> String {
    client.handle_bytes(format!("{text}\r\n\r\n").as_bytes(), server, now).unwrap();
    written(client, now)
}

fn written(client: &mut Client, now: Instant) -> String {
    let mut all = Vec::new();
    while let Some(bytes) = client.poll_transmit() {
        let bytes = bytes.to_vec();
        client.handle_written(bytes.len(), now);
        all.extend(bytes);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// A client that plays both tracks in its connection.
fn player(server: &mut ServerState) -> Client {
    let mut client = client();
    for track in 0..2 {
        let channels = format!("{}-{}", track * 2, track * 2 + 1);
        let text = format!(
            "SETUP rtsp://h/cam/track{track} RTSP/1.0\r\nTransport: RTP/AVP/TCP;interleaved={channels}"
        );
        assert!(ask(&mut client, server, &text, START).starts_with("RTSP/1.0 200 OK"));
    }
    let played = ask(&mut client, server, "PLAY rtsp://h/cam/ RTSP/1.0\r\nCSeq: 5", START);
    assert!(played.contains("CSeq: 5\r\n") && played.contains("200 OK"), "{played}");
    assert_eq!(server.players, 1);
    client
}

/// Hands on a packet of a frame; returns its bytes on the wire.
fn deliver(
    client: &mut Client,
    server: &ServerState,
    codec: Codec,
    kind: Kind,
    first: bool,
) -> Bytes {
    let payload = [7; 1000];
    let mut bytes = vec![0; packet_len(payload.len())];
    let header = Header {
        marker: true,
        payload_type: codec.payload_type(),
        sequence: 1,
        timestamp: 90_000,
        ssrc: 9,
    };
    let tag = FrameTag {
        seq: 1,
        kind,
        referenced: true,
        first,
        last: true,
        refs: References::NONE,
        left_ms: 0,
        deadline_ms: 0,
    };
    write_packet(&mut bytes, header, tag, &payload);
    let mount = &server.mounts["cam"];
    assert_eq!(mount.send(&bytes), client.is_playing());
    mount.take();
    client.deliver((&Packet::parse(&bytes).unwrap(), &bytes), mount, server, START)
}

#[test]
fn playing_begins_with_an_intra_picture_and_the_sound_with_it() {
    let mut server = server(None);
    let mut client = player(&mut server);
    let mut came =
        |codec, kind, first| deliver(&mut client, &server, codec, kind, first) > Bytes(0);
    assert!(!came(Codec::H264, Kind::Predicted, true));
    assert!(!came(Codec::Opus, Kind::Audio, true));
    assert!(!came(Codec::H264, Kind::Intra, false));
    assert!(came(Codec::H264, Kind::Intra, true));
    assert!(came(Codec::H264, Kind::Predicted, false));
    assert!(came(Codec::Opus, Kind::Audio, true));
    let written = written(&mut client, START);
    // Each begins with a report of its clock.
    assert_eq!(written.matches("selvedge/cam").count(), 2, "{written:?}");
}

#[test]
fn a_description_has_both_tracks_the_picture_first() {
    let mut server = server(None);
    let text =
        ask(&mut client(), &mut server, "DESCRIBE rtsp://h:1/cam RTSP/1.0\r\nCSeq: 2", START);
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Content-Base: rtsp://h:1/cam/\r\n"), "{head}");
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
    let at = |part: &str| body.find(part).unwrap_or_else(|| panic!("{part}: {body}"));
    assert!(at("m=video") < at("a=control:track0") && at("a=control:track0") < at("m=audio"));
    assert!(at("m=audio") < at("a=control:track1"));
    for (text, status) in [
        ("DESCRIBE rtsp://h/other RTSP/1.0", "404"),
        ("SETUP rtsp://h/cam/track7 RTSP/1.0\r\nTransport: RTP/AVP/TCP", "404"),
        ("SETUP rtsp://h/cam/track0 RTSP/1.0\r\nTransport: RTP/AVP;multicast", "461"),
        ("PLAY rtsp://h/cam RTSP/1.0", "454"),
        ("RECORD rtsp://h/cam RTSP/1.0", "501"),
        ("OPTIONS * RTSP/1.0", "200"),
    ] {
        let answer = ask(&mut client(), &mut server, text, START);
        assert!(answer.starts_with(&format!("RTSP/1.0 {status} ")), "{text}: {answer}");
    }
}

#[test]
fn who_hangs_or_takes_nothing_is_dropped_and_what_waits_is_bounded() {
    let mut server = server(None);
    let just = Duration(1);
    let mut idle = client();
    assert_eq!(idle.handle_timeout(&mut server, START + BEFORE), Ok(()));
    assert_eq!(idle.handle_timeout(&mut server, START + BEFORE + just), Err(Dropped::Idle));
    // Bytes that never become a request are no sign of life, and have an end.
    let mut slow = client();
    slow.handle_bytes(b"PLAY", &mut server, START + BEFORE).unwrap();
    assert_eq!(slow.handle_timeout(&mut server, START + BEFORE + just), Err(Dropped::Idle));
    let endless = (0..10).find_map(|_| slow.handle_bytes(&[b'a'; 1000], &mut server, START).err());
    assert_eq!(endless, Some(Dropped::Request(RequestError::TooLong)));

    let mut stuck = player(&mut server);
    deliver(&mut stuck, &server, Codec::H264, Kind::Intra, true);
    assert_eq!(stuck.handle_timeout(&mut server, START + STUCK), Ok(()));
    assert_eq!(stuck.handle_timeout(&mut server, START + STUCK + just), Err(Dropped::Stuck));
    let mut packets = 0;
    while stuck.handle_timeout(&mut server, START).is_ok() {
        deliver(&mut stuck, &server, Codec::H264, Kind::Predicted, true);
        packets += 1;
        assert!(packets < 2000);
    }
    assert!(stuck.waiting <= WAITING + 1100, "{}", stuck.waiting);

    let udp = "SETUP rtsp://h/cam/track0 RTSP/1.0\r\nTransport: RTP/AVP;client_port=7000-7001";
    let mut silent = client();
    let set_up = ask(&mut silent, &mut server, udp, START);
    assert!(set_up.contains("server_port=6000-6001") && set_up.contains(";timeout=60"), "{set_up}");
    ask(&mut silent, &mut server, "PLAY rtsp://h/cam RTSP/1.0", START);
    assert_eq!(silent.handle_timeout(&mut server, START + SILENT), Ok(()));
    silent.handle_report("127.0.0.1:7001".parse().unwrap(), START + just);
    silent.handle_report("127.0.0.1:9".parse().unwrap(), START + SILENT);
    silent.handle_report("10.0.0.1:7001".parse().unwrap(), START + SILENT);
    let over = START + SILENT + just;
    assert_eq!(silent.handle_timeout(&mut server, over), Ok(()));
    assert_eq!(silent.handle_timeout(&mut server, over + just), Err(Dropped::Silent));
}

#[test]
fn no_more_play_than_there_are_places_and_each_place_is_given_back() {
    let mut server = server(None);
    let mut first = player(&mut server);
    server.players = PLAYERS;
    let mut second = client();
    let set_up = "SETUP rtsp://h/cam/track0 RTSP/1.0\r\nTransport: RTP/AVP/TCP";
    ask(&mut second, &mut server, set_up, START);
    let refused = ask(&mut second, &mut server, "PLAY rtsp://h/cam RTSP/1.0", START);
    assert!(refused.starts_with("RTSP/1.0 453 "), "{refused}");
    assert_eq!(second.handle_timeout(&mut server, START), Err(Dropped::Ended));
    assert!(
        ask(&mut first, &mut server, "TEARDOWN rtsp://h/cam RTSP/1.0", START).contains("200 OK")
    );
    assert_eq!((server.players, first.is_playing()), (PLAYERS - 1, false));
    assert_eq!(server.mounts["cam"].players.load(Ordering::Relaxed), 0);
    assert_eq!(first.handle_timeout(&mut server, START), Err(Dropped::Ended));
}

#[test]
fn the_answer_to_a_wrong_login_comes_late_and_the_third_is_the_last() {
    let login = Login { user: "me".into(), password: "word".into() };
    let mut server = server(Some(login));
    let mut client = client();
    let describe = "DESCRIBE rtsp://h/cam RTSP/1.0";
    let challenged = ask(&mut client, &mut server, describe, START);
    assert!(challenged.contains("401") && challenged.contains("Digest realm="), "{challenged}");
    let wrong = format!(
        "{describe}\r\nAuthorization: Digest username=\"me\", nonce=\"x\", uri=\"a\", response=\"b\""
    );
    let mut now = START;
    for guess in 1..=3 {
        assert_eq!(ask(&mut client, &mut server, &wrong, now), "", "{guess}");
        assert!(!client.is_read());
        let due = client.poll_timeout().unwrap();
        assert_eq!(due.since(now), Duration::from_secs(1));
        client.handle_timeout(&mut server, due - Duration(1)).unwrap();
        assert_eq!(written(&mut client, now), "");
        now = due;
        client.handle_timeout(&mut server, now).unwrap();
        assert!(written(&mut client, now).starts_with("RTSP/1.0 401 "));
    }
    assert_eq!(client.handle_timeout(&mut server, now), Err(Dropped::Ended));
}

#[test]
fn the_link_is_charged_for_what_players_cost_beyond_one_packet() {
    let mut server = server(None);
    let mut players = [player(&mut server), client(), client()];
    let set_up = "SETUP rtsp://h/cam/track0 RTSP/1.0\r\nTransport: RTP/AVP;client_port=7000-7001";
    for client in &mut players[1..] {
        ask(client, &mut server, set_up, START);
        ask(client, &mut server, "PLAY rtsp://h/cam RTSP/1.0", START);
    }
    let mut wire = Bytes(0);
    for client in &mut players {
        deliver(client, &server, Codec::H264, Kind::Intra, true);
        // Without the report of the clock that goes with the first.
        wire += deliver(client, &server, Codec::H264, Kind::Predicted, true);
    }
    let packet = packet_len(1000) as u64;
    assert_eq!(wire, Bytes(3 * packet + 4 + TCP.0 + 2 * 28));
    let mount = &server.mounts["cam"];
    mount.charge(packet as usize, ([0; 4], 0).into(), wire);
    let owed = Bytes(mount.owed.load(Ordering::Relaxed));
    assert_eq!(owed, Bytes(2 * packet + 4 + TCP.0 + 28));
}
