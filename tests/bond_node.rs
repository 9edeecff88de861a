//! Streams of a node that go over a bond of two paths to another node, from the outside: what a player gets of the far
//! node, while a path dies and comes back, and while the far node is killed and started again.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use support::wire::Wire;
use support::{
    CORRIDOR, Folder, Running, children, clip, file_source, free_port, http, play, played, program,
    selvedge, some_frames, until,
};

/// A path through which nothing comes while it is dead.
fn mortal(far: SocketAddr) -> (Wire, Arc<AtomicBool>) {
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = Arc::clone(&is_dead);
    let wire = Wire::to(far, move |datagram, to_receiver, send| {
        if !dead.load(Ordering::SeqCst) {
            send(to_receiver, datagram);
        }
    });
    (wire, is_dead)
}

fn secret(folder: &Folder, name: &str, digit: &str) {
    std::fs::write(folder.join(name), digit.repeat(64)).expect("the folder is ours");
}

fn run(folder: &Folder, name: &str, text: String) -> (Running, String) {
    let path = folder.write(name, text);
    let mut node = Running::selvedge(["run".as_ref(), path.as_os_str()]);
    let page = node.page();
    (node, page)
}

fn far_node(folder: &Folder, listen: SocketAddr, to: SocketAddr) -> (Running, String) {
    let text = format!(
        "[node]\nlisten = \"127.0.0.1:0\"\n[bond.van]\nlisten = \"{listen}\"\nsecret = \"secret\"\n\
         [link.out]\nrate = \"100 Mbit/s\"\n\
         [stream.lecture]\nsource = \"bond:van\"\nto = \"rtp://{to}\"\nsdp = \"far.sdp\"\ndelay = \"20 s\"\n"
    );
    run(folder, "far.toml", text)
}

fn near_text(paths: [SocketAddr; 2], secret: &str) -> String {
    let source = file_source(&clip(CORRIDOR), true);
    format!(
        "[node]\nlisten = \"127.0.0.1:0\"\n[link.uplink]\nto = \"{}\"\nsecret = \"{secret}\"\n\
         [link.uplink.path.one]\n[link.uplink.path.two]\nto = \"{}\"\n\
         [stream.lecture]\nsource = \"{source}\"\ndelay = \"5 s\"\n",
        paths[0], paths[1]
    )
}

fn near_node(folder: &Folder, paths: [SocketAddr; 2], secret: &str) -> (Running, String) {
    run(folder, "near.toml", near_text(paths, secret))
}

fn path(page: &str, name: &str) -> Value {
    let node = http::node(page);
    let paths = node["links"][0]["paths"].as_array().cloned().unwrap_or_default();
    paths.into_iter().find(|path| path["name"] == name).unwrap_or_default()
}

fn is_active(page: &str, name: &str) -> bool {
    path(page, name)["active"] == true
}

#[test]
fn a_path_that_dies_costs_nothing_that_the_other_brings_in_time() {
    let (folder, far_at, receiver) = (Folder::new(), free_port(), free_port());
    secret(&folder, "secret", "a");
    let (far, far_page) = far_node(&folder, far_at, receiver);
    let (wire, is_dead) = mortal(far_at);
    let (near, page) = near_node(&folder, [wire.at, far_at], "secret");
    until("both paths", || is_active(&page, "one") && is_active(&page, "two"));
    let sdp = folder.join("far.sdp");
    until("the description", || sdp.exists());
    let play = play(&[sdp.to_str().expect("plain")], receiver);
    some_frames(&page);
    is_dead.store(true, Ordering::SeqCst);
    until("it is noticed", || !is_active(&page, "one"));
    let dead = path(&page, "one");
    assert!(dead["detail"].as_str().is_some_and(|why| !why.is_empty()), "{dead}");
    assert!(is_active(&page, "two"));
    let top = selvedge(["top", &page, "--once"]).stdout;
    assert!(top.contains("one") && top.contains("probed") && top.contains("carries"), "{top}");
    some_frames(&page);
    is_dead.store(false, Ordering::SeqCst);
    until("it is back", || is_active(&page, "one"));
    some_frames(&page);
    let stream = played(play);
    for name in ["lost", "duplicates", "reordered", "malformed", "restarts", "incomplete"] {
        assert_eq!(stream[name], 0, "{name}: {stream}");
    }
    // The player began in the middle of a group.
    assert_eq!(stream["complete"], stream["frames"], "{stream}");
    assert!(stream["complete"].as_u64().is_some_and(|frames| frames >= 60), "{stream}");
    let (_, events) = http::request(&page, "GET", "/api/v1/events", "");
    assert!(events.contains("uplink.one: "), "{events}");
    drop((near, far, far_page));
}

