//! Node files that are wrong, from the outside: `check` and `run` refuse each with status 2, say
//! where it is wrong and what to do, and start nothing.

mod support;

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use support::{
    CORRIDOR, Folder, Running, Stream, TIMEOUT, beginning_of, clip, ffmpeg, file_source, node_file,
    selvedge, sink, skipped,
};

/// A node file that is right: line 3 is the page, 5 the link's rate, 7 to 9 the stream.
fn right(to: SocketAddr, source: &str) -> String {
    let stream =
        Stream { name: "lecture", source: source.to_owned(), to, more: "window = \"1/5\"" };
    node_file("rate = \"6 Mbit/s\"", &[stream])
}

fn command(name: &str, path: &Path) -> support::Ended {
    selvedge([name.as_ref(), path.as_os_str()])
}

/// Both commands refuse the file with these words behind its name, and send nothing.
fn refused(folder: &Folder, text: &str, receiver: &UdpSocket, said: &str, also: &[&str]) {
    let path = folder.write("node.toml", text);
    let said = format!("selvedge: {}{said}", path.display());
    let words: Vec<&str> = std::iter::once(said.as_str()).chain(also.iter().copied()).collect();
    for name in ["check", "run"] {
        let ended = command(name, &path);
        ended.refused(&words);
        assert!(!ended.stderr.contains("page: "), "{name}: {ended:?}");
    }
    nothing_came(receiver);
}

fn nothing_came(receiver: &UdpSocket) {
    receiver.set_nonblocking(true).expect("sockets can");
    let came = receiver.recv(&mut [0; 2000]);
    assert!(came.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "{came:?}");
}

#[test]
fn the_file_that_the_others_are_made_of_is_right() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let path = folder.write("node.toml", right(to, &file_source(&clip(CORRIDOR), true)));
    let ended = command("check", &path);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("is right"), "{ended:?}");
    let summary = selvedge(["check".as_ref(), path.as_os_str(), "--json".as_ref()]).json();
    assert_eq!(summary["streams"][0]["name"], "lecture");
    assert_eq!(summary["streams"][0]["window"], "1/5");
    let needed = summary["streams"][0]["offered_bps"].as_u64().expect("a file was measured");
    assert!((150_000..300_000).contains(&needed), "{needed}");
    // 6 Mbit/s carry it many times over, but the frames of a file differ in size.
    let admission = &summary["admission"][0];
    assert_eq!((&admission["link"], &admission["verdict"]), (&"uplink".into(), &"possible".into()));
}

#[test]
fn values_that_make_no_sense_are_refused_at_their_place() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let text = right(to, &file_source(&clip(CORRIDOR), true));
    let lines = text.lines().count();
    let end = lines + 1;
    // What to replace, by what, and what is said.
    let unknown = format!(":{end}:1: stream.lecture.windo: unknown key; did you mean \"window\"?");
    let period = format!(":{end}:10: stream.lecture.period: \"0 ms\" is out of range; write ");
    let bare = format!(":{end}:9: stream.lecture.delay: 40 has no unit; write ");
    let again = format!(":{end}:9: stream.lecture: is in line 6 already; ");
    let cases = [
        ("6 Mbit/s", "6", ":5:8: link.uplink.rate: ", "the unit is missing; write \"6 Mbit/s\""),
        ("6 Mbit/s", "0 Mbit/s", ":5:8: link.uplink.rate: ", "out of range; write"),
        ("1/5", "3/2", ":10:10: stream.lecture.window: ", "window 3/2 would lose more frames than"),
        ("127.0.0.1:0", "0.0.0.0:0", ":3:10: node.token: is missing", "listen at 127.0.0.1"),
        ("rate =", "rat =", ":5:1: link.uplink.rat: unknown key", "did you mean \"rate\"?"),
        ("rate =", "bitrate =", ":5:1: link.uplink.bitrate: unknown key", "did you mean \"rate\"?"),
        ("[link.uplink]", "[lnk.uplink]", ":4:", "unknown table"),
    ];
    for (good, bad, said, also) in cases {
        assert!(text.contains(good), "{good}");
        refused(&folder, &text.replacen(good, bad, 1), &receiver, said, &[also]);
    }
    for (line, said) in [
        ("windo = \"1/5\"", unknown),
        ("period = \"0 ms\"", period),
        ("delay = 40", bare),
        ("[stream.lecture]", again),
    ] {
        refused(&folder, &format!("{text}{line}\n"), &receiver, &said, &[]);
    }
}

#[test]
fn all_mistakes_are_told_at_once() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let text = right(to, &file_source(&clip(CORRIDOR), true));
    let text = text.replacen("6 Mbit/s", "6", 1).replacen("1/5", "3/2", 1);
    refused(&folder, &text, &receiver, ":5:8: link.uplink.rate: ", &[":10:10: stream.lecture.w"]);
}

