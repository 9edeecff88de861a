//! Whole node files: those in `scenarios/`, valid and invalid, those in the manual, and noise.

#![allow(clippy::disallowed_methods, reason = "the tests read files")]

mod bonds;
mod trees;
mod tunnels;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use selvedge_data_sched::{Discipline, Tree};
use selvedge_data_stream::{Class, Contract, KEYS, Key, Kind, Late, WhenFull, Window, Windows};

use super::*;

const SMALLEST: &str = "\
[link.uplink]
rate = \"6 Mbit/s\"

[stream.lecture]
source = \"test:video\"
to = \"rtp://127.0.0.1:5004\"
";

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(super) fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no {extension} files in {folder}");
    paths
}

fn parsed(text: &str) -> Parsed {
    parse(text, "test.toml").unwrap_or_else(|errors| panic!("{errors}\n---\n{text}"))
}

fn wrong(text: &str) -> ConfigErrors {
    parse(text, "test.toml").expect_err(text)
}

#[test]
fn each_bad_file_gets_exactly_its_messages() {
    let bad = files("scenarios/bad", "toml");
    for path in &bad {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(path).unwrap();
        let expected = fs::read_to_string(path.with_extension("txt")).unwrap();
        let errors = parse(&text, name).expect_err(name);
        assert_eq!(format!("{errors}\n"), expected, "{name}");
    }
    assert_eq!(files("scenarios/bad", "txt").len(), bad.len());
}

#[test]
fn each_good_file_is_read() {
    for path in files("scenarios", "toml") {
        let text = fs::read_to_string(&path).unwrap();
        let config = parsed(&text).config;
        assert_eq!(config.name, path.file_stem().unwrap().to_str().unwrap());
    }
    let studio = fs::read_to_string(repository().join("scenarios/studio.toml")).unwrap();
    let names: Vec<_> = parsed(&studio).config.streams.into_iter().map(|s| s.spec.name).collect();
    assert_eq!(names, ["lobby", "car-park", "archive", "stills", "speech"]);
}

#[test]
fn the_manual_shows_only_files_that_are_read_and_names_every_key() {
    let manual = fs::read_to_string(repository().join("docs/node-file.md")).unwrap();
    let examples: Vec<_> =
        manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3);
    for example in examples {
        parsed(example);
    }
    let keys = [
        super::page::KNOWN,
        super::link::KNOWN,
        super::tree::KNOWN,
        super::step::KNOWN,
        super::tunnel::KNOWN,
        super::stream::KNOWN,
    ];
    let keys = [keys.concat(), super::slot::KNOWN.to_vec()].concat();
    for key in keys {
        assert!(manual.contains(&format!("| `{key}` |")), "the manual lacks {key}");
    }
}

/// Tables that stand for many streamlets, and what a slot's period makes of their sets.
#[test]
fn streamlets_are_counted_and_addressed() {
    let text = "[link.up]\nrate = \"6 Mbit/s\"\n[stream.s]\nperiod = \"2 ms\"\n\
        sets = { gold = 2, plain = 1 }\nstreamlets = [\n\
        { from = \"rtp://0.0.0.0:7000?ssrc=0x10\", to = \"rtp://127.0.0.1:8000\", set = \"gold\", count = 100 },\n\
        { from = \"rtp://[::]:7002\", to = \"rtp://127.0.0.1:9000\", set = \"plain\", count = 3 },\n]\n";
    let config = parsed(text).config;
    let stream = &config.streams[0];
    assert_eq!(stream.receiver(), "rtp://127.0.0.1:8000 and 102 more");
    let slot = stream.slot.as_ref().unwrap();
    assert_eq!((slot.count(), slot.queue), (103, 64));
    let of = |number| slot.streamlet(number).map(|one| (one.ssrc, one.from.unwrap(), one.to));
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    assert_eq!(of(99), Some((Some(0x10 + 99), at("0.0.0.0:7000"), at("127.0.0.1:8000"))));
    assert_eq!(of(102), Some((None, at("[::]:7006"), at("127.0.0.1:9004"))));
    assert_eq!((of(103), slot.streamlets().count()), (None, 103));
    assert_eq!(slot.listeners().len(), 4);
    let sets = &config.summary().streams[0].sets;
    // 1 + 100 + (100 / 2 + 1) turns of 2 ms; and 1 + 3 + (3 * 2 + 1).
    assert_eq!((sets[0].turns, sets[0].bound_ms), (152, Some(304.0)));
    assert_eq!((sets[1].turns, sets[1].bound_ms), (11, Some(22.0)));
}