#[test]
fn a_far_node_that_is_killed_is_found_again() {
    let (folder, far_at, receiver) = (Folder::new(), free_port(), free_port());
    secret(&folder, "secret", "a");
    let (near, page) = near_node(&folder, [far_at, far_at], "secret");
    let detail = || http::stream(&page, "lecture")["detail"].to_string();
    until("nobody is there", || detail().contains("does not answer"));
    for _ in 0..2 {
        let (far, far_page) = far_node(&folder, far_at, receiver);
        some_frames(&far_page);
        until("the near node knows", || !detail().contains("nothing is carried"));
        support::kill("KILL", far.id());
        drop(far);
        until("it is gone", || detail().contains("nothing is carried"));
    }
    drop(near);
}

/// Noise, encoded so.
fn noise(encoder: &str) -> String {
    format!(
        "launch:videotestsrc is-live=true pattern=snow ! \
         video/x-raw,format=I420,width=160,height=120,framerate=25/1 ! {encoder}"
    )
}

/// A node that sends this over one path of 600 kbit/s; with more keys of the stream.
fn slow(folder: &Folder, source: &str, more: &str, far: SocketAddr) -> (Running, String) {
    let text = format!(
        "[node]\nlisten = \"127.0.0.1:0\"\n[link.uplink]\nto = \"{far}\"\nsecret = \"secret\"\n\
         [link.uplink.path.one]\nrate = \"600 kbit/s\"\n\
         [stream.lecture]\nsource = \"{source}\"\ndelay = \"1 s\"\n{more}"
    );
    run(folder, "slow.toml", text)
}

#[test]
fn an_encoder_follows_the_rate_of_its_path_and_another_does_not() {
    let (folder, far_at, receiver) = (Folder::new(), free_port(), free_port());
    secret(&folder, "secret", "a");
    let (far, far_page) = far_node(&folder, far_at, receiver);
    let seen = |page: &str| {
        let stream = http::stream(page, "lecture");
        (stream["encoder_bps"].as_u64(), stream["decodable_share"].as_f64())
    };
    let encoder =
        "x264enc bitrate=2000 key-int-max=25 speed-preset=ultrafast tune=zerolatency threads=1";
    // A line that receives has a process of its own; its knob's most is far from what the line states.
    let isolated = "vp8enc name=enc target-bitrate=9000000 deadline=1 cpu-used=8 end-usage=cbr keyframe-max-dist=25 \
                    udpsrc port=0 ! fakesink async=false";
    let knob = "[stream.lecture.knobs]\nbitrate = { property = \"enc.target-bitrate\", most = \"2 Mbit/s\" }\n";
    let file = format!("file:{}?encode=2 Mbit/s&loop", clip("one-by-one-mpeg2.ts").display());
    for (source, more) in [(noise(encoder), ""), (noise(isolated), knob), (file, "")] {
        let (near, page) = slow(&folder, &source, more, far_at);
        assert_eq!(children(near.id()).len(), usize::from(!more.is_empty()));
        until("the encoder follows", || {
            let (rate, decodable) = seen(&page);
            rate.is_some_and(|rate| rate <= 600_000) && decodable.is_some_and(|share| share > 0.95)
        });
        drop(near);
    }
    let (near, page) = slow(&folder, &noise("jpegenc"), "", far_at);
    until("ten seconds", || http::stream(&page, "lecture")["frames"].as_u64() > Some(250));
    let (rate, decodable) = seen(&page);
    assert!(rate.is_none() && decodable.is_some_and(|share| share < 0.5), "{rate:?} {decodable:?}");
    drop((near, far, far_page));
}

/// A node whose second path is a spare one, and may carry 1 MB a month.
fn spared(folder: &Folder, paths: [SocketAddr; 2]) -> (Running, String) {
    let text = format!(
        "[node]\nlisten = \"127.0.0.1:0\"\n[link.uplink]\nto = \"{}\"\nsecret = \"secret\"\n\
         [link.uplink.path.one]\n[link.uplink.path.two]\nto = \"{}\"\nrole = \"spare\"\n\
         cost = \"metered\"\nbudget = \"1 MB\"\n[stream.lecture]\nsource = \"test:video\"\n",
        paths[0], paths[1]
    );
    run(folder, "spared.toml", text)
}

