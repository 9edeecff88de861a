//! `selvedge sim` from the outside: tables, JSON, seeds, captures, drawings, the life of a frame, and what is
//! refused. Clips are read through GStreamer; all else is virtual time.

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{CORRIDOR, Ended, Folder, Stream, clip, file_source, node_file, selvedge};

const STUDIO: [&str; 2] = ["--node", "scenarios/studio.toml"];

/// A node's only stream, the clip of the corridor at 10 frames/s, over one link.
fn node(folder: &Folder, to: &str) -> String {
    let (source, to) = (file_source(&clip(CORRIDOR), true), to.parse().expect("an address"));
    let more = "window = \"1/5\"\ndelay = \"500 ms\"\n";
    let text = node_file("rate = \"4 Mbit/s\"", &[Stream { name: "lecture", source, to, more }]);
    folder.write("node.toml", text).display().to_string()
}

/// Two hosts, and a link of these keys.
fn network(folder: &Folder, keys: &str) -> String {
    let text = format!(
        "[network]\nname = \"own\"\nsource = \"made up\"\nlasts = \"20 s\"\n[host.near]\naddress = \"10.1.0.1\"\n\
         [host.far]\n[link.way]\nbetween = [\"near\", \"far\"]\ndelay = \"30 ms\"\n{keys}"
    );
    folder.write("own.toml", text).display().to_string()
}

fn sim<const N: usize>(args: [&str; N]) -> Ended {
    selvedge(["sim"].into_iter().chain(args))
}

/// The numbers under this key of each of a run's streams.
fn of_streams(run: &Value, key: &str) -> Vec<f64> {
    let streams = run["streams"].as_array().expect("streams");
    streams.iter().map(|stream| stream[key].as_f64().expect(key)).collect()
}

