//! Each process of a node under load, killed at seeded random moments: the node, its coprocessor, the process
//! of a source in the network, and receivers. What is killed works again soon, no other stream loses a
//! frame, and nothing is left behind.
//!
//! `tools/soak.sh kills` runs the ignored tests, which do the same more often: SOAK_KILLS times each (1000).

#[path = "kills/ground.rs"]
mod ground;
mod support;
#[path = "kills/witness.rs"]
mod witness;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use selvedge_tests_wait::{holds_within, until_some};
use serde_json::{Value, json};

use ground::Ground;
use support::{
    CORRIDOR, Running, TIMEOUT, child_named, clip, coprocessor_is_built, file_source, free_port,
    http, kill, until,
};
use witness::Witness;

/// In which each is to work again.
const BOUND: Duration = Duration::from_secs(1);
/// Between two kills passes less than this; every fourth time the next comes though it does not work yet.
const BETWEEN: Duration = Duration::from_millis(300);
/// No packet of a dead process comes so long after its end.
const QUIET: Duration = Duration::from_millis(50);
/// How often each is killed in a test.
const KILLS: u32 = 20;
/// Small pictures, each by itself, at a pace that shows soon what is missing.
const PICTURES: &str = "test:jpeg?rate=50&size=160x120";

/// What feeds a source in the network: a receiver that begins anew finds a picture by itself soon.
const FEED: &str = "launch:videotestsrc is-live=true pattern=ball ! video/x-raw,width=160,height=120,\
    framerate=50/1 ! x264enc tune=zerolatency key-int-max=5 bitrate=500";

/// How often each is killed by `tools/soak.sh`.
fn many() -> u32 {
    std::env::var("SOAK_KILLS").map_or(1000, |text| text.parse().expect("a number"))
}

/// Random numbers that are the same each time.
struct Dice(u64);

impl Dice {
    fn moment(&mut self) -> Duration {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        BETWEEN * ((self.0 >> 33) % 1000) as u32 / 1000
    }
}

/// Who is killed.
trait Victim {
    /// Kills it, and starts another if nobody else does; when it was killed.
    fn kill(&mut self) -> Instant;

    /// Whether it does again what it is for, since it was killed last.
    fn works(&mut self) -> bool;
}

/// Kills so often, and says how long it took to work again.
fn kill_often(name: &str, kills: u32, victim: &mut dyn Victim) {
    let mut dice =
        Dice(name.bytes().fold(1, |seed: u64, byte| seed.wrapping_mul(31) ^ u64::from(byte)));
    // What takes long is reported where there is much of it.
    let limit = if kills > KILLS { TIMEOUT } else { BOUND * 5 };
    let mut took = Vec::new();
    for number in 1..=kills {
        let (moment, since) = (dice.moment(), Instant::now());
        until("its moment has come", || since.elapsed() >= moment);
        let killed = victim.kill();
        if number % 4 > 0 || number == kills {
            let works = holds_within(limit, || victim.works());
            assert!(works, "{name} does not work {:?} after it was killed", killed.elapsed());
            took.push(killed.elapsed());
        }
    }
    took.sort();
    let late = took.iter().filter(|took| **took > BOUND).count();
    let [middle, worst] = [took.len() / 2, took.len() - 1].map(|at| took[at].as_secs_f64());
    println!(
        "{kills} kills of {name}: it works again after {middle:.3} s at the median, {worst:.3} s at \
         worst, {late} times after more than {BOUND:?}"
    );
}

/// A process that a node has started, and starts again.
struct Part<'a> {
    node: u32,
    name: &'static str,
    witness: &'a Witness,
    /// What was killed last, and when.
    killed: Option<(u32, Instant)>,
}