/// 20,000 tables and 131,072 streamlets of one of them are read in a moment.
#[test]
fn many_streamlets_are_read() {
    let tables: String =
        (0..20_000).map(|n| format!("\"rtp://10.{}.{}.1:5004\",\n", n / 200, n % 200)).collect();
    let text = format!(
        "[link.up]\nrate = \"6 Mbit/s\"\n[stream.a]\nsource = \"test:video\"\nstreamlets = [{tables}]\n\
         [stream.b]\nperiod = \"1 ms\"\nstreamlets = [{{ from = \"rtp://127.0.0.1:1?ssrc=0\", \
         to = \"rtp://127.0.0.1:2\", count = 131072 }}]\n"
    );
    let began = std::time::Instant::now();
    let counts: Vec<u32> =
        parsed(&text).config.streams.iter().map(|s| s.slot.as_ref().unwrap().count()).collect();
    assert_eq!(counts, [20_000, 131_072]);
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
}

/// The rows of the manual's second table of streams are made from the doc comments of [`KEYS`].
/// `SELVEDGE_WRITE_DOCS=1 cargo test -p selvedge-control-config manual` writes them.
#[test]
fn the_manual_has_the_keys_of_a_spec_as_their_doc_comments_say() {
    let file = repository().join("docs/node-file.md");
    let manual = fs::read_to_string(&file).unwrap();
    const HEAD: &str = "The keys of what a link is asked for:\n\n| key | meaning | values | default |\n|---|---|---|---|\n";
    let (before, rest) = manual.split_once(HEAD).expect("the table's head");
    let after = rest.find("\n\n").map_or("", |end| &rest[end..]);
    let rows: Vec<_> = KEYS.iter().map(Key::row).collect();
    let wanted = format!("{before}{HEAD}{}{after}", rows.join("\n"));
    if std::env::var_os("SELVEDGE_WRITE_DOCS").is_some() {
        fs::write(file, &wanted).unwrap();
    } else {
        assert!(manual == wanted, "docs/node-file.md differs from KEYS; see this test's comment");
    }
}

#[test]
fn a_label_is_a_line_that_fits() {
    let with = |label: &str| SMALLEST.replace("source", &format!("label = {label}\nsource"));
    assert_eq!(
        parsed(&with("\"Main stage, left\"")).config.streams[0].spec.shown.label,
        "Main stage, left"
    );
    for wrong in [format!("\"{}\"", "x".repeat(65)), "\"two\\nlines\"".into()] {
        let errors = self::wrong(&with(&wrong)).to_string();
        assert!(errors.contains("at most 64 bytes"), "{errors}");
    }
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parsed(SMALLEST).config;
    let mut link = LinkConfig::new("uplink", Bitrate::from_mbps(6), Discipline::Dwcs);
    let source = SourceUri::Test("video".into());
    let stream = StreamConfig::new("lecture", source, "127.0.0.1:5004".parse().unwrap());
    assert_eq!(
        (link.selection, link.burst, link.catch_up, link.mtu, link.queue),
        (true, link.mtu, None, Bytes(1500), None)
    );
    assert_eq!(
        config,
        NodeConfig {
            name: "selvedge".into(),
            page: PageConfig {
                listen: "127.0.0.1:7700".parse().unwrap(),
                token: None,
                view_token: None,
                watch_token: None,
                tls: Tls::Off,
                connections_per_address: 16,
            },
            links: vec![link.clone()],
            bonds: Vec::new(),
            tunnels: Vec::new(),
            streams: vec![stream],
        }
    );
    // Without selection a queue of a quarter of a second, but never less than one packet.
    link = parsed(&SMALLEST.replace("6 Mbit/s\"", "6 Mbit/s\"\ndiscipline = \"fifo\""))
        .config
        .links
        .remove(0);
    assert_eq!((link.selection, link.queue), (false, Some(Bytes(187_500))));
    link = parsed(&SMALLEST.replace("6 Mbit/s\"", "9 kbit/s\"\nselection = false"))
        .config
        .links
        .remove(0);
    assert_eq!(link.queue, Some(Bytes(1500)));
}

