//! Valid messages, and those that a compromised process might send.

use proptest::prelude::*;

use super::*;

const SOME: Duration = Duration::from_secs(3);

fn pair() -> (UnixStream, Inbox) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (theirs, Inbox::new(ours))
}

fn frame<'a>(unit: &'a [u8], packets: &'a [&'a [u8]]) -> MediaFrame<'a> {
    let refs = Some(References::to([1, 60]));
    MediaFrame {
        picture: Picture { kind: Kind::Bidirectional, referenced: true, closes: false, refs },
        media_time: SOME + SOME,
        decode_time: SOME,
        rtp_timestamp: 77,
        unit,
        packets,
    }
}

/// The result of a head and its bytes: the frame as text, and the time of the next.
fn taken(head: &FrameHead, bytes: &[u8], before: Duration) -> Option<(String, Duration)> {
    let mut seen = String::new();
    let at = head.take(bytes, before, |frame| seen = format!("{frame:?}"))?;
    Some((seen, at))
}

#[test]
fn a_frame_comes_as_it_was_sent() {
    let (theirs, mut inbox) = pair();
    let (first, second) = ([0x80; 20], [0x81; 12]);
    let packets: [&[u8]; 2] = [&first, &second];
    let (sent, mut bytes) = (frame(b"unit", &packets), Vec::new());
    let head = FrameHead::new(&sent, true, &mut bytes);
    send(&theirs, &Report::Frame(head), &bytes).unwrap();
    assert!(inbox.receive().unwrap().is_none(), "it was not read yet");
    let Some((Report::Frame(head), bytes)) = inbox.receive().unwrap() else { panic!("a frame") };
    assert_eq!(taken(&head, bytes, Duration::ZERO), Some((format!("{sent:?}"), SOME)));
    let (_, at) = taken(&head, bytes, SOME + SOME).unwrap();
    assert_eq!(at, SOME + SOME, "decoding time never goes back");
    drop(theirs);
    let ended = (0..3).find_map(|_| inbox.receive().err());
    assert!(matches!(ended, Some(ReceiveError::Closed(_))), "{ended:?}");
}

#[test]
fn what_is_no_frame_is_refused() {
    let packets: [&[u8]; 1] = [&[0x80; 12]];
    let mut bytes = Vec::new();
    let mut wrong = |change: fn(&mut FrameHead, &mut Vec<u8>)| {
        let mut head = FrameHead::new(&frame(b"", &packets), false, &mut bytes);
        assert!(taken(&head, &bytes, Duration::ZERO).is_some());
        change(&mut head, &mut bytes);
        assert_eq!(taken(&head, &bytes, Duration::ZERO), None, "{head:?}");
    };
    wrong(|head, _| head.packets = 0);
    wrong(|head, _| head.packets = 2);
    wrong(|head, _| head.packets = usize::MAX);
    wrong(|head, _| head.kind = 9);
    wrong(|head, _| head.decode_ns = u64::MAX);
    wrong(|head, _| head.media_ns = u64::MAX);
    wrong(|_, bytes| bytes[0] = 11);
    wrong(|_, bytes| bytes[1] = 1);
}

#[test]
fn what_is_no_stream_is_refused() {
    let info = || Info {
        encoding: "H264".into(),
        payload_type: 96,
        clock_rate: 90_000,
        fmtp: Some("packetization-mode=1".into()),
        channels: None,
        period_ns: 40_000_000,
        width: Some(640),
        height: None,
    };
    assert_eq!(Info::from(&info().checked().unwrap()).clock_rate, 90_000);
    let wrong = |change: fn(&mut Info)| {
        let mut info = info();
        change(&mut info);
        assert!(info.checked().is_none());
    };
    wrong(|info| info.encoding = "H266".into());
    wrong(|info| info.payload_type = 128);
    wrong(|info| info.clock_rate = 0);
    wrong(|info| info.period_ns = 0);
    wrong(|info| info.period_ns = u64::MAX);
    wrong(|info| info.channels = Some(0));
    // It would be another line of an SDP file.
    wrong(|info| info.fmtp = Some("a\r\nc=IN IP4 192.0.2.1".into()));
}

#[test]
fn no_length_makes_the_inbox_grow() {
    let (mut theirs, mut inbox) = pair();
    let lengths = [(1_u32, BYTES_MAX as u32 + 1), (REPORT_MAX as u32 + 1, 0)];
    for (text, bytes) in lengths {
        theirs.write_all(&[text.to_le_bytes(), bytes.to_le_bytes()].concat()).unwrap();
        inbox.bytes.clear();
        let refused = (0..2).find_map(|_| inbox.receive().err());
        assert!(matches!(refused, Some(ReceiveError::Malformed)), "{refused:?}");
    }
}

#[test]
fn texts_are_one_line_without_a_login() {
    let text = shown("no rtsp://me:hush@192.0.2.7/1\n\u{1b}[2J");
    assert_eq!(text, "no rtsp://***@192.0.2.7/1[2J");
}

proptest! {
    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), text in "[{}\":,a-zA-Z0-9]{0,40}") {
        let (mut theirs, mut inbox) = pair();
        let lengths = [(text.len() as u32).to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat();
        theirs.write_all(&[&lengths, text.as_bytes(), &bytes, &bytes].concat()).unwrap();
        drop(theirs);
        let mut left = 10;
        while let Ok(came) = inbox.receive() {
            if let Some((Report::Frame(head), bytes)) = came {
                let _ = taken(&head, bytes, Duration::ZERO);
            }
            left -= 1;
            prop_assert!(left > 0, "it ends");
        }
    }
}