impl Victim for Part<'_> {
    fn kill(&mut self) -> Instant {
        let last = self.killed.map(|(id, _)| id);
        let living = || child_named(self.node, self.name).filter(|&id| Some(id) != last);
        let id = until_some("there is one to kill", living);
        let now = Instant::now();
        kill("KILL", id);
        self.killed = Some((id, now));
        now
    }

    fn works(&mut self) -> bool {
        let Some((_, killed)) = self.killed else { return true };
        self.witness.seen().last.is_some_and(|last| last > killed + QUIET)
    }
}

/// A receiver that writes down what comes.
struct Player<'a> {
    ground: &'a Ground,
    source: String,
    record: PathBuf,
    running: Running,
}

impl<'a> Player<'a> {
    fn new(ground: &'a Ground, name: &str, source: String) -> Self {
        let record = ground.join(name);
        let running = ground.play(&source, &record);
        let mut player = Self { ground, source, record, running };
        until("packets are written down", || player.works());
        player
    }
}

impl Victim for Player<'_> {
    fn kill(&mut self) -> Instant {
        let now = Instant::now();
        kill("KILL", self.running.id());
        until("it is dead", || self.running.has_ended());
        let _ = fs::remove_file(&self.record);
        self.running = self.ground.play(&self.source, &self.record);
        now
    }

    fn works(&mut self) -> bool {
        fs::metadata(&self.record).is_ok_and(|file| file.len() > 0)
    }
}

/// The links of nodes here, by name.
const LINKS: [(&str, &str); 3] = [
    ("plain", "rate = \"6 Mbit/s\""),
    // Its coprocessor is dead half of the time.
    ("apart", "rate = \"6 Mbit/s\"\nplacement = \"coprocessor\""),
    ("carried", "rate = \"4 Mbit/s\"\nstack = \"ui | reliable | net\"\nsecret = \"secret\""),
];

/// A stream: its name, link, source and receiver.
type Stream<'a> = (&'a str, &'a str, &'a str, SocketAddr);

