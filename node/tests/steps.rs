//! Steps in E-code on the links of a whole node: they decide before frames are written, keep their state, react to what
//! receivers report, and change by reloads.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Instant;

use selvedge_control_config::view::{NodeView, StepSnapshot};
use selvedge_control_config::{
    LinkConfig, NodeConfig, PageConfig, Placement, SourceUri, Stage, StepConfig, StreamConfig,
};
use selvedge_data_net_rtcp::ArrivalReporter;
use selvedge_data_sched::Discipline;
use selvedge_data_stream::rtp::Packet;
use selvedge_data_stream::{DropReason, Kind, References};
use selvedge_node::{Node, NodeOptions, StartError, wait_until, wrong_steps};
use selvedge_os::clock::Clock;
use selvedge_place_coprocessor::realtime::{RealtimeRequest, SchedClass};
use selvedge_place_coprocessor::server::{LocalCoprocessor, Options};
use selvedge_place_engine::frame_producer::{FrameMetadata, FrameProducer};
use selvedge_units::{Bitrate, Bytes, Duration};

/// Longer than anything takes on a slow machine.
const SOON: Duration = Duration::from_secs(60);
const THIN: &str = "shared { long seen; };
    { if (input.kind == KIND_B) output.discard = shared.seen++ % param.keep != 0; }";

fn step(code: &str, at: Stage, parameters: &[(&str, i64)]) -> StepConfig {
    let parameters = parameters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let name = code.trim_end_matches(".ec").to_owned();
    StepConfig { name, code: code.to_owned(), at, fuel: 1000, parameters }
}

fn config(steps: Vec<StepConfig>, to: SocketAddr) -> NodeConfig {
    let link = LinkConfig::new("up", Bitrate::from_mbps(50), Discipline::Dwcs);
    NodeConfig {
        name: "test".into(),
        page: PageConfig { listen: ([127, 0, 0, 1], 0).into(), ..PageConfig::default() },
        links: vec![LinkConfig { steps, ..link }],
        bonds: Vec::new(),
        tunnels: Vec::new(),
        streams: vec![StreamConfig::new("a", SourceUri::Program, to)],
    }
}

fn running(config: &NodeConfig, base: &Path) -> (Node, FrameProducer) {
    let options = NodeOptions { base: base.to_owned(), ..NodeOptions::default() };
    let node = Node::prepare(config, options).unwrap();
    node.start_sources().unwrap();
    let producer = node.frame_producer("a").unwrap();
    (node, producer)
}

fn receiver() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(20).to_std())).unwrap();
    let to = socket.local_addr().unwrap();
    (socket, to)
}

/// Whether a frame of this kind passes the steps.
fn passes(producer: &mut FrameProducer, kind: Kind) -> bool {
    let mut packet = [7; 200];
    packet[..2].copy_from_slice(&[0x80, 0xe0]);
    let refers_to_none =
        FrameMetadata { refs: Some(References::NONE), ..FrameMetadata::alone(kind) };
    match producer.enqueue(refers_to_none, &[&packet]) {
        Ok(_) => true,
        Err(why) => {
            assert_eq!(why, DropReason::Full);
            false
        }
    }
}

fn of_kind(producer: &mut FrameProducer, kind: Kind, frames: usize) -> Vec<bool> {
    (0..frames).map(|_| passes(producer, kind)).collect()
}

fn seen(node: &Node) -> Vec<StepSnapshot> {
    node.snapshot().links[0].steps.clone()
}

/// A folder with these texts.
fn texts(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    folder
}

#[test]
fn a_step_thins_pictures_by_a_parameter_before_they_are_written() {
    let folder = texts(&[("thin.ec", THIN)]);
    let (socket, to) = receiver();
    let config = config(vec![step("thin.ec", Stage::Arrival, &[("keep", 3)])], to);
    let (node, mut producer) = running(&config, folder.path());
    assert_eq!(of_kind(&mut producer, Kind::Intra, 2), [true; 2]);
    let every_third = [true, false, false, true, false, false];
    assert_eq!(of_kind(&mut producer, Kind::Bidirectional, 6), every_third);
    let mut bytes = [0; 2000];
    let mut kinds = Vec::new();
    assert!(wait_until(SOON, || {
        if let Ok(len) = socket.recv(&mut bytes) {
            kinds.push(Packet::parse(&bytes[..len]).unwrap().tag.unwrap().kind);
        }
        kinds.len() == 4
    }));
    assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Bidirectional).count(), 2);
    let step = &seen(&node)[0];
    assert_eq!((&*step.name, &*step.at), ("thin", "arrival"));
    assert_eq!((step.calls, step.discarded, step.faults), (8, 4, 0));
    assert!(step.mean_ns > 0 && step.longest_ns >= step.mean_ns, "{step:?}");
    // The link misses the two numbers that others follow.
    let full = DropReason::Full as usize;
    let is_counted = || {
        let totals = node.counts("a").unwrap().totals;
        (totals.sent, totals.dropped[full]) == (4, 2)
    };
    assert!(wait_until(SOON, is_counted), "{:?}", node.counts("a"));
}

