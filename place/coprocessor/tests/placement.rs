//! Frames from producers through shared memory to the wire, streams that are added and removed, extensions,
//! recordings.

mod support;

use std::fs;

use selvedge_control_config::LinkConfig;
use selvedge_data_sched::{Discipline, Tree, TreeNode};
use selvedge_data_stream::{Contract, DropReason, Kind, Window, Windows};
use selvedge_os::control::ControlError;
use selvedge_place_coprocessor::client::{Attachment, ClientError, Program, producer_params};
use selvedge_place_coprocessor::message::Request;
use selvedge_place_coprocessor::server::remove_stale_sockets;
use selvedge_place_engine::receive::PacketTap;
use selvedge_place_engine::record::RtpDump;
use selvedge_units::{Bitrate, Bytes, Duration, Instant};
use serde_json::json;

use support::{add, coprocessor, ended, enqueue, numbers, receive_until, receiver, spec, until};

const AMPLE: Bitrate = Bitrate::from_mbps(100);

#[test]
fn sockets_of_dead_nodes_are_removed_and_no_others() {
    use std::os::unix::net::UnixListener;

    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("sockets-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let user = rustix::process::getuid().as_raw();
    let path = |link: &str, node: u32| folder.join(format!("selvedge-{user}-{link}-{node}.sock"));
    let stale = path("up-link", gone.id());
    let others =
        [path("up", std::process::id()), path("heard", gone.id()), folder.join("other.sock")];
    drop(UnixListener::bind(&stale).unwrap());
    drop(UnixListener::bind(&others[0]).unwrap());
    let _listens = UnixListener::bind(&others[1]).unwrap();
    drop(UnixListener::bind(&others[2]).unwrap());
    remove_stale_sockets(&folder);
    assert!(!stale.exists());
    assert!(others.iter().all(|path| path.exists()));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn frames_cross_in_order_and_are_counted() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("test", socket, None).unwrap();
    let (receiver, to) = receiver();
    let (place, mut frame_producer) = add(&attachment, "lecture", to);
    let mut next = 0;
    for number in 0..500 {
        until("there is room", || enqueue(&mut frame_producer, Kind::Still, number, 900).is_ok());
        receive_until(&receiver, |bytes| {
            let (got, _) = numbers(bytes);
            assert_eq!(got, next);
            next += 1;
            true
        });
    }
    until("all are counted", || attachment.report().streams[place].counts.totals.sent == 500);
    let report = attachment.report();
    assert_eq!((report.name.as_str(), report.discipline), ("test", "dwcs"));
    let stream = &report.streams[place];
    assert_eq!((stream.counts.totals.on_time, stream.counts.counters.violations), (500, 0));
    assert_eq!(stream.recent.queueing.count(), stream.recent.frames);
    let statistics = attachment.statistics().unwrap();
    assert_eq!(statistics.streams[0].producer, "test");
    assert!(statistics.streams[0].refused.is_empty(), "{statistics:?}");
    assert!(statistics.runs.contains("fair class"), "{}", statistics.runs);
}

#[test]
fn streams_come_and_go_while_others_run() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("stays", socket.clone(), None).unwrap();
    let (receiver, to) = receiver();
    let (_, mut stays) = add(&attachment, "stays", to);
    for number in 0..20 {
        let (other_receiver, other_to) = support::receiver();
        let other = Attachment::new("goes", socket.clone(), None).unwrap();
        let (_, mut goes) = add(&other, "goes", other_to);
        for n in 0..5 {
            enqueue(&mut goes, Kind::Still, n, 10).unwrap();
        }
        // It is removed with frames in its ring: they are sent all the same.
        drop(other);
        let mut came = 0;
        receive_until(&other_receiver, |_| {
            came += 1;
            came == 5
        });
        enqueue(&mut stays, Kind::Still, number, 10).unwrap();
        receive_until(&receiver, |bytes| numbers(bytes).0 == number);
        until("it is gone", || attachment.statistics().unwrap().streams.len() == 1);
    }
    assert_eq!(attachment.report().streams[0].counts.totals.sent, 20);
}

