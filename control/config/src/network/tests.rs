//! Whole network files: those in `scenarios/`, valid and invalid, those in the manual, and noise.

#![allow(clippy::disallowed_methods, reason = "the tests read files")]

use proptest::prelude::*;
use selvedge_data_net_line::{
    CodelParams, DelayModel, DisciplineParams, DualPi2Params, FqCodelParams, Jitter, Limit,
    LossModel, Outages, Rate, Trace,
};
use selvedge_data_stream::{Late, Window, Windows};
use selvedge_units::Share;
use std::fs;
use std::path::Path;

use super::*;
use crate::LONGEST_FILE;
use crate::tests::{are_sound, files, repository};

const SMALLEST: &str = "\
[network]
source = \"made up\"

[host.near]

[host.far]

[link.uplink]
between = [\"near\", \"far\"]
";

/// Reads the files in a folder; more than a MiB of none.
fn in_folder(folder: &Path) -> impl FnMut(&str) -> Result<Vec<u8>, FileError> + use<> {
    let folder = folder.to_owned();
    move |name| {
        let unreadable = |_| FileError::Unreadable("no such file".into());
        let bytes = fs::read(folder.join(name)).map_err(unreadable)?;
        if bytes.len() > 1 << 20 { Err(FileError::TooLong(Bytes(1 << 20))) } else { Ok(bytes) }
    }
}

/// Files with this in all of them.
fn with(bytes: &[u8]) -> impl FnMut(&str) -> Result<Vec<u8>, FileError> {
    move |_| Ok(bytes.to_vec())
}

fn parsed(text: &str) -> NetworkConfig {
    let mut files = |name: &str| match name {
        "camera.txt" => Ok(b"Ir 900\n".to_vec()),
        _ => Ok(b"1\n".to_vec()),
    };
    let config = parse(text, "test.toml", &mut files);
    config.unwrap_or_else(|errors| panic!("{errors}\n---\n{text}"))
}

fn wrong(text: &str) -> String {
    parse(text, "test.toml", &mut with(b"1\n")).expect_err(text).to_string()
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn share(text: &str) -> Share {
    text.parse().unwrap()
}

#[test]
fn each_bad_file_gets_exactly_its_messages() {
    let folder = repository().join("scenarios/bad/net");
    let bad = files("scenarios/bad/net", "toml");
    for path in &bad {
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(path).unwrap();
        let errors = parse(&text, name, &mut in_folder(&folder)).expect_err(name);
        let expected = fs::read_to_string(path.with_extension("txt")).unwrap();
        assert_eq!(format!("{errors}\n"), expected, "{name}");
    }
    // Beside the messages there is one list of frames.
    assert_eq!(files("scenarios/bad/net", "txt").len(), bad.len() + 1);
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = parsed(SMALLEST);
    let model = LineModel::default();
    let host =
        |name: &str| Host { name: name.into(), address: None, node: None, kill: None, clock: None };
    let link = NetworkLink {
        name: "uplink".into(),
        ends: [0, 1],
        there: model.clone(),
        back: model.clone(),
    };
    let expected = NetworkConfig {
        name: "network".into(),
        about: String::new(),
        source: "made up".into(),
        lasts: Duration::from_secs(60),
        hosts: vec![host("near"), host("far")],
        links: vec![link],
        senders: Vec::new(),
        traffic: Vec::new(),
        map: config.map.clone(),
    };
    assert_eq!(config, expected);
    let traffic = |keys: &str| {
        let text = "\n[traffic.t]\nfrom = \"near\"\nto = \"far\"\n";
        parsed(&format!("{SMALLEST}{text}{keys}")).traffic.remove(0)
    };
    let kind = TrafficKind::Bulk { control: Control::Cubic, flows: 1, bytes: None };
    let bulk = Traffic { name: "t".into(), from: 0, to: 1, start: Duration::ZERO, kind };
    assert_eq!(traffic("kind = \"bulk\""), bulk);
    let sender =
        "link = \"s\"\nframes = \"camera.txt\"\n[sender.s]\nhost = \"near\"\nrate = \"1 Mbit/s\"";
    let contract = selvedge_data_stream::Spec::new("t", "[::1]:1".parse().unwrap()).contract;
    let list = FrameList::parse("Ir 900\n").unwrap();
    assert_eq!(
        traffic(&format!("kind = \"frames\"\n{sender}")).kind,
        TrafficKind::Frames { list, contract, sender: 0 }
    );
    let queue =
        |keys: &str| parsed(&format!("{SMALLEST}queue = {keys}")).links.remove(0).there.queue;
    assert_eq!(queue("\"drop-tail\""), model.queue);
    for codel in ["\"codel\"", "{ kind = \"codel\" }"] {
        assert_eq!(queue(codel), QueueModel::Codel(CodelParams::default()));
    }
    for fq in ["\"fq-codel\"", "{ kind = \"fq-codel\" }"] {
        assert_eq!(queue(fq), QueueModel::FqCodel(FqCodelParams::default()));
    }
    for dual in ["\"dualpi2\"", "{ kind = \"dualpi2\" }"] {
        assert_eq!(queue(dual), QueueModel::DualPi2(DualPi2Params::default()));
    }
    for own in ["\"discipline\"", "{ kind = \"discipline\" }"] {
        assert_eq!(queue(own), QueueModel::Discipline(DisciplineParams::default()));
    }
    // Of the two limits the one that is given counts, and none holds more than a GiB.
    let limit = |bytes, packets| QueueModel::DropTail { limit: Limit { bytes, packets } };
    let bytes = "{ kind = \"drop-tail\", bytes = \"9 MB\" }";
    assert_eq!(queue(bytes), limit(Bytes(9_000_000), u32::MAX));
    assert_eq!(queue("{ kind = \"drop-tail\", packets = 9 }"), limit(Bytes(1 << 30), 9));
}

const EVERY_KEY: &str = include_str!("every_key.toml");

fn files_of_every_key(name: &str) -> Result<Vec<u8>, FileError> {
    Ok(match name {
        "camera.txt" => b"Ir 900\nPr 70 1\n".to_vec(),
        "x.trace" => b"5\n10\n".to_vec(),
        "x.csv" => b"ms,kbit/s\n0,8000\n1000,0\n".to_vec(),
        other => other.as_bytes().to_vec(),
    })
}

#[test]
fn every_key_of_a_link_is_read() {
    let config = parse(EVERY_KEY, "lab.toml", &mut files_of_every_key).unwrap();
    let header = (config.name.as_str(), config.about.as_str(), config.lasts);
    assert_eq!(header, ("lab", "all keys", Duration::from_secs(300)));
    let hosts: Vec<_> = config.hosts.iter().map(|host| (&host.name[..], &host.node)).collect();
    assert_eq!(hosts, [("near", &Some("studio.toml".into())), ("relay", &None), ("far", &None)]);
    assert_eq!(config.hosts[2].address, "10.0.0.2".parse().ok());
    assert_eq!(config.hosts[2].kill, Some((Instant(3_000_000_000), ms(100))));
    let jump = ClockJump { by: ms(1_000), is_back: true };
    assert_eq!(config.hosts[2].clock, Some((Instant(2_000_000_000), jump)));
    let [first, second] = &config.links[..] else { panic!("two links") };
    assert_eq!((first.ends, second.ends), ([0, 1], [2, 1]));
    let codel = CodelParams {
        target: ms(6),
        interval: ms(90),
        limit: Limit { bytes: Bytes(1_000_000), packets: 99 },
        marks: false,
    };
    let delay = DelayModel { delay: ms(40), jitter: Jitter::Uniform(ms(5)), reorders: true };
    let there = LineModel {
        rate: Trace::from_mahimahi("5\n10\n").ok().map(Rate::Trace),
        queue: QueueModel::FqCodel(FqCodelParams { codel, quantum: Bytes(300), queues: 16 }),
        delay: delay.clone(),
        loss: LossModel::GilbertElliott {
            worsens: share("1 %"),
            recovers: share("20 %"),
            good: share("0.1 %"),
            bad: share("50 %"),
        },
        corrupts: share("0.01 %"),
        duplicates: share("1 ppm"),
        outages: Some(Outages { every: Duration::from_secs(30), lasts: ms(300), holds: true }),
        mtu: Some(Bytes(1_400)),
        recording: None,
    };
    assert_eq!(first.there, there);
    // What the other direction leaves out is the same.
    let back = LineModel {
        rate: None,
        queue: QueueModel::Codel(CodelParams { marks: true, ..CodelParams::default() }),
        delay: DelayModel { jitter: Jitter::Recorded(vec![ms(0), ms(30)]), ..delay },
        loss: LossModel::Bernoulli(share("3 %")),
        outages: None,
        mtu: None,
        ..there
    };
    assert_eq!(first.back, back);
    let csv = Trace::from_csv("ms,kbit/s\n0,8000\n1000,0\n").ok().map(Rate::Trace);
    assert_eq!((&second.there.rate, &second.back), (&csv, &second.there));
    assert_eq!(second.there.delay.jitter, Jitter::Normal(ms(2)));
    assert_eq!(config.map.at("link.first.back.loss").map(|at| at.line), Some(30));
}

#[test]
fn a_recording_is_a_link_from_near_to_far_whichever_the_file_names_first() {
    let text = "in_ns,bytes,link,direction,port,fate,out_ns\n5,100,uplink,there,5004,arrived,9\n";
    let read = |file: &str| parse(file, "x", &mut with(text.as_bytes())).map(|it| it.links);
    let [there, back] = LineModel::recorded(text, "uplink").unwrap();
    assert_ne!(there, back);
    let recorded = format!("{SMALLEST}recording = \"packets.csv\"\n");
    let link = read(&recorded).unwrap().remove(0);
    assert_eq!((&link.there, &link.back), (&there, &back));
    let turned = recorded.replace("[\"near\", \"far\"]", "[\"far\", \"near\"]");
    assert_ne!(turned, recorded);
    let link = read(&turned).unwrap().remove(0);
    assert_eq!((link.there, link.back), (back, there.clone()));
    // All that it replaces is refused, each at its place.
    let errors =
        read(&format!("{recorded}delay = \"1 ms\"\nqueue = \"codel\"\n[link.uplink.back]\n"));
    let errors = errors.unwrap_err().to_string();
    for key in ["delay", "queue", "back"] {
        let said =
            format!("link.uplink.{key}: a recording decides all of its link; leave this out");
        assert!(errors.contains(&said), "{errors}");
    }
    // A change ends it.
    let mut model = there;
    LineChange::Delay(ms(7)).apply(&mut model);
    let delay = DelayModel { delay: ms(7), ..DelayModel::default() };
    assert_eq!(model, LineModel { delay, ..LineModel::default() });
}

#[test]
fn every_key_of_the_other_queues_is_read() {
    let queue = |keys: &str| {
        let text = format!("{SMALLEST}queue = {{ bytes = \"9 kB\", packets = 9, {keys} }}");
        parsed(&text).links.remove(0).there.queue
    };
    let limit = Limit { bytes: Bytes(9_000), packets: 9 };
    let keys = "kind = \"dualpi2\", target = \"20 ms\", rtt_max = \"90 ms\", coupling = 3, \
                ramp_from = \"1 ms\", ramp = \"0 ms\", unmarked = 2, classic_one_in = 10";
    let dual = DualPi2Params {
        target: ms(20),
        rtt_max: ms(90),
        coupling: 3,
        ramp_from: ms(1),
        ramp: ms(0),
        unmarked: 2,
        classic_one_in: 10,
        limit,
    };
    assert_eq!(queue(keys), QueueModel::DualPi2(dual));
    let keys = "kind = \"discipline\", discipline = \"dwcs\", period = \"20 ms\", window = \"1/9\", \
                late = \"drop\", weight = 3, priority = -2, class = \"edf\", delay = \"500 ms\"";
    let others = Contract {
        delay: Some(ms(500)),
        weight: 3,
        priority: -2,
        class: selvedge_data_stream::Class::Edf,
        ..Contract::new(ms(20), Window { lose: 1, of: 9 })
    };
    let own = DisciplineParams {
        discipline: Discipline::Dwcs,
        others,
        limit,
        ..DisciplineParams::default()
    };
    assert_eq!(queue(keys), QueueModel::Discipline(own));
}

#[test]
fn every_key_of_traffic_is_read() {
    let config = parse(EVERY_KEY, "lab.toml", &mut files_of_every_key).unwrap();
    let rate = Bitrate::from_kbps(1_500);
    let sender = Sender { name: "own".into(), host: 0, rate, discipline: Discipline::Edf };
    assert_eq!(config.senders, [sender]);
    let contract = Contract {
        period: ms(20),
        delay: Some(ms(500)),
        late: Late::Send,
        work_conserving: false,
        windows: Windows::Whole(Window { lose: 1, of: 9 }),
        weight: 3,
        priority: -2,
        class: selvedge_data_stream::Class::Edf,
        parent: 0,
    };
    let list = FrameList::parse("Ir 900\nPr 70 1\n").unwrap();
    let control = Control::NewReno;
    let kinds = [
        TrafficKind::Frames { list, contract, sender: 0 },
        TrafficKind::Bulk { control, flows: 4, bytes: Some(Bytes(10_000_000)) },
        TrafficKind::Requests { control, every: ms(200), size: Bytes(50_000) },
        TrafficKind::OnOff {
            rate: Bitrate::from_mbps(2),
            packet: Bytes(1_200),
            on: ms(1_000),
            off: ms(3_000),
        },
        TrafficKind::Measured { packet: Bytes(1_200), most: Some(Bitrate::from_mbps(6)) },
        TrafficKind::Hostile { every: ms(20) },
        TrafficKind::Replay { pcap: b"x.pcap".to_vec() },
        TrafficKind::Events { every: ms(10), size: Bytes(100), reliable: true, sinks: 3 },
        TrafficKind::Messages {
            every: ms(20),
            size: Bytes(1_000),
            stack: "ui | reliable | frag(1400) | net".parse().unwrap(),
            connections: 3,
        },
    ];
    let found: Vec<_> = config.traffic.iter().map(|traffic| traffic.kind.clone()).collect();
    assert_eq!(found, kinds);
    let backup = &config.traffic[1];
    assert_eq!((backup.from, backup.to, backup.start), (2, 0, ms(1_000)));
}

#[test]
fn a_change_is_written_as_in_a_file() {
    let no_files = &mut |_: &str| Err(FileError::Unreadable("there are none".into()));
    let mut change = |text: &str| LineChange::parse(text, no_files);
    let keys = [
        ("loss=3%", "loss = \"3 %\""),
        (" rate = 2 Mbit/s ", "rate = \"2 Mbit/s\""),
        ("rate=none", "rate = \"none\""),
        ("mtu=1400 B", "mtu = \"1400 B\""),
        ("jitter={ uniform = \"5 ms\" }", "jitter = { uniform = \"5 ms\" }"),
        ("reorders=true", "reorders = true"),
        ("delay=\"7 ms\"", "delay = \"7 ms\""),
        ("corrupts=40 ppm", "corrupts = \"40 ppm\""),
        ("duplicates=1%", "duplicates = \"1 %\""),
        (
            "outages={every=\"1 s\", lasts=\"9 ms\"}",
            "outages = { every = \"1 s\", lasts = \"9 ms\" }",
        ),
    ];
    for (text, line) in keys {
        let mut model = LineModel::default();
        change(text).unwrap().apply(&mut model);
        assert_eq!(model, parsed(&format!("{SMALLEST}{line}")).links[0].there, "{text}");
    }
    let mut wrong = |text: &str| change(text).unwrap_err().to_string();
    for (text, said) in [
        ("loss", "\"loss\" is not KEY=VALUE; write such as loss=3%"),
        ("=", ": unknown key; use one of rate, delay,"),
        ("los=3%", "los: unknown key; did you mean \"loss\"?"),
        ("between=far", "between: unknown key; use one of rate, delay,"),
        ("queue=codel", "a line that runs keeps its queue; start one with queue = in its file"),
        ("loss=3", "loss: the unit is missing; write \"3 %\""),
        ("loss=101%", "loss: \"101%\": out of range, or finer than one billionth"),
        ("rate=0 bit/s", "rate: \"0 bit/s\" is out of range"),
        ("outages={every=\"1 s\"}", "outages.lasts: is missing; write lasts = \"300 ms\""),
        ("loss={", "\"loss={\" is not KEY=VALUE"),
        ("loss=3%\nrate=4", "is not KEY=VALUE"),
        ("loss=3%'", "is not KEY=VALUE"),
        ("reorders=1", "reorders: a string stands where a boolean is needed"),
        ("rate={csv='x'}", "rate.csv: \"x\" can't be read: there are none"),
    ] {
        let found = wrong(text);
        assert!(found.contains(said), "{text}: {found}");
    }
}

#[test]
fn counts_and_sizes_are_bounded() {
    let long = format!("{SMALLEST}#{}", "x".repeat(LONGEST_FILE));
    assert!(wrong(&long).contains("at most 4194304 are read"));

    let many = |count, table: &dyn Fn(usize) -> String| (0..count).map(table).collect::<String>();
    let host = |n: usize| format!("[host.h{n}]\n");
    let hosts = |count| format!("{SMALLEST}{}", many(count, &host));
    assert_eq!(parsed(&hosts(HOSTS_MAX - 2)).hosts.len(), HOSTS_MAX);
    assert!(wrong(&hosts(HOSTS_MAX - 1)).contains("1001 hosts; a network takes at most 1000"));
    let link = |n: usize| format!("[link.l{n}]\nbetween = [\"near\", \"far\"]\n");
    let links = |count| format!("{SMALLEST}{}", many(count, &link));
    assert_eq!(parsed(&links(LINKS_MAX - 1)).links.len(), LINKS_MAX);
    assert!(wrong(&links(LINKS_MAX)).contains("4001 links; a network takes at most 4000"));
    let sender = |n: usize| format!("[sender.s{n}]\nhost = \"far\"\nrate = \"1 bit/s\"\n");
    let senders = |count| format!("{SMALLEST}{}", many(count, &sender));
    assert_eq!(parsed(&senders(SENDERS_MAX)).senders.len(), SENDERS_MAX);
    assert!(wrong(&senders(SENDERS_MAX + 1)).contains("1001 senders; a network takes at most"));
    let bulk = |n: usize, flows: u32| {
        format!("[traffic.t{n}]\nkind = \"bulk\"\nfrom = \"near\"\nto = \"far\"\nflows = {flows}\n")
    };
    let traffic = |count, flows| format!("{SMALLEST}{}", many(count, &|n| bulk(n, flows)));
    assert_eq!(parsed(&traffic(TRAFFIC_MAX, 10)).traffic.len(), TRAFFIC_MAX);
    let said = wrong(&traffic(TRAFFIC_MAX + 1, 1));
    assert!(said.contains("10001 traffic tables; a network takes at most 10000"), "{said}");
    // All flows together, and all queues: said once, where there are too many.
    let said = wrong(&traffic(102, 1_000));
    let first = "traffic.t100.flows: 101000 flows up to here; a network takes at most 100000";
    assert!(said.contains(first) && said.lines().count() == 1, "{said}");
    let fq = "queue = { kind = \"fq-codel\", queues = 65_536 }\n";
    let links = |count| format!("{SMALLEST}{fq}{}", many(count, &|n| link(n) + fq));
    assert_eq!(parsed(&links(31)).links.len(), 32);
    let said = wrong(&links(33));
    let first = "link.l31.queue: 4259840 queues of fq-codel up to here; a network takes at most";
    assert!(said.contains(first) && said.lines().count() == 1, "{said}");
}

#[test]
fn files_are_bounded_one_by_one_and_together() {
    let replay = |n: usize| {
        let ends = "from = \"near\"\nto = \"far\"";
        format!("[traffic.t{n}]\nkind = \"replay\"\n{ends}\npcap = \"x\"\n")
    };
    let text = |count| format!("{SMALLEST}{}", (0..count).map(replay).collect::<String>());
    let capture = vec![0; 16 << 20];
    let mut found = with(&capture);
    assert_eq!(parse(&text(4), "x", &mut found).unwrap().traffic.len(), 4);
    let errors = parse(&text(5), "x", &mut found).unwrap_err().to_string();
    let said = "traffic.t4.pcap: \"x\" is too long, by itself or with the files before it";
    assert!(errors.contains(said), "{errors}");
    let mut too_long = |_: &str| Err(FileError::TooLong(Bytes(1_000)));
    let errors = parse(&text(1), "x", &mut too_long).unwrap_err().to_string();
    assert!(errors.contains("1 kB are read; cut it"), "{errors}");
    // A trace of more lines than there may be.
    let lines = "1\n".repeat(selvedge_data_net_line::LINES_MAX + 1);
    let text = format!("{SMALLEST}rate = {{ mahimahi = \"x\" }}");
    let errors = parse(&text, "x", &mut with(lines.as_bytes())).unwrap_err().to_string();
    assert!(errors.contains("\"x\": it has more than 4000000 lines; cut it"), "{errors}");
}

#[test]
fn hosts_reach_each_other_over_any_number_of_links() {
    let chain = |links: usize, left_out: usize| {
        let hosts: String = (0..=links).map(|n| format!("[host.h{n}]\n")).collect();
        let links = (0..links).rev().filter(|n| *n != left_out);
        let link = |n| format!("[link.l{n}]\nbetween = [\"h{}\", \"h{n}\"]\n", n + 1);
        let links: String = links.map(link).collect();
        let traffic = "[traffic.t]\nkind = \"bulk\"\nfrom = \"h0\"\nto = \"h99\"\n";
        format!("[network]\nsource = \"made up\"\n{hosts}{links}{traffic}")
    };
    assert_eq!(parsed(&chain(99, 1_000)).links.len(), 99);
    let said = wrong(&chain(99, 50));
    assert!(
        said.contains("traffic.t.to: no links lead from host \"h0\" to host \"h99\""),
        "{said}"
    );
}

#[test]
fn each_shipped_network_is_read_without_files_and_has_near_and_far() {
    let mut no_files = |_: &str| Err(FileError::Unreadable("there are none".into()));
    for network in SHIPPED {
        let file = repository().join(format!("scenarios/net/{}.toml", network.name));
        assert_eq!(fs::read_to_string(file).unwrap(), network.text);
        let config = parse(network.text, network.name, &mut no_files)
            .unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.name, network.name);
        assert_eq!([0, 1].map(|host| &config.hosts[host].name[..]), ["near", "far"]);
        assert!(config.links.iter().any(|link| link.ends == [0, 1]), "{}", network.name);
        assert_eq!(shipped(network.name), Some(network));
    }
    assert_eq!(files("scenarios/net", "toml").len(), SHIPPED.len());
    assert_eq!(shipped("lte"), None);
}

#[test]
fn the_manual_shows_only_files_that_are_read_and_names_every_key_and_network() {
    let manual = fs::read_to_string(repository().join("docs/network-file.md")).unwrap();
    let examples: Vec<_> =
        manual.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 3);
    for example in examples {
        parsed(example);
    }
    let keys_of = |heading: &str, keys: &[&str]| {
        let (_, rest) = manual.split_once(&format!("\n{heading}\n")).expect(heading);
        let section = rest.split("\n#").next().unwrap_or_default();
        for key in keys {
            assert!(section.contains(&format!("\n| `{key}` |")), "{heading} lacks {key}");
        }
    };
    keys_of("## `[network]`", HEADER);
    keys_of("## `[host.NAME]`", HOST);
    keys_of("## `[link.NAME]`", line::OF_LINK);
    keys_of("### Bursts", line::BURSTS);
    keys_of("### Outages", line::OUTAGES);
    let (dual, own) = (queue::DUAL_PI2, queue::DISCIPLINE);
    for keys in [queue::DROP_TAIL, queue::CODEL, queue::FQ_CODEL, dual, own] {
        keys_of("### Queues", keys);
    }
    keys_of("## `[sender.NAME]`", SENDER);
    for (kind, keys) in traffic::KINDS {
        keys_of("## `[traffic.NAME]`", keys);
        assert!(manual.contains(&format!("\n- `{kind}`: ")), "{kind}");
    }
    for kind in queue::KINDS {
        assert!(manual.contains(&format!("`{kind}`, ")), "{kind}");
    }
    // A network's row has its own words about it.
    for network in SHIPPED {
        let row = format!("| `{}` | {} |\n", network.name, parsed(network.text).about);
        assert!(manual.contains(&row), "{row}");
    }
}

