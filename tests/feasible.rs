//! Set-ups that can't be: `check` ends with status 1 and names changes, each of which, made in the file,
//! makes it end with 0; `run` says the same and starts, `run --strict` does not.

mod support;

use std::net::{SocketAddr, UdpSocket};

use serde_json::Value;
use support::{CORRIDOR, Ended, Folder, Running, TIMEOUT, clip, file_source, selvedge, sink};

const SPEECH: &str = "10001-90210-01803.wav";

/// A node file of these links, and of streams: name, link, clip, more keys. The sockets are their
/// receivers.
fn file(links: &str, streams: &[(&str, &str, &str, &str)]) -> (String, Vec<UdpSocket>) {
    let mut text = format!("[node]\nlisten = \"127.0.0.1:0\"\n{links}\n");
    let mut receivers = Vec::new();
    for (name, link, media, more) in streams {
        let (socket, to): (UdpSocket, SocketAddr) = sink();
        let source = file_source(&clip(media), true);
        text += &format!(
            "[stream.{name}]\nlink = \"{link}\"\nsource = '{source}'\nto = \"rtp://{to}\"\n\
             thumbnail = false\n{more}\n"
        );
        receivers.push(socket);
    }
    (text, receivers)
}

/// The file with a key of one table set: `link.uplink.rate = "2 Mbit/s"`, as a person would.
fn with(text: &str, change: &Value) -> String {
    let key = change["key"].as_str().expect("a path");
    let (table, key) = key.rsplit_once('.').expect("a key in a table");
    let line = format!("{key} = {}", change["value"]);
    let header = format!("[{table}]");
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| *line == header).expect("the table is there");
    let end = lines[at + 1..].iter().position(|line| line.starts_with('['));
    let end = end.map_or(lines.len(), |end| at + 1 + end);
    let is_key = |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| name == key);
    match lines[at..end].iter().position(is_key) {
        Some(old) => lines[at + old] = &line,
        None => lines.insert(at + 1, &line),
    }
    lines.join("\n") + "\n"
}

fn check(folder: &Folder, text: &str) -> Ended {
    selvedge(["check".as_ref(), folder.write("node.toml", text).as_os_str()])
}