/// Three quarters to the streams below one node of a tree, a quarter to those below the other, by the program
/// that a node starts.
#[test]
fn a_tree_shares_the_link() {
    let node = |weight| TreeNode { parent: 0, weight };
    let link = LinkConfig {
        discipline: Discipline::Hwfq,
        tree: Tree::new(vec![node(3), node(1)], None).unwrap(),
        selection: false,
        queue: Some(Bytes(200_000)),
        // 456 bytes take 9 ms.
        ..support::link(Bitrate(400_000))
    };
    let socket = support::socket();
    let program = Program::new(&link, socket.clone(), &["--class", "fair", "--no-lock"]);
    let attachment = Attachment::new("test", socket, Some(program)).unwrap();
    let (receiver, to) = receiver();
    let mut frame_producers = [1, 2].map(|parent| {
        let mut spec = support::spec(&format!("below {parent}"), to);
        spec.contract.parent = parent;
        let params = producer_params(&spec, Bytes(1500), 7);
        attachment.add(spec, &params, None).unwrap().1
    });
    for number in 0..100 {
        for (frame_producer, from) in frame_producers.iter_mut().zip([0, 1000]) {
            enqueue(frame_producer, Kind::Still, from + number, 384).unwrap();
        }
    }
    let mut heavy = 0;
    let mut all = 0;
    receive_until(&receiver, |bytes| {
        heavy += u32::from(numbers(bytes).0 < 1000);
        all += 1;
        all == 80
    });
    assert!((54..=66).contains(&heavy), "{heavy} of 80");
}

/// A request directly after the reply finds the stream, and does not make the coprocessor forget it.
#[test]
fn a_stream_is_known_as_soon_as_it_was_added() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("test", socket, None).unwrap();
    let (_receiver, to) = receiver();
    for n in 1..=40 {
        let (place, _inlet) = add(&attachment, &format!("s{n}"), to);
        assert_eq!(attachment.statistics().unwrap().streams.len(), n);
        assert_eq!(attachment.report().streams.len(), place + 1);
    }
}

#[test]
fn a_place_is_free_behind_a_stream_that_was_removed() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("test", socket, None).unwrap();
    let (receiver, to) = receiver();
    let [(first, mut goes), (second, mut stays)] =
        ["goes", "stays"].map(|s| add(&attachment, s, to));
    for inlet in [&mut goes, &mut stays] {
        enqueue(inlet, Kind::Still, 1, 384).unwrap();
    }
    let mut left = 2;
    receive_until(&receiver, |_| {
        left -= 1;
        left == 0
    });
    let sent =
        |place: usize| attachment.report().of_stream(place).map(|stream| stream.counts.totals.sent);
    until("both are counted", || [sent(first), sent(second)] == [Some(1); 2]);
    attachment.remove(first);
    assert_eq!([sent(first), sent(second)], [None, Some(1)]);
    assert!(!attachment.set_priority(first, 3), "nothing is there");
    let (third, _inlet) = add(&attachment, "comes", to);
    assert_eq!(third, first);
    assert_eq!([sent(third), sent(second)], [Some(0), Some(1)]);
    attachment.remove(99);
}

#[test]
fn knobs_turn_from_outside() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("test", socket, None).unwrap();
    let (_receiver, to) = receiver();
    let (place, _inlet) = add(&attachment, "lecture", to);
    assert!(attachment.set_priority(place, -7));
    assert!(attachment.set_windows(place, Windows::Whole(Window { lose: 2, of: 9 })));
    assert!(attachment.set_rate(Bitrate::from_mbps(3)));
    let before = attachment.report().streams[place].contract;
    let (period, delay) = (Duration::from_millis(20), Some(Duration::from_secs(2)));
    let windows = Windows::Whole(Window { lose: 2, of: 9 });
    let terms = Contract { period, delay, weight: 5, windows, priority: -7, ..before };
    assert!(attachment.set_terms(place, &terms));
    until("the report says so", || {
        let report = attachment.report();
        let contract = &report.streams[place].contract;
        report.rate == Bitrate::from_mbps(3)
            && *contract == terms
            && contract.priority == -7
            && contract.windows == Windows::Whole(Window { lose: 2, of: 9 })
    });
    for bad in [
        Request::Turn { stream: 0, priority: Some(5000), windows: None },
        Request::Turn {
            stream: 0,
            priority: None,
            windows: Some(Windows::Whole(Window { lose: 3, of: 2 })),
        },
        Request::Turn { stream: 99, priority: Some(1), windows: None },
        Request::Rate { bps: 0 },
    ] {
        let error = attachment.ask(bad.clone()).unwrap_err();
        assert!(
            matches!(error, ClientError::Control(ControlError::Refused(_))),
            "{bad:?}: {error}"
        );
    }
}