/// For any text: an answer of bounded length, in lines, that cannot steer a terminal.
fn answers_soundly(text: &str, file: &[u8]) -> Result<(), TestCaseError> {
    let errors = match parse(text, "noise.toml", &mut with(file)) {
        Ok(config) => {
            prop_assert!(config.hosts.len() >= 2 && !config.links.is_empty());
            let is_host = |host: &usize| *host < config.hosts.len();
            prop_assert!(config.links.iter().all(|link| link.ends.iter().all(is_host)));
            prop_assert!(config.links.iter().all(|link| link.ends[0] != link.ends[1]));
            prop_assert!(config.senders.iter().all(|sender| is_host(&sender.host)));
            prop_assert!(config.traffic.iter().all(|it| is_host(&it.from) && is_host(&it.to)));
            return Ok(());
        }
        Err(errors) => errors,
    };
    are_sound(&errors)
}

/// Pieces of network files, valid and invalid.
const PIECES: &[&str] = &[
    "[network]\n",
    "[host.near]\n",
    "[host.\"a b\"]\n",
    "[link.a]\n",
    "[link.a.back]\n",
    "[traffic.a]\n",
    "[sender.a]\n",
    "[[host]]\n",
    "source = \"made up\"\n",
    "between = [\"near\", \"far\"]\n",
    "between = [\"near\", \"near\", 1]\n",
    "recording = \"x\"\n",
    "rate = { csv = \"x\" }\n",
    "rate = { mahimahi = \"x\", csv = \"\\u0007\" }\n",
    "rate = \"6 Mbit/s\"\n",
    "rate = { ",
    "queue = { kind = \"fq-codel\", ",
    "queue = \"codel\"\n",
    "loss = { worsens = ",
    "outages = { every = \"1 s\", lasts = ",
    "jitter = { recorded = [",
    "kind = \"frames\"\n",
    "kind = \"bulk\"\n",
    "from = \"near\"\n",
    "to = \"far\"\n",
    "link = \"a\"\n",
    " = ",
    ", ",
    " }\n",
    "]",
    "\"",
    "\n",
    "#",
    "\\",
    "\u{7f}",
    "\u{feff}",
    "-1",
    "1e400",
    "true",
    "\"5 ms\"",
    "\"3 %\"",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_gets_an_answer(text in "(?s).{0,400}", file in any::<Vec<u8>>()) {
        answers_soundly(&text, &file)?;
        let change = LineChange::parse(&text, &mut with(&file));
        prop_assert!(change.is_ok() || change.unwrap_err().to_string().chars().count() < 600);
    }

    #[test]
    fn any_pieces_get_an_answer(
        pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40),
        file in "(ms,kbit/s\n)?([0-9]{1,20},?[0-9]{0,20}\n){0,20}",
    ) {
        let pieces = pieces.concat();
        answers_soundly(&pieces, file.as_bytes())?;
        answers_soundly(&format!("{SMALLEST}{pieces}"), file.as_bytes())?;
        let change = LineChange::parse(&pieces, &mut with(file.as_bytes()));
        prop_assert!(change.is_ok() || change.unwrap_err().to_string().chars().count() < 600);
    }

    #[test]
    fn a_damaged_file_gets_an_answer(
        damage in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..30, prop::sample::select(PIECES)),
            1..6,
        ),
        file in "(ms,kbit/s\n)?([0-9]{1,20},?[0-9]{0,20}\n){0,20}",
    ) {
        let mut text = EVERY_KEY.to_owned();
        for (at, removed, piece) in damage {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.floor_char_boundary(start + removed);
            text.replace_range(start..end.max(start), piece);
        }
        answers_soundly(&text, file.as_bytes())?;
    }
}
