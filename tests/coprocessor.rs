//! `selvedge run` with a link in a coprocessor: the page, the knobs and the last word as ever, a
//! coprocessor that is killed, and the paper's three paths by one word of the node file.

mod support;

use selvedge_data_stream::rtp::Packet;
use serde_json::Value;
use support::{
    CORRIDOR, Folder, Running, Stream, TIMEOUT, clip, coprocessor_is_built, file_source, http,
    node_file, sink,
};

/// A playout delay that no slowness of the machine uses up.
const PATIENT: &str = "delay = \"20 s\"";

fn frames(stream: &Value) -> u64 {
    stream["frames"].as_u64().unwrap_or_else(|| panic!("no frames in {stream}"))
}

#[test]
fn a_node_goes_on_over_the_death_of_its_coprocessor() {
    if !coprocessor_is_built("a_node_goes_on_over_the_death_of_its_coprocessor") {
        return;
    }
    let folder = Folder::new();
    let (_receiver, to) = sink();
    let source = file_source(&clip(CORRIDOR), true);
    let stream = Stream { name: "corridor", source, to, more: PATIENT };
    let link = "rate = \"20 Mbit/s\"\nplacement = \"coprocessor\"";
    let path = folder.write("node.toml", node_file(link, &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    let page = node.page();
    let sent = || http::stream(&page, "corridor")["sent"].as_u64().unwrap_or(0);
    support::until("frames are sent", || sent() >= 60);
    let (status, answer) =
        http::request(&page, "PATCH", "/api/v1/streams/corridor", "{\"priority\": -3}");
    assert_eq!(status, 200, "{answer}");
    support::until("the knob is turned", || http::stream(&page, "corridor")["priority"] == -3);

    // `setpriv` has become the program itself.
    let coprocessor = || support::child_named(node.id(), "selvedge-coproc");
    let killed = coprocessor().expect("it runs a coprocessor");
    support::kill("KILL", killed);
    support::until("another runs", || coprocessor().is_some_and(|new| new != killed));
    // Counters go on.
    let before = sent();
    assert!(before >= 60);
    support::until("frames are sent again", || sent() >= before + 20);
    assert_eq!(http::stream(&page, "corridor")["priority"], -3);
    node.signal("TERM");
    let last = node.end(TIMEOUT).json();
    let stream = &last["streams"][0];
    assert_eq!((&stream["state"], &stream["missed"]), (&"running".into(), &0.into()), "{stream}");
    // The new one takes what the old one sent as sent: nothing is given up for it.
    assert_eq!(stream["dropped"], serde_json::json!({}), "{stream}");
    assert!(stream["sent"].as_u64().unwrap_or(0) >= before + 20, "{stream}");
}

#[test]
fn one_word_of_the_node_file_chooses_the_path() {
    if !coprocessor_is_built("one_word_of_the_node_file_chooses_the_path") {
        return;
    }
    let folder = Folder::new();
    let to = support::free_port();
    let recording = folder.join("corridor.rtpdump");
    let url = format!("rtp://{to}");
    let play = support::play(&[&url, "--record", recording.to_str().expect("UTF-8")], to);
    let source = "test:jpeg?rate=50&size=160x120".to_owned();
    let stream = Stream { name: "card", source, to, more: PATIENT };
    let path = folder.write("record.toml", node_file("rate = \"20 Mbit/s\"", &[stream]));
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    let page = node.page();
    support::until("frames are sent", || frames(&http::stream(&page, "card")) >= 60);
    node.signal("TERM");
    node.end(TIMEOUT).json();
    let recorded = support::played(play)["frames"].as_u64().expect("a count");
    assert!(recorded >= 60);

    for placement in ["inline", "coprocessor", "coprocessor-reads"] {
        let (_receiver, to) = sink();
        let source = format!("record:{}?encoding=JPEG", recording.display());
        let link = format!("rate = \"20 Mbit/s\"\nplacement = \"{placement}\"");
        let stream = Stream { name: "card", source, to, more: PATIENT };
        let path = folder.write("node.toml", node_file(&link, &[stream]));
        // It ends by itself with its only source.
        let node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
        let last = node.end(TIMEOUT).json();
        let stream = &last["streams"][0];
        assert_eq!(stream["state"], "ended", "{placement}: {stream}");
        assert_eq!(frames(stream), recorded, "{placement}: {stream}");
        assert_eq!(stream["decodable"].as_u64(), Some(recorded), "{placement}: {stream}");
        assert_eq!(stream["dropped"], serde_json::json!({}), "{placement}: {stream}");
    }
}

/// The payloads of a node's only stream, in the order in which they come.
fn payloads(folder: &Folder, link: &str, source: &str) -> Vec<Vec<u8>> {
    let to = support::free_port();
    let recording = folder.join("received.rtpdump");
    let url = format!("rtp://{to}");
    let play = support::play(&[&url, "--record", recording.to_str().expect("UTF-8")], to);
    let stream = Stream { name: "film", source: source.to_owned(), to, more: PATIENT };
    let path = folder.write("node.toml", node_file(link, &[stream]));
    let node = Running::selvedge(["run".as_ref(), path.as_os_str(), "--json".as_ref()]);
    let last = node.end(TIMEOUT).json();
    assert_eq!(last["streams"][0]["dropped"], serde_json::json!({}), "{last}");
    support::played(play);
    let bytes = std::fs::read(&recording).expect("a recording");
    let packets = support::rtpdump(&bytes, to).into_iter();
    let payload =
        |(_, packet): (u32, Vec<u8>)| Packet::parse(&packet).map(|it| it.payload.to_vec());
    packets.map(|packet| payload(packet).expect("RTP")).collect()
}

#[test]
fn a_packed_file_is_sent_as_the_file_is() {
    if !coprocessor_is_built("a_packed_file_is_sent_as_the_file_is") {
        return;
    }
    let folder = Folder::new();
    let all = std::fs::read(clip("one-by-one-mpeg2.ts")).expect("the clip is there");
    let ts = folder.write("film.ts", &all[..188 * 900]);
    let mp4 = folder.join("film.mp4");
    let copied = support::ffmpeg([
        "-i".as_ref(),
        ts.as_os_str(),
        "-c".as_ref(),
        "copy".as_ref(),
        mp4.as_os_str(),
    ]);
    assert!(copied, "ffmpeg writes {}", mp4.display());
    for film in [&ts, &mp4] {
        let packed =
            support::selvedge(["pack".as_ref(), film.as_os_str(), "--json".as_ref()]).json();
        let [all, inline] = ["payload_bytes", "inline_bytes"].map(|key| packed[key].as_u64());
        assert!(inline.expect("a count") * 20 < all.expect("a count"), "{packed}");
        let source = format!("record:{}?encoding=MPV", packed["pack"].as_str().expect("a path"));
        let link = "rate = \"20 Mbit/s\"";
        let sent = payloads(&folder, link, &file_source(film, false));
        assert!(sent.len() > 100, "{} packets", sent.len());
        for placement in ["inline", "coprocessor-reads"] {
            let link = format!("{link}\nplacement = \"{placement}\"");
            assert!(payloads(&folder, &link, &source) == sent, "{placement}, {}", film.display());
        }
    }
    // A file that was changed is not what was packed.
    std::fs::write(&ts, [0; 188]).expect("the file is writable");
    let source = format!("record:{}.pack?encoding=MPV", ts.display());
    let stream = Stream { name: "film", source, to: support::free_port(), more: PATIENT };
    let path = folder.write("node.toml", node_file("rate = \"20 Mbit/s\"", &[stream]));
    support::selvedge(["check".as_ref(), path.as_os_str()])
        .refused(&["film.ts.pack", "was changed since it was packed; pack it again"]);
}