#[test]
fn every_key_is_read() {
    let text = r#"
        node = { name = "n", listen = "[::1]:1", token = "0123456789abcdef", 
            view_token = "-._~+/=ABCDEFGHI", watch_token = "only-the-pictures", tls = { certificate = "n.crt", key = "/n.key" }, 
            connections_per_address = 64 }
        [link]
        b.rate = "1 Mbit/s"
        [link.a]
        rate = "2 Mbit/s"
        discipline = "edf"
        selection = false
        burst = "3 kB"
        catch_up = "20 kB"
        mtu = "1400 B"
        queue = "50 kB"
        placement = "coprocessor"
        socket = "/run/a.sock"
        core = 1
        send = "sendmmsg"
        stack = "ui | unreliable | net"
        stack_share = "30 %"
        stack_processors = [2, 3]
        stack_delay = "20 ms"
        secret = "a.secret"
        [stream.s]
        source = "file:x.ts?loop"
        to = "rtp://[::1]:9"
        link = "a"
        period = "33.4 ms"
        window = { I = "0/1", B = "1/2", other = "2/3" }
        late = "send"
        work_conserving = false
        weight = 0x10
        priority = -1_000
        class = "edf"
        delay = "250 ms"
        ring = 1024
        pool = "1 MiB"
        full = "block"
        sdp = "s.sdp"
        thumbnail = false
        stack = "none"
    "#;
    let config = parsed(text).config;
    let names: Vec<_> = config.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["b", "a"], "in the order of the file");
    assert_eq!(
        config.links[1],
        LinkConfig {
            name: "a".into(),
            rate: Bitrate::from_mbps(2),
            discipline: Discipline::Edf,
            selection: false,
            burst: Bytes(3000),
            catch_up: Some(Bytes(20_000)),
            mtu: Bytes(1400),
            queue: Some(Bytes(50_000)),
            tree: Tree::default(),
            nodes: Vec::new(),
            placement: Placement::Coprocessor,
            socket: Some("/run/a.sock".into()),
            core: Some(1),
            sending: Sending::Sendmmsg,
            device: None,
            stack: "ui | unreliable | net".parse().ok(),
            stack_share: Some(Load::percent(30)),
            stack_processors: vec![2, 3],
            stack_delay: Some(Duration::from_millis(20)),
            secret: Some("a.secret".into()),
            key: None,
            peer: None,
            bond: None,
            steps: Vec::new(),
            is_auto: false,
        }
    );
    let window = |lose, of| Window { lose, of };
    let mut windows = [window(2, 3); Kind::COUNT];
    windows[Kind::Intra as usize] = window(0, 1);
    windows[Kind::Bidirectional as usize] = window(1, 2);
    assert_eq!(
        config.streams,
        [StreamConfig {
            spec: Spec {
                contract: Contract {
                    period: Duration::from_micros(33_400),
                    windows: Windows::PerKind(windows),
                    late: Late::Send,
                    work_conserving: false,
                    weight: 16,
                    priority: -1000,
                    class: Class::Edf,
                    parent: 0,
                    delay: Some(Duration::from_millis(250)),
                },
                period_from_media: false,
                ring: 1024,
                pool: Bytes(1 << 20),
                full: WhenFull::Block,
                ..Spec::new("s", "[::1]:9".parse().unwrap())
            },
            source: SourceUri::File { path: "x.ts".into(), repeat: true, part: FilePart::First },
            link: 1,
            sdp: Some("s.sdp".into()),
            thumbnail: false,
            stack: None,
            output: None,
            far: None,
            is_reported: false,
            rtcp_port: None,
            slot: None,
            shares: false,
            asks: None,
        }]
    );
    assert_eq!(config.page.token.as_ref().map(Token::as_str), Some("0123456789abcdef"));
    assert_eq!(config.page.view_token.as_ref().map(Token::as_str), Some("-._~+/=ABCDEFGHI"));
    assert_eq!(config.page.watch_token.as_ref().map(Token::as_str), Some("only-the-pictures"));
    assert_eq!(config.page.connections_per_address, 64);
    assert_eq!(
        config.page.based_at(Path::new("/studio")).tls,
        Tls::Files { certificate: "/studio/n.crt".into(), key: "/n.key".into() }
    );
    let said = TokenError::Form.to_string();
    let (_, form) = said.split_once("write ").unwrap();
    assert!(include_str!("../../../docs/api.md").contains(form), "docs/api.md: {form}");
}