/// Starts a node whose page is there.
fn run(ground: &Ground, name: &str, page: SocketAddr, streams: &[Stream<'_>]) -> Running {
    let mut text = format!("[node]\nname = \"{name}\"\nlisten = \"{page}\"\n");
    for (link, keys) in LINKS.iter().filter(|(link, _)| streams.iter().any(|each| each.1 == *link))
    {
        text += &format!("[link.{link}]\n{keys}\n");
    }
    for (name, link, source, to) in streams {
        text += &format!(
            "[stream.{name}]\nlink = \"{link}\"\nsource = '{source}'\nto = \"rtp://{to}\"\n\
             thumbnail = false\ndelay = \"20 s\"\nring = 1024\n"
        );
    }
    ground.start(&["run", "--json", ground.write(name, &text).to_str().expect("a plain path")])
}

/// A node beside the one in which something is killed: it feeds that one, and has a witness of its own.
fn beside(ground: &Ground, feeds: SocketAddr, witness: &Witness) -> (Running, SocketAddr) {
    let page = free_port();
    let streams = [("feed", "plain", FEED, feeds), ("own", "plain", PICTURES, witness.at)];
    (run(ground, "beside", page, &streams), page)
}

/// A stream that nothing may touch: each number came, and its node says so.
fn is_whole(name: &str, witness: &Witness, page: SocketAddr) {
    let seen = witness.seen();
    assert!(seen.packets > 100, "{name}: {seen:?}");
    assert_eq!(seen.missing, [0; 2], "{name}: {seen:?}");
    is_untouched(name, page);
}

fn is_untouched(name: &str, page: SocketAddr) {
    let look = || http::stream(&page.to_string(), name);
    until("frames are sent", || look()["sent"].as_u64() > Some(20));
    let stream = look();
    assert_eq!(
        (&stream["missed"], &stream["dropped"]),
        (&json!(0), &json!({})),
        "{name}: {stream}"
    );
    // A coprocessor that was killed counts decodable pictures from the next intra picture on.
    if stream["link"] != "apart" {
        let sent = stream["sent"].as_u64().expect("a count");
        // What a stack carries counts when its receiver has reported it.
        until(&format!("{name}: {sent} frames are decodable"), || {
            look()["decodable"].as_u64().is_some_and(|decodable| decodable + 2 >= sent)
        });
    }
}

/// Asks a node to end, which it does in order.
fn ended(node: Running) -> Value {
    node.signal("TERM");
    node.end(TIMEOUT).json()
}

/// What a process holds: descriptors and threads.
fn held(id: u32) -> [usize; 2] {
    ["fd", "task"].map(|what| {
        fs::read_dir(format!("/proc/{id}/{what}")).map_or(0, |entries| entries.flatten().count())
    })
}

/// Kills the parts of a node so often each, all at the same time.
fn parts_are_killed(kills: u32) {
    let ground = Ground::new();
    let [own, still, film, apart, relayed] = [(); 5].map(|()| Witness::new());
    let [page, feed, plain, lost, kept] = [(); 5].map(|()| free_port());
    let film_file = file_source(&clip(CORRIDOR), true);
    let relay = format!("rtp://{feed}?encoding=H264");
    let (other, other_page) = beside(&ground, feed, &own);
    let streams = [
        ("still", "plain", PICTURES, still.at),
        ("film", "plain", &film_file, film.at),
        ("relayed", "plain", &relay, relayed.at),
        ("plain", "plain", PICTURES, plain),
        ("apart", "apart", PICTURES, apart.at),
        ("lost", "carried", PICTURES, lost),
        ("kept", "carried", PICTURES, kept),
    ];
    let record = ground.join("kept.rtpdump");
    let keeper = ground.play(&format!("stack://{kept}"), &record);
    let node = run(&ground, "node", page, &streams);
    let mut plain = Player::new(&ground, "plain.rtpdump", format!("rtp://{plain}"));
    let mut lost = Player::new(&ground, "lost.rtpdump", format!("stack://{lost}"));
    for witness in [&own, &still, &film, &apart, &relayed] {
        until("all streams flow", || witness.seen().packets > 100);
    }
    let before = held(node.id());
    let part = |name, witness| Part { node: node.id(), name, witness, killed: None };
    let mut coprocessor = part("selvedge-coproc", &apart);
    let mut source = part("selvedge-source", &relayed);
    let victims: [(&str, &mut (dyn Victim + Send)); 4] = [
        ("a coprocessor", &mut coprocessor),
        ("a source's process", &mut source),
        ("a receiver", &mut plain),
        ("a receiver by a stack", &mut lost),
    ];
    std::thread::scope(|scope| {
        for (name, victim) in victims {
            scope.spawn(move || kill_often(name, kills, victim));
        }
    });
    let after = held(node.id());
    println!("descriptors and threads of the node: {before:?} before, {after:?} after");
    assert!(before.iter().zip(&after).all(|(before, after)| *after < before + 10));

    let streams = [("still", &still), ("film", &film), ("apart", &apart), ("relayed", &relayed)];
    for (name, witness) in streams {
        is_whole(name, witness, page);
    }
    is_whole("own", &own, other_page);
    is_untouched("kept", page);
    for mut player in [plain, lost] {
        // What a thread has started ends with it.
        player.kill();
        // Of more than one frame, or none may be complete yet.
        let frames = || fs::metadata(&player.record).is_ok_and(|file| file.len() > BUFFERS);
        until("frames are written down again", frames);
        assert!(support::played(player.running)["complete"].as_u64() > Some(0));
    }
    let measured = support::played(keeper);
    for name in ["lost", "duplicates", "restarts", "incomplete"] {
        assert_eq!(measured[name], 0, "{name}: {measured}");
    }
    assert_eq!(measured["decodable_share"], 1.0, "{measured}");
    ended(node);
    ended(other);
    ground.leaves_nothing();
}

#[test]
fn parts_of_a_node_are_killed_and_touch_no_other() {
    if coprocessor_is_built("parts_of_a_node_are_killed_and_touch_no_other") {
        parts_are_killed(KILLS);
    }
}

/// What is in the buffer of who records: what grows by more than two of them was written by a new sender, too.
const BUFFERS: u64 = 2 * 8192;

/// A whole node.
struct Node<'a> {
    ground: &'a Ground,
    page: SocketAddr,
    streams: Vec<Stream<'a>>,
    running: Running,
    /// Who receives its streams, and who sent them before it was killed.
    witnesses: Vec<(&'a Witness, Option<u32>)>,
    /// What a receiver by a stack writes down, and how much that was.
    record: (PathBuf, u64),
}

impl Victim for Node<'_> {
    fn kill(&mut self) -> Instant {
        let now = Instant::now();
        kill("KILL", self.running.id());
        until("it is dead", || self.running.has_ended());
        for (witness, before) in &mut self.witnesses {
            *before = witness.seen().source;
        }
        self.record.1 = fs::metadata(&self.record.0).map_or(0, |file| file.len());
        self.running = run(self.ground, "node", self.page, &self.streams);
        now
    }

    fn works(&mut self) -> bool {
        assert!(!self.running.has_ended(), "{}", self.running.stderr());
        let is_sent =
            self.witnesses.iter().all(|(witness, before)| witness.seen().source != *before);
        let (record, before) = &self.record;
        is_sent
            && fs::metadata(record).is_ok_and(|file| file.len() > before + BUFFERS)
            && self.running.stderr().contains("page: http://")
            && http::node(&self.page.to_string())["streams"]
                .as_array()
                .is_some_and(|s| s.len() == 4)
    }
}