#[test]
fn extensions_are_loaded_shown_and_removed_while_frames_flow() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("test", socket, None).unwrap();
    let (receiver, to) = receiver();
    let (place, mut frame_producer) = add(&attachment, "lecture", to);
    let load = |name: &str, extension: &str, point: &str, arguments| {
        attachment.ask(Request::Load {
            name: name.into(),
            extension: extension.into(),
            point: point.into(),
            arguments,
        })
    };
    load("no stills", "discard", "arrival", json!({ "kind": "still" })).unwrap();
    load("before", "none", "choice", json!(null)).unwrap();
    load("after", "none", "dispatch", json!(null)).unwrap();
    for (extension, point, words) in [
        ("discard", "miss", "can't stand at"),
        ("absent", "arrival", "there is no extension"),
        ("discard", "arrival", "write {"),
    ] {
        let error = load("bad", extension, point, json!(null)).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    for number in 0..10 {
        enqueue(&mut frame_producer, Kind::Still, number, 10).unwrap();
        enqueue(&mut frame_producer, Kind::Data, 1000 + number, 10).unwrap();
        receive_until(&receiver, |bytes| numbers(bytes).0 == 1000 + number);
    }
    until("the cost is shown", || {
        let shown = attachment.statistics().unwrap().extensions;
        let calls = |name: &str| shown.iter().find(|e| e.name == name).map_or(0, |e| e.calls);
        calls("no stills") == 20 && calls("after") == 10 && calls("before") >= 10
    });
    let shown = attachment.statistics().unwrap().extensions;
    assert_eq!(shown[0].discarded, 10, "{shown:?}");
    assert!(shown.iter().all(|e| e.longest_ns > 0 && e.mean_ns <= e.longest_ns as f64));
    attachment.ask(Request::Unload { name: "no stills".into() }).unwrap();
    assert!(attachment.ask(Request::Unload { name: "no stills".into() }).is_err());
    enqueue(&mut frame_producer, Kind::Still, 77, 10).unwrap();
    receive_until(&receiver, |bytes| numbers(bytes).0 == 77);
    let counts = attachment.report().streams[place].counts.clone();
    let (totals, sent_bytes) = (counts.totals, counts.sent_bytes);
    assert_eq!(totals.dropped[DropReason::Full as usize], 10, "{totals:?}");
    // All frames are of one size.
    assert_eq!(totals.dropped_bytes.0 * totals.sent, sent_bytes.0 * 10, "{totals:?}");
}

