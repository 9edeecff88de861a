//! The examples in the help of `selvedge`: each command has one, and each example works as it stands.

mod support;

use std::path::Path;

use support::help::Expected::{Answers, Binds, Parsed, Prints};
use support::help::{Beside, Examples, Expected, Network, Page, pages};
use support::{Folder, selvedge, skipped};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const QDISC: &str = "needs a device and BPF qdiscs; place/kernel/tests/attach runs it in a machine";
const RIGHTS: &str = "needs root or SCHED_FIFO; tests/cpu.rs runs programs by what there is";
const SERVICES: &str = "needs root and BPF; tests/event_services.rs runs it where there are both";

/// The examples that do not just end with status 0.
const EXPECTED: [(&str, Expected); 39] = [
    ("selvedge demo --share 0.53 --seconds 30", Prints("page: ")),
    ("selvedge demo --clips ~/Videos --json", Prints("page: ")),
    ("selvedge demo --paths", Prints("page: ")),
    ("selvedge run scenarios/studio.toml", Prints("page: ")),
    ("selvedge run scenarios/studio.toml --events", Prints("page: ")),
    ("selvedge receive lecture=rtp://127.0.0.1:5004 --secret van.secret", Prints("page: ")),
    (
        "selvedge bond up van.toml",
        Parsed("needs CAP_NET_ADMIN; tests/tunnel.rs runs it in a namespace"),
    ),
    ("selvedge play rtp://127.0.0.1:5004 --record lecture.rtpdump", Binds(5004)),
    (
        "selvedge play https://192.0.2.1:7700/streams/lobby --page",
        Parsed("needs a node elsewhere; tests/asked.rs asks one here"),
    ),
    ("selvedge top 127.0.0.1:7700", Parsed("needs a terminal; tests/top.rs runs it in one")),
    ("selvedge events sub load", Prints("\"cpu\":90")),
    (
        "selvedge events services watch sched --kind delay --threshold 2000000 --every 1s",
        Parsed(SERVICES),
    ),
    ("selvedge events services watch socket --port 80 --handler burst.ec --json", Parsed(SERVICES)),
    ("selvedge events services watch memory --kind reclaim --signal 34:4711", Parsed(SERVICES)),
    ("selvedge events services serve socket sched", Parsed(SERVICES)),
    (
        "selvedge stack profile --json",
        Parsed("measures for half a minute; comm/stack's tests do it"),
    ),
    ("selvedge stack listen 127.0.0.1:7800", Prints("listening on")),
    ("selvedge stack listen [::]:7800 --elements 2 --seconds 60", Prints("listening on")),
    ("selvedge stack send 127.0.0.1:7800 --every \"1 ms\" --size \"4 kB\" --seconds 5", Answers),
    ("selvedge stack listen 127.0.0.1:7800 --elements 1 --share 20%", Prints("listening on")),
    ("selvedge stack send 127.0.0.1:7800 --stack \"ui | unreliable | net\" --seconds 5", Answers),
    (
        "selvedge stack send 127.0.0.1:7800 --delay 5ms --firm --elements 1 --share 20% --seconds 5",
        Parsed("needs a listener with reserved time; comm/stack's tests do it"),
    ),
    ("selvedge stack pin 4711 d2216232 net=1", Parsed(PIN)),
    ("selvedge stack pin 4711 d2216232 net=any", Parsed(PIN)),
    (
        "selvedge stack send 127.0.0.1:7800 --then-after \"3 s\" --then-every \"20 us\" \
         --then-size \"8 kB\" --then-agreed --seconds 6",
        Answers,
    ),
    ("selvedge stack show", Prints("process ")),
    (
        "selvedge line bad.toml --between studio van --record packets.csv",
        Parsed("needs root and named namespaces; tests/line.rs makes them"),
    ),
    ("selvedge line record --listen 0.0.0.0:7900", Prints("listening on")),
    ("selvedge line record 127.0.0.1:7900 --for 5s --out path.toml", Answers),
    (
        "selvedge cpu run --period 40ms --service 8ms --window 1/5 -- ffplay talk.mp4",
        Parsed(RIGHTS),
    ),
    ("selvedge cpu run --period 10ms --service 2ms --json -- ./sensor", Parsed(RIGHTS)),
    ("selvedge cpu run --period 40ms --service 9ms -- selvedge cpu play", Parsed(RIGHTS)),
    (
        "selvedge kernel attach eth0 --rate '20 Mbit/s' \
         --stream video,period=4ms,window=1/5,port=5004 --stream talk,period=20ms,port=5012",
        Parsed(QDISC),
    ),
    ("selvedge kernel attach lo --node scenarios/studio.toml", Parsed(QDISC)),
    ("selvedge kernel detach eth0", Parsed(QDISC)),
    ("selvedge kernel show eth0 --json | jq .streams", Parsed(QDISC)),
    ("selvedge kernel bind eth0 video cookie=4711", Parsed(QDISC)),
    ("selvedge kernel unbind eth0 cookie=4711", Parsed(QDISC)),
    (
        "selvedge code run filter.ec --format load.format --input @events.json --target kernel --json",
        Parsed("needs root and BPF; tests/code.rs runs it where there are both"),
    ),
];

