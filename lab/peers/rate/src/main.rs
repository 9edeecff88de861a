//! A sender of video whose encoder follows `rtpgccbwe`: noise is encoded by x264, sent by RTP over UDP with numbers for
//! transport-wide feedback (TWCC), and the far end's feedback sets the encoder's rate, as GStreamer's `webrtcsink` does it.
//! Standard output gets the estimate in bits/s, a line each quarter of a second.
//!
//! The estimator is gst-plugin-rtp's, from draft-ietf-rmcat-gcc-02; feedback is that of
//! draft-holmer-rmcat-transport-wide-cc-extensions-01. `run.sh` runs it beside a bond.

use gst::prelude::*;

/// Why nothing is sent.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(
        "usage: selvedge-lab-peers-rate HOST SECONDS BITS_PER_SECOND, the last being the first estimate; there is {0:?}"
    )]
    Usage(Vec<String>),
    #[error("GStreamer: {0}")]
    Gstreamer(#[from] gst::glib::Error),
    #[error("GStreamer: {0}")]
    Bool(#[from] gst::glib::BoolError),
    #[error("the pipeline does not start: {0}")]
    State(#[from] gst::StateChangeError),
    #[error("{0} has no such element or bus")]
    Missing(&'static str),
    #[error("the pipeline ended: {0}")]
    Ended(String),
}

/// The identifier of TWCC's header extension, which `run.sh` names to the receiver too.
const TWCC: &str =
    "extmap-1=(string)http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";

fn main() -> Result<(), Fault> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [host, seconds, first] = words.as_slice() else {
        return Err(Fault::Usage(words));
    };
    let (Ok(seconds), Ok(first)) = (seconds.parse::<u32>(), first.parse::<u32>()) else {
        return Err(Fault::Usage(words.clone()));
    };
    gst::init()?;
    gstrsrtp::plugin_register_static()?;
    send(host, seconds, first)
}

/// Sends for so long, and prints the estimate meanwhile.
fn send(host: &str, seconds: u32, first: u32) -> Result<(), Fault> {
    let line = format!(
        "{source} bitrate={kbit} ! rtph264pay pt=96 aggregate-mode=zero-latency ! application/x-rtp,{TWCC} ! \
         rtpgccbwe name=estimator estimated-bitrate={first} ! bin.send_rtp_sink_0 \
         rtpbin name=bin rtp-profile=avpf \
         bin.send_rtp_src_0 ! udpsink host={host} port=5004 sync=false async=false \
         bin.send_rtcp_src_0 ! udpsink host={host} port=5005 sync=false async=false \
         udpsrc port=5005 ! bin.recv_rtcp_sink_0",
        source = std::env::var("SOURCE").map_err(|_| Fault::Missing("SOURCE"))?,
        kbit = kilobits(first),
    );
    let pipeline = gst::parse::launch(&line)?
        .downcast::<gst::Pipeline>()
        .map_err(|_| Fault::Missing("the line"))?;
    let estimator = pipeline.by_name("estimator").ok_or(Fault::Missing("the line"))?;
    let encoder = pipeline.by_name("encoder").ok_or(Fault::Missing("SOURCE"))?;
    estimator.connect_notify(Some("estimated-bitrate"), move |estimator, _| {
        encoder.set_property("bitrate", kilobits(estimator.property("estimated-bitrate")));
    });
    let bus = pipeline.bus().ok_or(Fault::Missing("the pipeline"))?;
    pipeline.set_state(gst::State::Playing)?;
    let mut ended = Ok(());
    for _ in 0..seconds * 4 {
        let message =
            bus.timed_pop_filtered(gst::ClockTime::from_mseconds(250), &[gst::MessageType::Error]);
        if let Some(message) = message {
            ended = Err(Fault::Ended(format!("{message:?}")));
            break;
        }
        println!("{}", estimator.property::<u32>("estimated-bitrate"));
    }
    pipeline.set_state(gst::State::Null)?;
    ended
}

/// x264enc's unit; it takes no zero.
fn kilobits(bits: u32) -> u32 {
    (bits / 1000).max(1)
}