#[test]
fn a_page_that_others_reach_is_encrypted_unless_the_file_says_otherwise() {
    let tls = |node: &str| parsed(&format!("[node]\n{node}\n{SMALLEST}")).config.page.tls;
    let token = "token = \"0123456789abcdef\"";
    for (listen, usual) in [
        ("127.0.0.1:0", Tls::Off),
        ("127.8.9.1:0", Tls::Off),
        ("[::1]:0", Tls::Off),
        ("[::ffff:127.0.0.1]:0", Tls::Off),
        ("0.0.0.0:0", Tls::Auto),
        ("[::]:0", Tls::Auto),
        ("192.0.2.7:0", Tls::Auto),
    ] {
        let node = format!("listen = \"{listen}\"\n{token}");
        assert_eq!(tls(&node), usual, "{listen}");
        assert_eq!(tls(&format!("{node}\ntls = \"auto\"")), Tls::Auto, "{listen}");
        assert_eq!(tls(&format!("{node}\ntls = \"off\"")), Tls::Off, "{listen}");
    }
}

#[test]
fn a_token_is_one_that_can_be_sent_and_that_not_everybody_knows() {
    let read = |text: &str| text.parse::<Token>().map(|token| token.as_str().to_owned());
    for good in ["0123456789abcdef".to_owned(), "a".repeat(256), "-._~+/=ABCxyz019".to_owned()] {
        assert_eq!(read(&good).as_ref(), Ok(&good));
    }
    for bad in
        ["", "0123456789abcde", "with a space in it", "schl\u{fc}ssel-wort-lang", &"a".repeat(257)]
    {
        assert_eq!(read(bad), Err(TokenError::Form), "{bad}");
    }
    // Examples of earlier versions: a node with one of these is open to all.
    for known in ["replace-this-token", "at-least-16-characters"] {
        assert_eq!(read(known), Err(TokenError::Published));
    }
    let both = "[node]\ntoken = \"0123456789abcdef\"\nview_token = \"0123456789abcdef\"\n";
    assert!(wrong(&format!("{both}{SMALLEST}")).to_string().contains("is the same as token"));
    let third = "[node]\ntoken = \"0123456789abcdef\"\nview_token = \"fedcba9876543210\"\n\
                 watch_token = \"fedcba9876543210\"\n";
    assert!(wrong(&format!("{third}{SMALLEST}")).to_string().contains("is the same as view_token"));
    let token: Token = "0123456789abcdef".parse().unwrap();
    assert!(!format!("{token:?}").contains("0123456789abcdef"), "{token:?}");
}

/// Not among the scenarios, which hold no token.
#[test]
fn those_that_ask_need_a_link_whose_frames_they_can_share() {
    let text = "[link.uplink]\nrate = \"auto\"\n\n[stream.lecture]\nsource = \"test:video\"\n\
                to = \"rtp://127.0.0.1:5004\"\nreceivers = { token = \"0123456789abcdef\" }\n";
    let expected = "test.toml:7:13: stream.lecture.receivers: receivers share the frames of one source: those that ask \
                    need a link with a stated rate and without a stack or bond";
    assert_eq!(wrong(text).to_string().trim_end(), expected);
    assert!(parse(&text.replace("auto", "6 Mbit/s"), "test.toml").is_ok());
}

#[test]
fn no_example_holds_a_token() {
    for folder in ["scenarios", "scenarios/bad", "fuzz/seeds/node_file"] {
        for path in files(folder, "toml") {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let of =
                |line: &str| Some(line.split_once("token = \"")?.1.split('"').next()?.to_owned());
            let open = |token: String| token.parse::<Token>().is_ok();
            assert!(!text.lines().filter_map(of).any(open), "{} has a token", path.display());
        }
    }
}