/// Kills a node so often.
fn a_node_is_killed(kills: u32) {
    let ground = Ground::new();
    let [own, still, apart, relayed] = [(); 4].map(|()| Witness::new());
    let [page, feed, carried] = [(); 3].map(|()| free_port());
    let relay = format!("rtp://{feed}?encoding=H264");
    let (other, other_page) = beside(&ground, feed, &own);
    let streams = vec![
        ("still", "plain", PICTURES, still.at),
        ("relayed", "plain", relay.as_str(), relayed.at),
        ("apart", "apart", PICTURES, apart.at),
        ("carried", "carried", PICTURES, carried),
    ];
    let record = ground.join("carried.rtpdump");
    let receiver = ground.play(&format!("stack://{carried}"), &record);
    let witnesses = [&still, &relayed, &apart].map(|witness| (witness, None)).to_vec();
    let running = run(&ground, "node", page, &streams);
    let mut node = Node { ground: &ground, page, streams, running, witnesses, record: (record, 0) };
    until("all streams flow", || node.works());
    kill_often("a node", kills, &mut node);

    for (name, witness) in [("still", &still), ("relayed", &relayed), ("apart", &apart)] {
        is_whole(name, witness, page);
    }
    is_whole("own", &own, other_page);
    let measured = support::played(receiver);
    assert_eq!(measured["lost"], 0, "{measured}");
    // Those that were killed before they had sent anything were not heard.
    let heard = measured["restarts"].as_u64().expect("a count");
    assert!(heard >= u64::from(kills) / 2, "{measured}");
    ended(node.running);
    ended(other);
    ground.leaves_nothing();
}

#[test]
fn a_node_that_is_killed_is_back_and_touches_no_other() {
    if coprocessor_is_built("a_node_that_is_killed_is_back_and_touches_no_other") {
        a_node_is_killed(KILLS);
    }
}

/// For `tools/soak.sh`, which says how often.
#[test]
#[ignore = "takes ten minutes"]
fn parts_of_a_node_are_killed_a_thousand_times() {
    parts_are_killed(many());
}

/// For `tools/soak.sh`, which says how often.
#[test]
#[ignore = "takes half an hour"]
fn a_node_is_killed_a_thousand_times() {
    a_node_is_killed(many());
}