const PIN: &str = "names a connection of one run; comm/stack's tests do it";
const STACK: &str = "selvedge stack listen 127.0.0.1:7800";
const STACK_IS_UP: &str = "selvedge stack show --once";

const RUNS: &str = "selvedge run scenarios/studio.toml";

const BESIDE: [Beside; 9] = [
    Beside { page: "selvedge top", line: RUNS, is_up: "selvedge top --json" },
    Beside { page: "selvedge node reload", line: RUNS, is_up: "selvedge top --json" },
    Beside { page: "selvedge node save", line: RUNS, is_up: "selvedge top --json" },
    Beside {
        page: "selvedge events sub",
        line: "selvedge events pub load --format load.format --event '{\"cpu\": 90}' --rate 100",
        is_up: "selvedge events ls | grep load",
    },
    Beside {
        page: "selvedge events deploy",
        line: "selvedge events sub load --format load.format --config studio.toml",
        is_up: "selvedge events ls | grep studio",
    },
    Beside {
        page: "selvedge line set",
        line: "selvedge line lte-bad --near 'sleep 60' --far 'sleep 60'",
        is_up: "selvedge line set lte-bad delay=60ms",
    },
    Beside { page: "selvedge stack send", line: STACK, is_up: STACK_IS_UP },
    Beside { page: "selvedge stack show", line: STACK, is_up: STACK_IS_UP },
    Beside { page: "selvedge stack tune", line: STACK, is_up: STACK_IS_UP },
];

/// The files that examples name.
fn files(folder: &Folder) {
    let root = Path::new(ROOT);
    for name in ["vectors", "clips"] {
        std::os::unix::fs::symlink(root.join(name), folder.join(name)).expect("a new name");
    }
    let copy = |from: &str, to: &str| {
        std::fs::copy(root.join(from), folder.join(to)).expect("the file is there");
    };
    for name in ["scenarios", "home/Videos"] {
        std::fs::create_dir(folder.join(name)).expect("a new name");
    }
    copy("scenarios/studio.toml", "scenarios/studio.toml");
    copy("clips/car-detection.mp4", "home/Videos/car-detection.mp4");
    copy("clips/car-detection.mp4", "film.mp4");
    let trace = r#"{"ticks": 20, "backlogged": true, "streams": [{"id": "a", "period": 4}]}"#;
    folder.write("trace.json", trace);
    let sdp = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=lecture\nc=IN IP4 127.0.0.1\nt=0 0\n\
               m=video 5004 RTP/AVP 96\na=rtpmap:96 H264/90000\n";
    folder.write("lecture.sdp", sdp);
    folder.write("load.format", "input { int cpu; long memory; };\n");
    folder.write("filter.ec", "{ return input.cpu > 80; }\n");
    folder.write("events.json", "[{\"cpu\": 90}, {\"cpu\": 10}]\n");
    folder.write("hot.ec", "output { int hot; };\n{ output.hot = input.cpu; return 1; }\n");
    folder.write("van.secret", "a".repeat(64));
    let key = folder.join("van.key");
    assert_eq!(selvedge(["key", "new", key.to_str().expect("a path")]).code, Some(0));
    folder.write("token", "a secret of some length\n");
    folder.write("studio.toml", "[host]\nname = \"studio\"\n[deploy]\ntoken = \"token\"\n");
}

fn all() -> (Vec<Page>, Examples<'static>) {
    let binary = Path::new(env!("CARGO_BIN_EXE_selvedge"));
    (pages(binary), Examples { binary, expected: &EXPECTED, beside: &BESIDE, files })
}

#[test]
fn every_command_has_an_example_and_every_exception_is_of_one() {
    let (pages, examples) = all();
    assert!(pages.len() > 30, "{} pages", pages.len());
    examples.check(&pages);
}

#[test]
fn every_example_works() {
    if let Err(why) = Network::new() {
        return skipped("every_example_works", &format!("needs network namespaces: {why}"));
    }
    // The first endpoint of a user measures modules; the others use its figures.
    assert_eq!(selvedge(["stack", "listen", "127.0.0.1:0", "--seconds", "1"]).code, Some(0));
    let (pages, examples) = all();
    examples.run(&pages);
}