#[test]
fn sources_that_gstreamer_can_not_make_get_exactly_their_messages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/bad/media");
    let entries = std::fs::read_dir(&folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let (files, messages): (Vec<_>, Vec<_>) =
        paths.partition(|path| path.extension().is_some_and(|end| end == "toml"));
    assert!(!files.is_empty() && files.len() == messages.len(), "{files:?} {messages:?}");
    for path in files {
        let said = std::fs::read_to_string(path.with_extension("txt")).expect("its message");
        for name in ["check", "run"] {
            let mut command = support::program(env!("CARGO_BIN_EXE_selvedge"));
            let file = path.file_name().expect("it has one");
            // GStreamer's own words come in the user's language.
            let command = command.current_dir(&folder).env("LC_ALL", "C").arg(name).arg(file);
            let ended = Running::start(command).end(TIMEOUT);
            ended.refused(&[]);
            let lines: String = said.lines().map(|line| format!("selvedge: {line}\n")).collect();
            assert_eq!(ended.stderr, lines, "{name}");
        }
    }
}

#[test]
fn files_that_are_no_media_are_refused() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    folder.write("text.mp4", "This is a text, whatever its name says.\n");
    folder.write("empty.mp4", "");
    // Neither a container nor text: the same bytes each time.
    let noise: Vec<u8> =
        (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    folder.write("noise.ts", noise);
    let at = ":7:10: stream.lecture.source: ";
    for (file, says) in [
        ("absent.mp4", "can't read \""),
        (".", "is not a video or audio file (a folder); give "),
        ("text.mp4", "is not a video or audio file ("),
        ("empty.mp4", "is not a video or audio file (an empty file); give "),
        ("noise.ts", "is not a video or audio file ("),
    ] {
        refused(&folder, &right(to, &format!("file:{file}")), &receiver, at, &[says]);
    }
}

#[test]
fn a_pipe_is_no_file() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let pipe = folder.join("pipe.mp4");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    let at = ":7:10: stream.lecture.source: ";
    // Who opens a pipe that nobody writes to waits for ever.
    refused(&folder, &right(to, "file:pipe.mp4"), &receiver, at, &["a pipe"]);
}

#[test]
fn an_encoding_that_is_not_carried_is_named() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let picture = "testsrc=size=160x120:rate=10:duration=1";
    let other = folder.join("other.mp4");
    let args = ["-f", "lavfi", "-i", picture, "-c:v", "mpeg4"].map(std::ffi::OsStr::new);
    if !ffmpeg(args.into_iter().chain([other.as_os_str()])) {
        return skipped("an_encoding_that_is_not_carried_is_named", "needs ffmpeg");
    }
    let at = ":7:10: stream.lecture.source: ";
    refused(
        &folder,
        &right(to, "file:other.mp4"),
        &receiver,
        at,
        &["is MPEG-4 part 2", "write ?encode=2 Mbit/s"],
    );
}

#[test]
fn a_clip_that_is_cut_off_is_refused() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let at = ":7:10: stream.lecture.source: ";
    for (name, kept) in [(CORRIDOR, 100_000), ("one-by-one-mjpeg.avi", 300_000)] {
        let whole = std::fs::read(clip(name)).expect("the clip is there");
        folder.write(name, &whole[..kept]);
        let says =
            [" is cut off: it would have ", "; copy it again, or keep what is there: ffmpeg "];
        refused(&folder, &right(to, &format!("file:{name}")), &receiver, at, &says);
    }
}

#[test]
fn media_that_end_before_their_index_give_what_is_there() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    folder.write("cut.mp4", beginning_of(CORRIDOR, 100_000));
    let path = folder.write("node.toml", right(to, "file:cut.mp4"));
    let ended = command("check", &path);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // About five seconds of video, and then the node has nothing left to do.
    let last = selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]).json();
    let stream = &last["streams"][0];
    assert_eq!(stream["state"], "ended", "{stream}");
    let frames = stream["frames"].as_u64().expect("a count");
    assert!((20..100).contains(&frames), "{stream}");
    assert_ne!(stream["detail"], "", "it says that the file is cut off: {stream}");
}

#[test]
fn a_taken_page_port_stops_a_node_before_it_sends() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = taken.local_addr().expect("bound").to_string();
    let text = right(to, &file_source(&clip(CORRIDOR), true)).replace("127.0.0.1:0", &listen);
    let path = folder.write("node.toml", text);
    let ended = command("run", &path);
    let said = format!("{}:3:10: node.listen: cannot listen on {listen}", path.display());
    ended.refused(&[&said, "the port is in use; stop the program"]);
    nothing_came(&receiver);
    // Whether a port is free is known only when it is taken: the file is right.
    assert_eq!(command("check", &path).code, Some(0));
}