#[test]
fn a_stream_has_its_own_stack_or_its_links_or_none() {
    let of = |link: &str, stream: &str| {
        let text = SMALLEST.replace("\n\n", &format!("\n{link}\n")) + stream;
        parsed(&text).config.streams.remove(0).stack.map(|stack| stack.to_string())
    };
    let (plain, safe) = ("ui | unreliable | net", "ui | encrypt(aes256) | reliable | net");
    let key = |line: &str| format!("stack = \"{line}\"");
    assert_eq!(of("", ""), None);
    assert_eq!(of(&key(safe), "").as_deref(), Some(safe));
    assert_eq!(of(&key(safe), &key(plain)).as_deref(), Some(plain));
    assert_eq!(of("", &key(plain)).as_deref(), Some(plain));
    assert_eq!(of(&key(safe), &key("none")), None);
    let text = SMALLEST.to_owned() + &key(safe);
    let summary = parsed(&text).config.summary();
    let carried = summary.streams[0].stack.clone().expect("it has one");
    // 1500 less IP, UDP (28), the modules' headers and the endpoint's byte.
    assert_eq!((carried.packet_bytes, carried.header_bytes), (1428, 8 + 16 + 9 + 10 + 1));
    assert!(!carried.encrypted);
    // Sealing takes 28 bytes more.
    let sealed = text.replace("\n\n", "\nkey = \"a.key\"\n\n");
    let carried = parsed(&sealed).config.summary().streams[0].stack.clone().expect("it has one");
    assert_eq!((carried.packet_bytes, carried.header_bytes), (1400, 44 + 28));
    assert!(carried.encrypted);
}

#[test]
fn what_is_found_out_later_is_said_of_its_line() {
    let Parsed { map, .. } = parsed(SMALLEST);
    let mut errors = ConfigErrors::new("studio.toml");
    let missing = ConfigFault::Machine("no such file \"a.mp4\"; write the path of one".into());
    errors.push_key(&map, "stream.lecture.source", missing);
    errors.push_key(&map, "link.uplink.burst", ConfigFault::Machine("too large".into()));
    assert_eq!(
        errors.to_string(),
        "studio.toml:1:1: link.uplink.burst: too large\n\
         studio.toml:5:10: stream.lecture.source: no such file \"a.mp4\"; write the path of one"
    );
}

#[test]
fn mistakes_serialise() {
    let json = serde_json::to_value(wrong(&SMALLEST.replace("6 Mbit/s", "6"))).unwrap();
    let expected = serde_json::json!({
        "file": "test.toml",
        "errors": [{
            "line": 2, "column": 8, "key": "link.uplink.rate",
            "message": "the unit is missing; write \"6 Mbit/s\"",
        }],
        "omitted": 0,
    });
    assert_eq!(json, expected);
}