#[test]
fn a_spare_path_helps_until_its_budget_is_used_up() {
    let (folder, far_at, receiver) = (Folder::new(), free_port(), free_port());
    secret(&folder, "secret", "a");
    let (far, _) = far_node(&folder, far_at, receiver);
    let (wire, is_dead) = mortal(far_at);
    let (near, page) = spared(&folder, [wire.at, far_at]);
    let two = |page: &str, key: &str| path(page, "two")[key].clone();
    let is_spare = || is_active(&page, "one") && two(&page, "detail").to_string().contains("spare");
    until("the spare path waits", is_spare);
    assert!(two(&page, "left_bytes").as_u64() > Some(900_000), "{}", path(&page, "two"));
    is_dead.store(true, Ordering::SeqCst);
    until("it carries", || is_active(&page, "two"));
    let is_used_up =
        |page: &str| two(page, "detail") == "its budget is used up" && two(page, "left_bytes") == 0;
    until("its budget is used up", || is_used_up(&page));
    assert!(!is_active(&page, "two"));
    drop(near);
    let usage = std::fs::read_to_string(folder.join("uplink.two.usage")).expect("it is kept");
    let carried = usage.trim().split_once(' ').and_then(|(_, bytes)| bytes.parse().ok());
    assert!(carried.is_some_and(|bytes: u64| (1_000_000..1_002_000).contains(&bytes)), "{usage}");
    is_dead.store(false, Ordering::SeqCst);
    let (near, page) = spared(&folder, [wire.at, far_at]);
    until("the other path carries", || is_active(&page, "one"));
    assert!(is_used_up(&page), "a restart renews no budget: {}", path(&page, "two"));
    drop((near, far));
}

#[test]
fn a_far_end_is_made_of_arguments() {
    let (folder, far_at, receiver) = (Folder::new(), free_port(), free_port());
    secret(&folder, "secret", "a");
    let (file, listen) = (folder.join("taken.toml"), far_at.to_string());
    let arguments = |to: &str| {
        let secret = folder.join("secret").display().to_string();
        let [file, to] = [file.display().to_string(), format!("lecture={to}")];
        [
            "receive",
            &to,
            "--secret",
            &secret,
            "--listen",
            &listen,
            "--page",
            "127.0.0.1:0",
            "--file",
            &file,
        ]
        .map(str::to_owned)
    };
    let refused = selvedge(arguments("http://127.0.0.1:5004"));
    assert!(refused.stderr.contains("taken.toml:16:6: stream.lecture.to"), "{}", refused.stderr);
    assert!(refused.code == Some(2) && !file.exists());
    let to = format!("rtp://{receiver}");
    let mut far = Running::selvedge(arguments(&to));
    let far_page = far.page();
    let (near, page) = near_node(&folder, [far_at, far_at], "secret");
    until("both paths", || is_active(&page, "one") && is_active(&page, "two"));
    some_frames(&far_page);
    let written = std::fs::read_to_string(&file).expect("it is written");
    let refused = selvedge(arguments("rtp://127.0.0.1:9"));
    assert!(refused.stderr.contains("says something else"), "{}", refused.stderr);
    assert_eq!(std::fs::read_to_string(&file).expect("it stays"), written);
    drop((near, far));
}

#[test]
fn another_secret_brings_no_frame() {
    let (folder, far_at, receiver) = (Folder::new(), free_port(), free_port());
    secret(&folder, "secret", "a");
    secret(&folder, "other", "b");
    let (far, far_page) = far_node(&folder, far_at, receiver);
    let (near, page) = near_node(&folder, [far_at, far_at], "other");
    until("it says so", || {
        http::stream(&page, "lecture")["detail"].to_string().contains("the same secret")
    });
    assert_eq!(http::stream(&far_page, "lecture")["frames"], 0);
    drop((near, far));
}

#[test]
fn what_becomes_of_paths_is_published() {
    let (folder, far_at, receiver) = (Folder::new(), free_port(), free_port());
    secret(&folder, "secret", "a");
    // No other program of this user is met.
    let start = |args: &[&str]| {
        let mut command = program(env!("CARGO_BIN_EXE_selvedge"));
        command.env("XDG_RUNTIME_DIR", folder.path()).env_remove("SELVEDGE_LOG");
        Running::start(command.args(args))
    };
    let mut sink = start(&["events", "sub", "paths"]);
    let file = folder.write("near.toml", near_text([far_at, free_port()], "secret"));
    let near = start(&["run", "--events", "--", file.to_str().expect("plain")]);
    let (far, _) = far_node(&folder, far_at, receiver);
    let of_one = |carries: u64| {
        move |sink: &Running| {
            let lines = sink.stdout();
            let whole = lines.rfind('\n').map_or("", |end| &lines[..end]);
            whole.lines().any(|line| {
                let event: Value = serde_json::from_str(line).expect("a line of JSON");
                let [about, what] = [&event["attributes"], &event["event"]];
                about["link"] == "uplink"
                    && about["path"] == "one"
                    && what["carries"] == carries
                    && what["rate"].as_u64() > Some(0)
            })
        }
    };
    sink.until("sees the path that carries packets", of_one(1));
    // Of its rate a node that is started again would know.
    let rates = folder.join("uplink.rates");
    let is_kept = || std::fs::read_to_string(&rates).is_ok_and(|text| text.ends_with(" one\n"));
    until("the measured rate", is_kept);
    drop(far);
    sink.until("sees that it carries none", of_one(0));
    drop(near);
}
