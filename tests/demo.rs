//! `selvedge demo` from the outside: its result as JSON, clips of one's own, and being stopped.

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use support::{CORRIDOR, Folder, Running, TIMEOUT, clip, http, selvedge};

/// A share of the frames.
fn share(of: &Value, name: &str) -> f64 {
    let share = of[name].as_f64().unwrap_or_else(|| panic!("no {name} in {of}"));
    assert!((0.0..=1.0).contains(&share), "{name} {share}");
    share
}

fn keys(of: &Value) -> Vec<&str> {
    of.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// The figures of a stream, or of all of them.
fn row(of: &Value) {
    let (delivered, on_time) = (share(of, "delivered"), share(of, "on_time"));
    assert!(share(of, "decodable") <= on_time && on_time <= delivered, "{of}");
    assert!(of["frames"].as_u64().is_some_and(|frames| frames > 0), "{of}");
    assert!(of["violations"].is_u64(), "{of}");
    let delay = &of["queueing_delay_ms"];
    assert_eq!(keys(delay), ["mean", "p99"]);
    let (mean, p99) = (delay["mean"].as_f64(), delay["p99"].as_f64());
    assert!(mean >= Some(0.0) && p99 >= Some(0.0), "{of}");
}

const ROW: [&str; 6] =
    ["decodable", "delivered", "frames", "on_time", "queueing_delay_ms", "violations"];

/// Checks the whole of a result; returns what was decodable by dwcs, by fifo, and at best.
fn result(json: &Value, streams: &[&str]) -> [f64; 3] {
    let [dwcs, fifo] = decodable(json, ["dwcs", "fifo"], streams);
    [dwcs, fifo, share(&json["bound"], "decodable")]
}

/// The same of these sides, whose names are sorted.
fn decodable<const N: usize>(json: &Value, sides: [&str; N], streams: &[&str]) -> [f64; N] {
    for key in ["link_share", "disciplines", "bound"] {
        assert!(keys(json).contains(&key), "{json}");
    }
    assert_eq!(keys(&json["disciplines"]), sides);
    assert_eq!(keys(&json["bound"]), ["decodable"]);
    let decodable = sides.map(|name| {
        let side = &json["disciplines"][name];
        row(side);
        let mut expected = [&ROW[..], &["streams"]].concat();
        expected.sort_unstable();
        assert_eq!(keys(side), expected);
        assert_eq!(keys(&side["streams"]), streams);
        let each = side["streams"].as_object().expect("it has keys").values();
        let frames = |of: &Value| of["frames"].as_u64();
        assert_eq!(each.clone().map(frames).sum::<Option<u64>>(), frames(side));
        for stream in each {
            assert_eq!(keys(stream), ROW);
            row(stream);
        }
        share(side, "decodable")
    });
    let bound = share(&json["bound"], "decodable");
    assert!(decodable.iter().all(|share| *share <= bound * 1.02), "more than is possible: {json}");
    decodable
}

#[test]
fn three_paths_bring_more_than_the_best_of_them() {
    let args = ["demo", "--paths", "--seconds", "12", "--no-page", "--json"];
    let json = selvedge(args).json();
    let streams = ["car-park", "corridor", "entrance-mpeg2", "snapshots-jpeg", "titles", "voice"];
    let [best_path, bond, fifo] = decodable(&json, ["best_path", "bond", "fifo"], &streams);
    assert!(bond > best_path && bond > fifo, "bond {bond}, best path {best_path}, fifo {fifo}");
    assert!(json["rate_changes"].as_array().is_some_and(|changes| changes.len() >= 2), "{json}");
}

#[test]
fn dwcs_makes_more_decodable_than_fifo_of_the_same_frames() {
    let json =
        selvedge(["demo", "--seconds", "6", "--no-page", "--json", "--share", "0.75"]).json();
    let streams = ["car-park", "corridor", "entrance-mpeg2", "snapshots-jpeg", "titles", "voice"];
    let [dwcs, fifo, _] = result(&json, &streams);
    assert_eq!(json["link_share"], 0.75);
    assert!(dwcs > fifo, "dwcs {dwcs}, fifo {fifo}");
}

#[test]
fn clips_of_ones_own_are_compared_alike() {
    let folder = Folder::new();
    for n in 1..=5 {
        let copy = folder.join(&format!("Clip {n}.mp4"));
        let linked = std::fs::hard_link(clip(CORRIDOR), &copy);
        linked.or_else(|_| std::fs::copy(clip(CORRIDOR), &copy).map(drop)).expect("a copy");
    }
    folder.write("notes.txt", "no clip");
    let own = folder.path().to_str().expect("plain");
    let args = ["demo", "--clips", own, "--seconds", "6", "--no-page", "--json"];
    let json = selvedge(args).json();
    let [dwcs, fifo, _] = result(&json, &["Clip-1", "Clip-2", "Clip-3", "Clip-4", "Clip-5"]);
    assert_eq!(json["link_share"], 0.75, "the default");
    assert!(dwcs > fifo, "dwcs {dwcs}, fifo {fifo}");
}

#[test]
fn a_result_may_be_read_by_people() {
    let ended = selvedge(["demo", "--seconds", "1", "--no-page"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for word in ["corridor", "dwcs", "fifo", "decodable", "No sender could make more than"] {
        assert!(ended.stdout.contains(word), "no \"{word}\" in {}", ended.stdout);
    }
}

#[test]
fn folders_that_give_no_clips_are_refused() {
    let folder = Folder::new();
    let demo = |path: &Path| {
        selvedge(["demo".as_ref(), "--no-page".as_ref(), "--clips".as_ref(), path.as_os_str()])
    };
    demo(folder.path()).refused(&["there is no clip in", "a clip's name ends in one of: mp4, "]);
    demo(&folder.join("absent")).refused(&["can't read the folder \"", "absent\": "]);
    folder.write("broken.mp4", "no video");
    let copy = folder.join("good.mp4");
    std::fs::copy(clip(CORRIDOR), copy).expect("a copy");
    demo(folder.path()).refused(&["broken.mp4: ", "is not a video or audio file", "; give an MP4"]);
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    selvedge(["demo", "--share", "0"]).refused(&["--share", "between 0.01 and 10"]);
    selvedge(["demo", "--share", "half"]).refused(&["--share", "a fraction such as 0.75"]);
    selvedge(["demo", "--seconds", "0"]).refused(&["--seconds"]);
    selvedge(["demo", "--delay", "1"]).refused(&["--delay", "unit"]);
}

#[test]
fn a_taken_port_is_refused_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = taken.local_addr().expect("bound").to_string();
    let ended = selvedge(["demo", "--seconds", "1", "--listen", &listen]);
    ended.refused(&["the port is in use", "--listen", "--no-page"]);
}

/// Runs a short demo at a terminal of its own, with a program that opens pages of which nothing is
/// seen but that it writes down which.
fn demo_at_a_terminal(args: &str, display: &str, opened: bool) {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let clips = folder.join("clips");
    std::fs::create_dir(&clips).expect("the folder can be written");
    std::fs::copy(clip(CORRIDOR), clips.join("one.mp4")).expect("a copy");
    let note = folder.join("opened");
    let script =
        format!("#!/bin/sh\necho \"$@\" > '{0}.new'\nmv '{0}.new' '{0}'\n", note.display());
    let opener = folder.write("xdg-open", script);
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let path = std::env::var("PATH").expect("it is set");
    let demo = format!(
        "exec '{}' demo --clips '{}' --listen 127.0.0.1:0 --seconds {} {args}",
        env!("CARGO_BIN_EXE_selvedge"),
        clips.display(),
        if opened { 600 } else { 1 }
    );
    let mut command = support::program("script");
    command.args(["-qefc", &demo, "/dev/null"]).env_remove("WAYLAND_DISPLAY");
    command.env("PATH", format!("{}:{path}", folder.path().display())).env("DISPLAY", display);
    let running = Running::start(&mut command);
    if opened {
        support::until("the page is opened", || note.exists());
        let page = std::fs::read_to_string(&note).expect("it is there");
        let host = page.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix('/'));
        assert_eq!(http::node(host.expect("an address"))["streams"][0]["name"], "one");
    } else {
        let ended = running.end(TIMEOUT);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(!note.exists(), "{ended:?}");
    }
}

#[test]
fn the_page_is_opened_where_somebody_can_see_it() {
    demo_at_a_terminal("", ":99", true);
    demo_at_a_terminal("", "", false);
    demo_at_a_terminal("--no-open", ":99", false);
    demo_at_a_terminal("--json", ":99", false);
}

#[test]
fn stopped_in_the_middle_it_tells_what_it_knows() {
    let mut demo =
        Running::selvedge(["demo", "--seconds", "600", "--json", "--listen", "127.0.0.1:0"]);
    let page = demo.page();
    support::until("every stream has frames", || {
        let node = http::node(&page);
        let streams = node["streams"].as_array().expect("a list");
        streams.iter().all(|stream| stream["frames"].as_u64() >= Some(10))
    });
    // All it does, it does in its own threads: nobody is left behind.
    let tasks = std::fs::read_dir(format!("/proc/{}/task", demo.id())).expect("it runs");
    for task in tasks {
        let children = task.expect("readable").path().join("children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        assert_eq!(children, "");
    }
    // One knob sets both links; the figures of both begin anew then.
    let rate = "{\"rate\": \"900 kbit/s\"}";
    let (status, answer) = http::request(&page, "PATCH", "/api/v1/links/uplink", rate);
    assert_eq!(status, 200, "{answer}");
    support::until("the link is set", || http::node(&page)["links"][0]["rate_bps"] == 900_000);
    demo.signal("INT");
    // A frame may come a second after its arrival; all else is the machine's slowness.
    let json = demo.end(Duration::from_secs(20)).json();
    assert!(json["seconds"].as_f64() < Some(600.0));
    assert_eq!(json["rate_changes"][0]["link_bps"], 900_000, "{json}");
    assert_eq!(json["rate_changes"].as_array().map(Vec::len), Some(1));
    assert_eq!(keys(&json["disciplines"]), ["dwcs", "fifo"]);
    TcpListener::bind(&page).expect("the port is free again");
}

#[test]
fn stopped_before_it_began_it_ends_as_well() {
    let folder = Folder::new();
    for n in 0..40 {
        let copy = folder.join(&format!("{n}.mp4"));
        let linked = std::fs::hard_link(clip(CORRIDOR), &copy);
        linked.or_else(|_| std::fs::copy(clip(CORRIDOR), &copy).map(drop)).expect("a copy");
    }
    let own = folder.path().to_str().expect("plain");
    let mut demo = Running::selvedge(["demo", "--clips", own, "--no-page", "--json"]);
    // Signals are handled once it looks at clips; before, they would just end it.
    let maps = format!("/proc/{}/status", demo.id());
    demo.until("handles signals", |_| {
        let status = std::fs::read_to_string(&maps).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // SIGTERM is handled last.
        caught.is_some_and(|mask| mask & 1 << 14 != 0)
    });
    demo.signal("INT");
    let ended = demo.end(TIMEOUT);
    assert!(matches!(ended.code, Some(0 | 1)), "{ended:?}");
}