#[test]
fn steps_at_other_points_run_on_the_link() {
    let counts = "shared { long n; };
        { shared.n++; if (input.kind == KIND_I) output.raise = param.by; }";
    let folder = texts(&[("sent.ec", counts), ("wild.ec", "{ long i; while (1) i++; }")]);
    let (_socket, to) = receiver();
    let steps =
        vec![step("sent.ec", Stage::Dispatch, &[("by", 2)]), step("wild.ec", Stage::Choice, &[])];
    let (node, mut producer) = running(&config(steps, to), folder.path());
    assert_eq!(of_kind(&mut producer, Kind::Intra, 3), [true; 3]);
    assert!(wait_until(SOON, || seen(&node).first().is_some_and(|step| step.calls == 3)));
    let wild = &seen(&node)[1];
    assert!(wild.calls >= 3 && wild.faults == wild.calls, "its fuel ends each call: {wild:?}");
    assert!(wait_until(SOON, || node.snapshot().streams[0].priority == 6));
    assert!(wait_until(SOON, || node.counts("a").unwrap().totals.sent == 3));
}

#[test]
fn an_arriving_frame_raises_its_streams_priority() {
    let folder = texts(&[("raise.ec", "{ output.raise = input.priority < 5; }")]);
    let (_socket, to) = receiver();
    let (node, mut producer) =
        running(&config(vec![step("raise.ec", Stage::Arrival, &[])], to), folder.path());
    assert_eq!(of_kind(&mut producer, Kind::Data, 3), [true; 3]);
    assert!(wait_until(SOON, || node.snapshot().streams[0].priority == 3));
}

#[test]
fn a_reload_keeps_what_a_step_kept_and_refuses_what_is_wrong() {
    let folder = texts(&[("thin.ec", THIN)]);
    let (_socket, to) = receiver();
    let mut config = config(vec![step("thin.ec", Stage::Arrival, &[("keep", 3)])], to);
    let (node, mut producer) = running(&config, folder.path());
    let mut pictures = |n| of_kind(&mut producer, Kind::Bidirectional, n);
    assert_eq!(pictures(4), [true, false, false, true]);
    // Another parameter; the fifth comes next.
    config.links[0].steps[0].parameters.insert("keep".to_owned(), 5);
    let applied = node.reload_config(&config).unwrap();
    assert_eq!((applied.changed, applied.restarted.len()), (vec!["link.up.step".to_owned()], 0));
    assert_eq!(pictures(3), [false, true, false]);
    // Another text in the same file.
    let path = folder.path().join("thin.ec");
    std::fs::write(&path, THIN.replace("!= 0", "== 2")).unwrap();
    assert_eq!(node.reload_config(&config).unwrap().changed, ["link.up.step"]);
    assert_eq!(pictures(2), [false, true], "the eighth and ninth");
    assert!(node.reload_config(&config).unwrap().changed.is_empty());
    // A wrong text changes nothing.
    std::fs::write(&path, "{\n  output.discard = input.colour;\n}").unwrap();
    let why = node.reload_config(&config).unwrap_err().to_string();
    assert!(why.contains("link.up.step.1.") && why.contains("param"), "{why}");
    config.links[0].steps[0].parameters.clear();
    let why = node.reload_config(&config).unwrap_err().to_string();
    assert!(why.contains("link.up.step.1.code: thin.ec:2:") && why.contains("colour"), "{why}");
    assert_eq!(pictures(5), [true, true, true, false, true], "the tenth to the fourteenth");
    // A step that is left out is gone.
    config.links[0].steps.clear();
    node.reload_config(&config).unwrap();
    assert_eq!((pictures(5), seen(&node).len()), (vec![true; 5], 0));
}

