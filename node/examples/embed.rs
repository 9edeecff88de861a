//! A node inside a program: started from the text of a node file, given one more stream, whose frames
//! the program makes itself, then read and stopped. Packets go to two ports of the loopback.

use std::error::Error;

use selvedge_control_config::{SourceUri, StreamConfig};
use selvedge_data_stream::Kind;
use selvedge_node::{Node, NodeOptions, wait_until};
use selvedge_place_engine::frame_producer::FrameMetadata;
use selvedge_units::Duration;

const FILE: &str = r#"
[link.uplink]
rate = "6 Mbit/s"

[stream.pattern]
source = "test:video?rate=25"
to = "rtp://127.0.0.1:5004"
"#;

/// A frame in one RTP packet: header, and eight bytes of payload.
const PACKET: &[u8] = &[0x80, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let node = Node::start(FILE, NodeOptions::default())?;
    let to = "127.0.0.1:5006".parse()?;
    node.add_stream(StreamConfig::new("own", SourceUri::Program, to))?;
    let mut own = node.frame_producer("own").ok_or("a stream of the program has a producer")?;
    own.enqueue(FrameMetadata::alone(Kind::Data), &[PACKET]).map_err(|reason| reason.name())?;
    let sent = |stream: &str| node.counts(stream).is_some_and(|counts| counts.totals.sent > 0);
    if !wait_until(Duration::from_secs(30), || sent("pattern") && sent("own")) {
        return Err("a stream sent nothing within 30 s".into());
    }
    for stream in node.stop().snapshot.streams {
        println!("{}: {} of {} frames on time", stream.name, stream.on_time, stream.frames);
    }
    Ok(())
}
