//! The fuzz targets, in one program: what they have in common is built and linked once. libFuzzer's bytes go
//! to the target that FUZZ_TARGET names; tools/fuzz.sh reads the names from the table here.

#![no_main]

mod admit;
mod bond;
mod choices;
mod code;
mod event;
mod exchange;
mod handler;
mod hello;
mod link;
mod mail;
mod network;
mod node_file;
mod packets;
mod picture;
mod pool;
mod receive;
mod record;
mod report;
#[path = "../../media/src/output/rtsp/request.rs"]
mod request;
mod rtcp;
mod rtp;
mod rtsp;
#[path = "../../data/sched/tests/oracle/rules.rs"]
mod rules;
mod say;
mod schedule;
mod sdp;
mod secure;
mod segment;
mod stack;
mod survey;
mod trace;
mod tunnel;
mod units;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use secure::Kind;

type Target = fn(&[u8]);

/// The names of the targets, each with a folder of its own in seeds/.
const TARGETS: &[(&str, Target)] = &[
    ("admit", admit::fuzz),
    ("bond", bond::fuzz),
    ("code", |bytes| code::fuzz(text(bytes))),
    ("echo", |bytes| secure::run(bytes, Kind::Echo)),
    ("event", event::fuzz),
    ("exchange", exchange::fuzz),
    ("handler", handler::fuzz),
    ("hello", hello::fuzz),
    ("link", link::fuzz),
    ("mail", mail::fuzz),
    ("network", network::fuzz),
    ("node_file", |bytes| node_file::fuzz(text(bytes))),
    ("packets", packets::fuzz),
    ("picture", picture::fuzz),
    ("pool", pool::fuzz),
    ("probe", |bytes| secure::run(bytes, Kind::Probe)),
    ("receive", receive::fuzz),
    ("record", record::fuzz),
    ("report", report::fuzz),
    ("rtcp", rtcp::fuzz),
    ("rtp", rtp::fuzz),
    ("rtsp", rtsp::fuzz),
    ("say", say::fuzz),
    ("schedule", schedule::fuzz),
    ("sdp", |bytes| sdp::fuzz(text(bytes))),
    ("sealed", |bytes| secure::run(bytes, Kind::Packet)),
    ("segment", segment::fuzz),
    ("stack", stack::fuzz),
    ("survey", survey::fuzz),
    ("trace", |bytes| trace::fuzz(text(bytes))),
    ("tunnel", tunnel::fuzz),
    ("units", units::fuzz),
    ("unknown", |bytes| secure::run(bytes, Kind::Unknown)),
    ("welcome", |bytes| secure::run(bytes, Kind::Welcome)),
];

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found.unwrap_or_else(|| panic!("FUZZ_TARGET is \"{name}\", no target of fuzz/src/main.rs")).1
});

/// The bytes up to the first that is not UTF-8.
fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