/// What `check --json` says does not fit: status 1, and the same in words.
fn infeasible(folder: &Folder, text: &str) -> Vec<Value> {
    let path = folder.write("node.toml", text);
    let ended = selvedge(["check".as_ref(), path.as_os_str(), "--json".as_ref()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let said: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    let found = said["infeasible"].as_array().expect("a list").clone();
    let words = check(folder, text);
    assert_eq!((words.code, &words.stderr), (Some(1), &ended.stderr), "{words:?}");
    assert!(!words.stdout.contains("is right") && !words.stdout.contains(" ns"), "{words:?}");
    assert!(words.stdout.contains("node.toml asks for too much: node"), "{words:?}");
    for misfit in &found {
        let shortfall = &misfit["shortfalls"][0];
        let (key, what) = (shortfall["key"].as_str().unwrap(), shortfall["text"].as_str().unwrap());
        assert!(words.stderr.contains(&format!(": {key}: {what}")), "{words:?}");
        for change in
            misfit["remedies"].as_array().unwrap().iter().flat_map(|all| all.as_array().unwrap())
        {
            let named = format!("{} = {}", change["key"].as_str().unwrap(), change["value"]);
            assert!(words.stderr.contains(&named), "no {named} in {words:?}");
        }
    }
    found
}

/// One remedy of each link, made in the file, is enough; so each is tried, beside the first of the others.
fn every_remedy_holds(folder: &Folder, text: &str, links: &[&str]) -> Vec<Value> {
    let found = infeasible(folder, text);
    let names: Vec<_> = found.iter().map(|misfit| misfit["link"].as_str().unwrap()).collect();
    assert_eq!(names, links);
    let remedies = |misfit: &Value| misfit["remedies"].as_array().unwrap().clone();
    let most = found.iter().map(|misfit| remedies(misfit).len()).max().expect("some link");
    assert!(found.iter().all(|misfit| !remedies(misfit).is_empty()), "{found:?}");
    for n in 0..most {
        let of_link = |misfit: &Value| remedies(misfit).into_iter().cycle().nth(n).unwrap();
        let changes = found.iter().flat_map(|misfit| of_link(misfit).as_array().unwrap().clone());
        let better = changes.fold(text.to_owned(), |text, change| with(&text, &change));
        let ended = check(folder, &better);
        assert_eq!(ended.code, Some(0), "{ended:?}\n{better}");
        assert!(ended.stdout.contains("node.toml is right: node"), "{ended:?}");
    }
    found
}

#[test]
fn one_streams_intra_picture_is_too_large() {
    let folder = Folder::new();
    let streams =
        [("lobby", "uplink", CORRIDOR, "delay = \"60 ms\""), ("hall", "uplink", CORRIDOR, "")];
    let (text, _receivers) = file("[link.uplink]\nrate = \"1 Mbit/s\"", &streams);
    let found = every_remedy_holds(&folder, &text, &["uplink"]);
    assert_eq!(found[0]["shortfalls"][0]["key"], "stream.lobby.delay");
    let keys: Vec<_> =
        found[0]["remedies"].as_array().unwrap().iter().map(|all| &all[0]["key"]).collect();
    assert_eq!(keys, ["link.uplink.rate", "stream.lobby.delay"]);
}

#[test]
fn many_streams_are_too_much() {
    let folder = Folder::new();
    let names: Vec<String> = (0..6).map(|n| format!("s{n}")).collect();
    let streams: Vec<_> =
        names.iter().map(|name| (name.as_str(), "uplink", CORRIDOR, "")).collect();
    // 1.2 Mbit/s in all, 0.96 of which must be sent.
    let (text, _receivers) = file("[link.uplink]\nrate = \"800 kbit/s\"", &streams);
    let found = every_remedy_holds(&folder, &text, &["uplink"]);
    assert_eq!(found[0]["shortfalls"][0]["key"], "link.uplink.rate");
    let windows = found[0]["remedies"][1].as_array().unwrap();
    assert!(windows.iter().all(|change| change["key"].as_str().unwrap().ends_with(".window")));
    // Nine times what the link carries: under edf, which knows no windows, only a faster link helps.
    let link = "[link.uplink]\nrate = \"140 kbit/s\"\ndiscipline = \"edf\"";
    let (text, _receivers) = file(link, &streams);
    let found = every_remedy_holds(&folder, &text, &["uplink"]);
    assert_eq!(found[0]["remedies"].as_array().unwrap().len(), 1);
    assert_eq!(found[0]["remedies"][0][0]["key"], "link.uplink.rate");
}

#[test]
fn each_of_several_links_gets_its_own_change() {
    let folder = Folder::new();
    let links = "[link.fast]\nrate = \"20 Mbit/s\"\n[link.slow]\nrate = \"150 kbit/s\"\n\
                 [link.narrow]\nrate = \"500 kbit/s\"";
    let streams = [
        ("a", "fast", CORRIDOR, ""),
        ("b", "slow", CORRIDOR, "window = \"0/1\""),
        ("c", "narrow", CORRIDOR, "delay = \"40 ms\""),
    ];
    let (text, _receivers) = file(links, &streams);
    every_remedy_holds(&folder, &text, &["slow", "narrow"]);
}

#[test]
fn sound_beside_video_keeps_its_window() {
    let folder = Folder::new();
    let streams = [
        ("lobby", "uplink", CORRIDOR, "window = \"1/5\""),
        ("speech", "uplink", SPEECH, "window = \"0/1\"\ndelay = \"200 ms\""),
    ];
    // Speech takes 281 kbit/s, video 200, and a fifth of that may go.
    let (text, _receivers) = file("[link.uplink]\nrate = \"400 kbit/s\"", &streams);
    let found = every_remedy_holds(&folder, &text, &["uplink"]);
    let remedies = found[0]["remedies"].to_string();
    assert!(remedies.contains("stream.lobby.window") && !remedies.contains("stream.speech.window"));
}

#[test]
fn run_says_the_same_and_starts_unless_it_is_strict() {
    let folder = Folder::new();
    let streams = [("lobby", "uplink", CORRIDOR, "window = \"0/1\"")];
    let (text, receivers) = file("[link.uplink]\nrate = \"100 kbit/s\"", &streams);
    let said = check(&folder, &text).stderr;
    let path = folder.write("node.toml", &text);
    let strict = selvedge(["run".as_ref(), path.as_os_str(), "--strict".as_ref()]);
    assert_eq!(
        (strict.code, strict.stderr.as_str(), strict.stdout.as_str()),
        (Some(1), &*said, "")
    );
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
    node.page();
    receivers[0].set_read_timeout(Some(TIMEOUT)).expect("sockets can");
    assert!(receivers[0].recv(&mut [0; 2000]).is_ok(), "it sends");
    node.signal("INT");
    let ended = node.end(TIMEOUT);
    assert!(ended.stderr.starts_with(&said), "{said} in {ended:?}");
}

#[test]
fn what_is_not_known_before_is_named() {
    let folder = Folder::new();
    let text = "[node]\nlisten = \"127.0.0.1:0\"\n[link.uplink]\nrate = \"1 Mbit/s\"\n\
                [stream.door]\nsource = \"rtp://127.0.0.1:6000?encoding=H264\"\nto = \"rtp://127.0.0.1:5004\"\n\
                [stream.tone]\nsource = \"test:audio\"\nto = \"rtp://127.0.0.1:5006\"\n";
    let ended = check(&folder, text);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("door: its rate and the sizes of its frames are known only"));
    assert!(ended.stdout.contains("tone: its encoder is set to 768 kbit/s"), "{ended:?}");
    let row = ended.stdout.lines().find(|line| line.starts_with("tone ")).expect("a row");
    assert!(row.contains("768 kbit/s") && row.contains("77 %"), "{row}");
    let row = ended.stdout.lines().find(|line| line.starts_with("uplink ")).expect("a row");
    assert!(row.ends_with("> 77 %"), "{row}");
    assert!(ended.stdout.contains("uplink: wake-ups here are "), "{ended:?}");
    let doctor = selvedge(["doctor", "--json"]).json();
    let cost = doctor["wake_ups"].as_array().expect("a list").last().expect("of each rate");
    assert_eq!((&cost["rate_bps"], cost["lost"].is_f64()), (&300_000_000.into(), true), "{cost}");
    // What is known of one of them is enough to see that it can't be.
    let text = text.replace("1 Mbit/s", "500 kbit/s");
    let found = every_remedy_holds(&folder, &text, &["uplink"]);
    assert_eq!(found[0]["shortfalls"][0]["key"], "link.uplink.rate");
}