#[test]
fn a_taken_port_of_an_rtp_source_stops_a_node() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let (_taken, listen) = sink();
    let text = right(to, &format!("rtp://{listen}?encoding=H264"));
    let path = folder.write("node.toml", text);
    let ended = command("run", &path);
    let said = format!("{}:7:10: stream.lecture.source: can't open {listen}", path.display());
    ended.refused(&[&said, "the port is free"]);
    nothing_came(&receiver);
}

#[test]
fn what_is_no_node_file_is_refused() {
    let folder = Folder::new();
    let binary = folder.write("binary.toml", [0x41, 0xff, 0xfe]);
    let absent = folder.join("absent.toml");
    // It has no length that could be seen before.
    let endless = Path::new("/dev/zero");
    for path in [binary.as_path(), &absent, endless, folder.path()] {
        for name in ["check", "run"] {
            command(name, path).refused(&[&format!("selvedge: {}: ", path.display())]);
        }
    }
}

#[test]
fn a_wrong_step_is_named_with_its_line_of_the_node_file_and_its_own() {
    let folder = Folder::new();
    let (receiver, to) = sink();
    let link = "[link.up]\nrate = \"20 Mbit/s\"\n[[link.up.step]]\ncode = \"thin.ec\"\nat = \"arrival\"\n\
                parameters = { keep = 3 }\n";
    let stream = format!("[stream.a]\nsource = \"test:video\"\nto = \"rtp://{to}\"\n");
    let text = link.to_owned() + &stream;
    refused(&folder, &text, &receiver, ":4:8: link.up.step.1.code: \"thin.ec\": No such file", &[]);
    for (code, said) in [
        (
            "{\n output.discard = input.color % param.keep; }",
            ":4:8: link.up.step.1.code: thin.ec:2:",
        ),
        ("{ }", ":6:14: link.up.step.1.parameters: thin.ec has no parameter \"keep\""),
    ] {
        folder.write("thin.ec", code);
        refused(&folder, &text, &receiver, said, &[]);
    }
    folder.write("thin.ec", "{ output.discard = input.number % param.keep; }");
    assert_eq!(command("check", &folder.join("node.toml")).code, Some(0));
}

#[test]
fn a_node_file_may_come_through_a_pipe() {
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let pipe = folder.join("node.toml");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()));
    let mut check = Running::selvedge(["check".as_ref(), pipe.as_os_str()]);
    // Opens once the other side does; without that it would wait for ever, should nobody come.
    let mut opened = None;
    check.until("opens the pipe", |_| {
        let mut how = std::fs::OpenOptions::new();
        opened = how.write(true).custom_flags(libc::O_NONBLOCK).open(&pipe).ok();
        opened.is_some()
    });
    let text = right(to, &file_source(&clip(CORRIDOR), true));
    opened.take().expect("the wait was for it").write_all(text.as_bytes()).expect("it is read");
    assert_eq!(check.end(TIMEOUT).code, Some(0));
}

#[test]
fn check_names_receivers_that_do_not_resolve_and_encodings_that_do_not_fit() {
    let folder = Folder::new();
    let text = |source: &str, to: &str| {
        let stream = format!("[stream.a]\nsource = \"{source}\"\nto = \"{to}\"\n");
        folder.write("node.toml", "[link.up]\nrate = \"20 Mbit/s\"\n".to_owned() + &stream)
    };
    let file = text("test:video", "rtp://nobody.invalid:5004");
    let checked = selvedge(["check", file.to_str().expect("a plain path")]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let warned = "warning: ";
    assert!(checked.stdout.contains(warned), "{checked:?}");
    assert!(checked.stdout.contains(":5:6: stream.a.to: \"nobody.invalid\" does not resolve"));
    let strict = selvedge(["check", "--strict", file.to_str().expect("a plain path")]);
    assert_eq!(strict.code, Some(1), "{strict:?}");
    for (to, takes) in [
        (
            "srt://127.0.0.1:9?passphrase=hush-hush-hush",
            "srt:// does not carry JPEG, but H264, H265, MPV",
        ),
        (
            "rtmp://127.0.0.1:9/live/hush-hush-hush",
            "rtmp:// does not carry JPEG, but H264, mpeg4-generic",
        ),
    ] {
        let file = text("test:jpeg", to);
        let checked = selvedge(["check", file.to_str().expect("a plain path")]);
        checked.refused(&[":5:6: stream.a.to: ", takes]);
        assert!(!format!("{checked:?}").contains("hush"));
    }
}