#[test]
fn a_step_reacts_to_the_loss_that_a_receiver_reports() {
    let folder = texts(&[("thin.ec", "{ output.discard = input.loss_ppm > param.most; }")]);
    let (socket, to) = receiver();
    let step = step("thin.ec", Stage::Arrival, &[("most", 100_000)]);
    let mut config = config(vec![step], to);
    config.links[0].is_auto = true;
    config.streams[0].is_reported = true;
    let (node, mut producer) = running(&config, folder.path());
    let (clock, mut reporter) = (Clock::new(), None);
    let (mut bytes, mut passed, mut came) = ([0; 2000], 0, 0);
    let begun = Instant::now();
    // Every third packet is lost; the step then stops all.
    while passes(&mut producer, Kind::Data) {
        passed += 1;
        assert!(begun.elapsed() < SOON.to_std(), "{:?}", node.snapshot().links[0].paths);
        let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
        let header = Packet::parse(&bytes[..len]).unwrap().header;
        let reporter = reporter.get_or_insert_with(|| {
            ArrivalReporter::new(header.ssrc, header.sequence, 1, "receiver")
        });
        came += 1;
        if header.ssrc == reporter.ssrc() && came % 3 != 0 {
            reporter.handle_packet(clock.now(), header.sequence, false);
        }
        if let Some(report) = reporter.poll_transmit(clock.now()) {
            socket.send_to(&report, from).unwrap();
        }
    }
    assert!(passed > 2, "{passed}");
    assert_eq!(seen(&node)[0].discarded, 1);
    assert!(wait_until(SOON, || node.snapshot().links[0].paths[0].loss > 0.1));
}

#[test]
fn a_link_in_a_coprocessor_has_steps_on_both_sides() {
    let sent = "shared { long n; }; { if (++shared.n == param.at) output.raise = 7; }";
    let folder = texts(&[("thin.ec", THIN), ("sent.ec", sent)]);
    let (_socket, to) = receiver();
    let steps = vec![
        step("thin.ec", Stage::Arrival, &[("keep", 3)]),
        step("sent.ec", Stage::Dispatch, &[("at", 2)]),
    ];
    let mut config = config(steps, to);
    let path = folder.path().join("link.sock");
    config.links[0].placement = Placement::Coprocessor;
    config.links[0].socket = Some(path.to_str().unwrap().to_owned());
    let realtime_request = RealtimeRequest { core: None, lock: false, class: SchedClass::Fair };
    let (link, socket) = (config.links[0].clone(), path);
    let (watch, memory) = (Duration::from_micros(20), Bytes(50_000_000));
    let options = Options { link, socket, realtime_request, watch, memory, alone: None };
    let _coprocessor = LocalCoprocessor::start(options).unwrap();
    let (node, mut producer) = running(&config, folder.path());
    let every_third = [true, false, false, true, false, false];
    assert_eq!(of_kind(&mut producer, Kind::Bidirectional, 6), every_third);
    let all = || seen(&node).into_iter().map(|step| (step.name, step.calls, step.discarded));
    let expected = [("sent", 2, 0), ("thin", 6, 4)];
    let is_so = || {
        let all: Vec<_> = all().collect();
        expected
            .iter()
            .all(|(name, calls, discarded)| all.contains(&((*name).to_owned(), *calls, *discarded)))
    };
    assert!(wait_until(SOON, is_so), "{:?}", seen(&node));
    assert!(wait_until(SOON, || node.snapshot().streams[0].priority == 7));
    config.links[0].steps.clear();
    assert_eq!(node.reload_config(&config).unwrap().changed, ["link.up.step"]);
    assert_eq!(of_kind(&mut producer, Kind::Bidirectional, 3), [true; 3]);
    assert!(wait_until(SOON, || seen(&node).is_empty()), "{:?}", seen(&node));
}

#[cfg(feature = "gstreamer")]
#[test]
fn the_scenario_leaves_pictures_out_while_the_link_is_behind() {
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let text = std::fs::read_to_string(base.join("thin.toml")).unwrap();
    let (_socket, to) = receiver();
    let text = text.replace("127.0.0.1:5004", &to.to_string());
    let node = Node::start(&text, NodeOptions { base, ..NodeOptions::default() }).unwrap();
    let has_begun = || seen(&node).first().is_some_and(|step| step.discarded >= 2);
    assert!(wait_until(SOON, has_begun), "{:?}", seen(&node));
    let step = &seen(&node)[0];
    assert!(step.calls > step.discarded && step.faults == 0, "{step:?}");
}

#[test]
fn steps_that_can_not_be_loaded_are_named_at_the_start() {
    let folder = texts(&[("thin.ec", THIN)]);
    let (_socket, to) = receiver();
    let steps = vec![
        step("thin.ec", Stage::Arrival, &[("keep", 3), ("kepe", 3)]),
        step("none.ec", Stage::Arrival, &[]),
    ];
    let config = config(steps, to);
    let wrong = wrong_steps(&config, folder.path());
    let wrong: Vec<_> = wrong.iter().map(|step| (&*step.key, &*step.why)).collect();
    assert_eq!(
        wrong,
        [
            (
                "link.up.step.1.parameters",
                "thin.ec has no parameter \"kepe\"; did you mean \"keep\"?"
            ),
            ("link.up.step.2.code", "\"none.ec\": No such file or directory (os error 2)"),
        ]
    );
    let options = NodeOptions { base: folder.path().to_owned(), ..NodeOptions::default() };
    let started = Node::prepare(&config, options);
    assert!(matches!(started, Err(StartError::Steps(failed)) if failed.len() == 2));
}