#[test]
fn a_node_needs_no_file_of_the_users_to_be_tried_on_a_network() {
    let [node, studio] = STUDIO;
    let good = sim([node, studio, "--network", "lte-good", "--json"]).json();
    assert_eq!(of_streams(&good, "decodable"), [1.0; 5], "{good}");
    let bad = sim([node, studio, "--network", "lte-bad", "--json"]).json();
    assert!(of_streams(&bad, "decodable").iter().all(|share| *share < 0.5), "{bad}");
    // Frames leave the node; the network's queue is what is too small for them.
    assert_eq!(of_streams(&bad, "sent"), [1.0; 5], "{bad}");
    assert!(bad["hops"][0]["dropped"]["full"].as_u64() > Some(100), "{bad}");
    assert_eq!(good["hops"][0]["dropped"]["full"], 0, "{good}");
    let text = sim([node, studio, "lte-bad"]).stdout;
    for word in ["Simulated: lte-bad", "made up", "car-park", "decodable", "cell", "queue median"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
}

#[test]
fn what_leaves_a_node_last_counts_too_behind_frames_that_did_not() {
    let folder = Folder::new();
    let source = file_source(&clip("one-by-one-mjpeg.avi"), true);
    let (to, more) = ("192.0.2.9:5004".parse().expect("an address"), "delay = \"500 ms\"\n");
    let text = node_file("rate = \"200 kbit/s\"", &[Stream { name: "stills", source, to, more }]);
    let node = folder.write("node.toml", text).display().to_string();
    let run = sim([&network(&folder, ""), "--node", &node, "--json"]).json();
    let shares = ["sent", "delivered"].map(|key| of_streams(&run, key));
    assert!(shares[0] == shares[1] && shares[0][0] < 0.9, "{run}");
}

#[test]
fn a_seed_gives_the_same_lines_and_seeds_show_their_spread() {
    let of = |seed: &str| {
        let run = sim(["conference-room", "--seconds", "10", "--json", "--seed", seed]);
        let goodput = run.json()["traffic"][0]["goodput_bps"].as_f64().expect("a rate") / 1e6;
        (run.stdout, goodput)
    };
    let runs = ["3", "4", "5"].map(of);
    assert_eq!(of("4").0, runs[1].0);
    let mut found = runs.map(|(_, goodput)| goodput);
    found.sort_by(f64::total_cmp);
    assert!(found[0] < found[2], "{found:?}");
    let spread = sim(["conference-room", "--seconds", "10", "--json", "--seeds", "3..5"]).json();
    let row = &spread["spread"][0];
    assert_eq!(row["name"], "uploads 1, near to far");
    let shown = ["least", "median", "largest"].map(|name| row[name].as_f64().expect(name));
    assert_eq!(shown, found, "{spread}");
}

#[test]
fn tshark_reads_a_capture_and_counts_what_the_hop_does() {
    let folder = Folder::new();
    let (pcap, svg) = (folder.join("far.pcap"), folder.join("far.svg"));
    let (pcap, svg) = (pcap.to_str().expect("a name"), svg.to_str().expect("a name"));
    let [node, studio] = STUDIO;
    let run = sim([node, studio, "lte-bad", "--json", "--pcap", pcap, "--plot", svg]).json();
    let mut tshark = Command::new("tshark");
    tshark.args([
        "-r",
        pcap,
        "-T",
        "fields",
        "-e",
        "ip.len",
        "-e",
        "ip.src",
        "-e",
        "_ws.malformed",
    ]);
    let read = tshark.output().expect("tshark runs");
    assert!(read.status.success(), "{read:?}");
    let lines = String::from_utf8(read.stdout).expect("a text");
    let lens: Vec<u64> = lines
        .lines()
        .map(|line| {
            let (len, source) = line.split_once('\t').expect("two fields");
            assert!(source.trim_end().starts_with("10."), "{line}");
            len.parse().expect("a length")
        })
        .collect();
    assert!(lens.len() > 1000);
    assert_eq!(Some(lens.len() as u64), run["hops"][0]["arrived"].as_u64());
    let drawing = std::fs::read_to_string(svg).expect("a drawing");
    assert!(drawing.starts_with("<svg ") && drawing.trim_end().ends_with("</svg>"));
    assert_eq!(drawing.matches("<polyline").count(), 5, "a line for each stream");
}

#[test]
fn the_life_of_a_frame_is_printed_from_arrival_to_verdict() {
    let folder = Folder::new();
    let node = node(&folder, "192.0.2.9:5004");
    let life = |keys: &str| {
        let network = network(&folder, keys);
        sim([&network, "--node", &node, "--explain", "lecture:21"]).stdout
    };
    let good = life("");
    let in_order = [
        "comes to the link",
        "packet 1 leaves",
        "sent whole",
        "comes to far",
        "decodes it on time",
    ];
    let places =
        in_order.map(|words| good.find(words).unwrap_or_else(|| panic!("{words}: {good}")));
    assert!(places.is_sorted(), "{good}");
    let bad = life("outages = { every = \"2 s\", lasts = \"1500 ms\" }");
    assert!(bad.contains("is lost on the way from near: the link is down"), "{bad}");
    assert!(!bad.contains("decodes it on time"), "{bad}");
}

#[test]
fn frames_of_a_clip_and_of_its_list_go_as_those_of_a_node_do() {
    let folder = Folder::new();
    let own = node(&folder, "192.0.2.9:5004");
    let traffic = |frames: &str| {
        format!(
            "[sender.up]\nhost = \"near\"\nrate = \"4 Mbit/s\"\n[traffic.lecture]\nkind = \"frames\"\n\
             from = \"near\"\nto = \"far\"\nlink = \"up\"\nframes = \"{frames}\"\nperiod = \"100 ms\"\n\
             window = \"1/5\"\ndelay = \"500 ms\"\n"
        )
    };
    let by_node = sim([&network(&folder, ""), "--node", &own, "--json"]).json();
    let clip = clip(CORRIDOR).display().to_string();
    let by_clip = sim([&network(&folder, &traffic(&clip)), "--json"]).json();
    let [frames, packets] =
        ["frames", "packets"].map(|key| move |run: &Value| of_streams(run, key));
    assert!(frames(&by_node)[0] > 100.0, "{by_node}");
    assert_eq!(frames(&by_node), frames(&by_clip), "{by_node} {by_clip}");
    // A payloader of a node sends parameter sets in packets of their own.
    assert!(packets(&by_node) > packets(&by_clip), "{by_node} {by_clip}");
    folder.write("list.txt", "Ir 9000\nPr 900 1\nB 90 1\n");
    let by_list = sim([&network(&folder, &traffic("list.txt")), "--json"]).json();
    assert_eq!(of_streams(&by_list, "decodable"), [1.0], "{by_list}");
    assert_ne!(packets(&by_list), packets(&by_clip));
}

#[test]
fn random_networks_and_those_of_a_user_are_held_to_promises() {
    let fuzz = selvedge(["sim", "fuzz", "--seeds", "30", "--json"]).json();
    assert_eq!((&fuzz["seeds"], &fuzz["broken"]), (&Value::from(30), &Value::Null), "{fuzz}");
    let folder = Folder::new();
    let noise = |rate: &str| {
        format!(
            "[traffic.noise]\nkind = \"on-off\"\nfrom = \"far\"\nto = \"near\"\nrate = \"{rate}\"\n\
             packet = \"28 B\"\non = \"10 s\"\noff = \"0 ms\"\n[link.way.back]\ndelay = \"60 s\"\n"
        )
    };
    sim(["lte-bad", "--check"]).refused(&["lte-bad: nothing sends"]);
    let kept = sim([&network(&folder, &noise("10 kbit/s")), "--check"]);
    assert!(kept.stdout.contains("own kept all"), "{kept:?}");
    // More packets are under way than any network of the fuzz has.
    let broken = sim([&network(&folder, &noise("1 Gbit/s")), "--check", "--json"]);
    assert_eq!(broken.code, Some(1), "{broken:?}");
    assert!(broken.stderr.contains("alive broken: more than 200000 packets"), "{broken:?}");
    let listed: Value = serde_json::from_str(&broken.stdout).expect("JSON");
    assert_eq!(listed["broken"][0]["promise"], "alive", "{listed}");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_its_place_and_a_remedy() {
    let folder = Folder::new();
    let file = |text: &str| folder.write("list.txt", text).display().to_string();
    let own = network(&folder, "");
    sim([&own]).refused(&["own: nothing sends", "add [traffic.NAME]"]);
    sim(["lte-bda"]).refused(&["lte-bda", "did you mean lte-bad?"]);
    let to_itself = node(&folder, "10.1.0.1:5004");
    sim([&own, "--node", &to_itself]).refused(&["node.toml:8:6", "stream.lecture.to", "10.1.0.1"]);
    sim(["lte-bad", "--node", "scenarios/camera.toml"])
        .refused(&["camera.toml:12:", "it is no file"]);
    sim(["lte-bad", "--node", "scenarios/stack.toml"])
        .refused(&["stack.toml:", "not simulated yet"]);
    let [node, studio] = STUDIO;
    let lte = |more: [&str; 2]| sim([node, studio, "lte-bad", more[0], more[1]]);
    lte(["--explain", "lecture:1"]).refused(&["no stream \"lecture\"", "lobby"]);
    lte(["--explain", "lobby"]).refused(&["STREAM:FRAME"]);
    lte(["--seeds", "9..1"]).refused(&["9..1", "1..1000"]);
    sim(["dsl", node, studio, "--pcap", "x.pcap", "--at", "fra"])
        .refused(&["--at fra", "near, far"]);
    let list = file("Ir 9000\nQ 4\n");
    let traffic = format!(
        "[sender.up]\nhost = \"near\"\nrate = \"4 Mbit/s\"\n[traffic.t]\nkind = \"frames\"\nfrom = \"near\"\n\
         to = \"far\"\nlink = \"up\"\nframes = \"{list}\"\n"
    );
    sim([&network(&folder, &traffic)]).refused(&["own.toml:19:10", "line 2: \"Q\" is no kind"]);
    let unwritable = lte(["--plot", "/nonexistent/x.svg"]);
    assert_eq!((unwritable.code, unwritable.stdout.as_str()), (Some(1), ""), "{unwritable:?}");
    assert!(!Path::new("x.pcap").exists());
}