#[test]
fn a_number_with_other_characters_is_shown_without_them() {
    let long = format!("1_00{}", "ä".repeat(30));
    for number in ["1_0\u{11}", "1_0\u{1b}[31m", "1_0ä", &long, "0x1_0\u{7}", "1_0.5\u{7}"] {
        for key in ["weight", "delay"] {
            let said = wrong(&format!("{SMALLEST}{key} = {number}\n")).to_string();
            assert!(!said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
        }
    }
}

#[test]
fn size_and_counts_are_bounded() {
    let long = format!("{SMALLEST}#{}", "x".repeat(LONGEST_FILE));
    assert!(wrong(&long).to_string().contains("at most 4194304 are read"));

    let stream = |n: usize| {
        format!("[stream.s{n}]\nsource = \"test:video\"\nto = \"rtp://127.0.0.1:{}\"\n", n + 1)
    };
    let streams = |count| (0..count).map(stream).collect::<String>();
    let link = "[link.a]\nrate = \"1 Mbit/s\"\n";
    let full = parsed(&format!("{link}{}", streams(STREAMS_MAX)));
    assert_eq!(full.config.streams.len(), STREAMS_MAX);
    let more = wrong(&format!("{link}{}", streams(STREAMS_MAX + 1)));
    assert!(more.to_string().contains("4097 streams; a node takes at most 4096"), "{more}");

    let links = |count| {
        (0..count).map(|n| format!("[link.l{n}]\nrate = \"1 Mbit/s\"\n")).collect::<String>()
    };
    let stream = format!("{}link = \"l7\"\n", stream(0));
    assert_eq!(parsed(&format!("{}{stream}", links(LINKS_MAX))).config.streams[0].link, 7);
    let more = wrong(&format!("{}{stream}", links(LINKS_MAX + 1)));
    assert!(more.to_string().contains("257 links; a node takes at most 256"), "{more}");
}

#[test]
fn a_summary_knows_shares_once_rates_are_offered() {
    let kinds = fs::read_to_string(repository().join("scenarios/kinds.toml")).unwrap();
    let mut summary = parsed(&kinds).config.summary();
    assert_eq!(summary.streams[0].window, "I 0/1, P 1/8, B 1/2, other 1/5");
    assert_eq!(summary.links[0].streams, 2);
    assert_eq!(summary.memory_bytes, 2 * summary.streams[0].memory_bytes);
    summary.offer("lobby", Bitrate::from_kbps(300));
    assert_eq!((summary.streams[0].share, summary.links[0].share), (Some(0.5), None));
    summary.offer("archive", Bitrate::from_kbps(600));
    summary.offer("no such stream", Bitrate::from_kbps(600));
    assert_eq!((summary.streams[1].share, summary.links[0].share), (Some(1.0), Some(1.5)));
}

/// For any text: an answer of bounded length, in lines, that cannot steer a terminal.
fn answers_soundly(text: &str) -> Result<(), TestCaseError> {
    let errors = match parse(text, "noise.toml") {
        Ok(Parsed { config, .. }) => {
            prop_assert!(!config.links.is_empty() && !config.streams.is_empty());
            prop_assert!(config.streams.iter().all(|s| s.link < config.links.len()));
            let nodes = |s: &StreamConfig| config.links[s.link].tree.nodes().len();
            prop_assert!(
                config.streams.iter().all(|s| s.spec.contract.parent as usize <= nodes(s))
            );
            let names: BTreeSet<_> = config.streams.iter().map(|s| &s.spec.name).collect();
            prop_assert_eq!(names.len(), config.streams.len());
            return Ok(());
        }
        Err(errors) => errors,
    };
    are_sound(&errors)
}

/// Errors in `noise.toml`: some, in order, of bounded length, in lines, that cannot steer a terminal.
pub(crate) fn are_sound(errors: &ConfigErrors) -> Result<(), TestCaseError> {
    prop_assert!(!errors.is_empty());
    prop_assert!(errors.errors().is_sorted_by_key(|error| error.at));
    let shown = errors.to_string();
    prop_assert!(shown.lines().count() <= ConfigErrors::MOST + 1);
    for line in shown.lines() {
        prop_assert!(line.starts_with("noise.toml:"), "{}", line);
        prop_assert!(line.chars().count() < 600, "{}", line);
        prop_assert!(!line.chars().any(char::is_control), "{:?}", line);
    }
    Ok(())
}

/// Pieces of node files, valid and invalid.
const PIECES: &[&str] = &[
    "[link.a]\n",
    "[stream.a]\n",
    "[stream.\"a b\"]\n",
    "[link.a.tree.b]\n",
    "[link.a.tree.a]\n",
    "tree",
    "parent = \"b\"\n",
    "parent = \"a\"\n",
    "discipline = \"hwfq\"\n",
    "[node]\n",
    "[[stream]]\n",
    "[a.b.c]\n",
    "rate",
    "window",
    "to",
    "source",
    "link",
    "period",
    " = ",
    ".",
    ",",
    "{ ",
    " }",
    "[",
    "]",
    "\n",
    "\"",
    "'''",
    "\"\"\"",
    "#",
    "\\",
    "\\u0007",
    "\u{7f}",
    "\r\n",
    "\u{feff}",
    "ä",
    "0",
    "-1",
    "1e400",
    "0x",
    "2020-01-01",
    "true",
    "\"6 Mbit/s\"",
    "\"1/5\"",
    "\"rtp://127.0.0.1:5004\"",
    "\"file:a?loop\"",
    "\"test:video\"",
    "I = \"0/1\"",
    "rate = \"1 Mbit/s\"\n",
    "source = \"test:video\"\n",
    "to = \"rtp://[::1]:1\"\n",
    "window = { I = ",
    "discipline = ",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gets_an_answer(text in "(?s).{0,400}") {
        answers_soundly(&text)?;
    }

    #[test]
    fn any_pieces_get_an_answer(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
    ) {
        answers_soundly(&pieces.concat())?;
    }

    #[test]
    fn a_damaged_file_gets_an_answer(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..30, prop::sample::select(PIECES)),
            1..6,
        ),
    ) {
        let folders = ["scenarios", "scenarios/bad"];
        let paths: Vec<_> = folders.into_iter().flat_map(|f| files(f, "toml")).collect();
        let mut text = fs::read_to_string(which.get(&paths)).unwrap();
        for (at, removed, piece) in damage {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.floor_char_boundary(start + removed);
            text.replace_range(start..end.max(start), piece);
        }
        answers_soundly(&text)?;
    }
}