/// By the program, as a person would: each request is a command of its own.
#[test]
fn steps_in_e_code_are_loaded_and_removed_by_command() {
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("test", socket.clone(), None).unwrap();
    let (receiver, to) = receiver();
    let (_, mut frame_producer) = add(&attachment, "lecture", to);
    let folder = socket.with_extension("steps");
    std::fs::create_dir(&folder).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.into_os_string().into_string().unwrap()
    };
    let ask = |arguments: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_selvedge-coproc"));
        ended(command.arg("--socket").arg(&socket).args(arguments))
    };
    // Every other still is discarded; an extension that never ends is ended each time.
    let thin = file(
        "thin.ec",
        "{ static long n; if (input.kind == KIND_STILL && ++n % 2 == 1) output.discard = 1; }",
    );
    let endless = file("endless.ec", "{ while (1) output.raise = 1; }");
    let load = |name: &str, point: &str, code: &str| {
        ask(&["load", name, "--point", point, "--code", code, "--fuel", "1000"])
    };
    let done = (Some(0), String::new(), String::new());
    assert_eq!(load("thin", "arrival", &thin), done);
    assert_eq!(load("endless", "dispatch", &endless), done);
    for number in 0..10 {
        enqueue(&mut frame_producer, Kind::Still, number, 10).unwrap();
    }
    receive_until(&receiver, |bytes| numbers(bytes).0 == 9);
    until("the cost is shown", || {
        let (code, out, err) = ask(&["steps", "--json"]);
        assert_eq!((code, err.as_str()), (Some(0), ""));
        let steps: serde_json::Value = serde_json::from_str(&out).unwrap();
        let count = |n: usize, key: &str| steps[n][key].as_u64().unwrap();
        assert!(count(0, "longest_ns") < 1_000_000_000, "{out}");
        (count(0, "calls"), count(0, "discarded"), count(1, "faults")) == (10, 5, 5)
    });
    let table = ask(&["steps"]).1;
    assert!(table.contains("thin") && table.contains("faults"), "{table}");
    // An invalid extension is refused with the position of its fault, and the running one stays.
    let bad = file("bad.ec", "{\n  output.discard = input.colour;\n}");
    let (code, _, err) = load("thin", "arrival", &bad);
    assert_eq!(code, Some(2));
    assert!(err.contains("bad.ec:2:26: ") && err.contains("colour"), "{err}");
    assert_eq!(load("thin", "lunch", &thin).0, Some(2));
    assert_eq!(ask(&["load", "x", "--point", "miss", "--code", "/no/such"]).0, Some(2));
    assert_eq!(ask(&["unload", "thin"]), done);
    assert_eq!(ask(&["unload", "thin"]).0, Some(2));
    for number in 20..22 {
        enqueue(&mut frame_producer, Kind::Still, number, 10).unwrap();
        receive_until(&receiver, |bytes| numbers(bytes).0 == number);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A recording of `frames` frames of two packets, a millisecond apart, made by the recorder itself.
fn recording(path: &std::path::Path, frames: u32) {
    use selvedge_data_stream::rtp::{FrameTag, Header, packet_len, write_packet};
    let at = "127.0.0.1:5004".parse().unwrap();
    let mut dump =
        RtpDump::new(Vec::new(), 0, at, Instant(0), std::time::SystemTime::UNIX_EPOCH).unwrap();
    for seq in 0..frames {
        for (first, last) in [(true, false), (false, true)] {
            let tag = FrameTag {
                seq,
                kind: if seq % 50 == 0 { Kind::Intra } else { Kind::Predicted },
                referenced: true,
                first,
                last,
                refs: selvedge_data_stream::References::to([1]),
                left_ms: 0,
                deadline_ms: 0,
            };
            let header = Header {
                marker: last,
                payload_type: 96,
                sequence: 2 * seq as u16 + u16::from(last),
                timestamp: seq * 90,
                ssrc: 3,
            };
            let mut packet = vec![0; packet_len(300)];
            let mut payload = [0; 300];
            payload[..4].copy_from_slice(&seq.to_be_bytes());
            write_packet(&mut packet, header, tag, &payload);
            dump.packet(0, Instant(u64::from(seq) * 1_000_000), &packet);
        }
    }
    fs::write(path, dump.finish().unwrap()).unwrap();
}

#[test]
fn the_coprocessor_reads_a_recording_itself() {
    let file = std::env::temp_dir().join(format!("selvedge-{}.rtpdump", std::process::id()));
    recording(&file, 700);
    let (_coprocessor, socket) = coprocessor(AMPLE);
    let attachment = Attachment::new("test", socket, None).unwrap();
    let (receiver, to) = receiver();
    let path = file.to_str().unwrap();
    let place = attachment.read(spec("recorded", to), (path, false), 9, None).unwrap();
    let mut next = (0, false);
    receive_until(&receiver, |bytes| {
        let (number, seq) = numbers(bytes);
        assert_eq!((number, seq), (next.0, next.0));
        next = if next.1 { (next.0 + 1, false) } else { (next.0, true) };
        next.0 == 700
    });
    until("it has ended", || attachment.source(place) == (None, true));
    until("all are counted", || attachment.report().streams[place].counts.totals.sent == 700);
    for (bytes, words) in [(&b"MPEG"[..], "not an rtpdump file"), (b"", "not an rtpdump file")] {
        fs::write(&file, bytes).unwrap();
        let error =
            attachment.read(spec("bad", to), (path, false), 9, None).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    fs::remove_file(&file).unwrap();
    let error = attachment.read(spec("none", to), (path, false), 9, None).unwrap_err().to_string();
    assert!(error.contains("No such file"), "{error}");
}
