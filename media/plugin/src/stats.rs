//! The fates of the frames, as structures that any GStreamer program can read.

use gstreamer as gst;
use selvedge_data_stream::DropReason;
use selvedge_place_engine::report::{LinkReport, StreamReport};

/// The link, and a structure for each pad under the pad's name; with pads, counts of QoS events are
/// included.
pub(crate) fn of_link(report: &LinkReport, pads: &[(String, Option<u64>)]) -> gst::Structure {
    let mut builder = gst::Structure::builder("application/x-selvedge-stats")
        .field("rate", report.rate.0)
        .field("sent-rate", report.sent.0)
        .field("offered-rate", report.offered.0)
        .field("sent-bytes", report.sent_bytes.0)
        .field("backlog-bytes", report.backlog.0);
    for ((name, qos), stream) in pads.iter().zip(&report.streams) {
        builder = builder.field(name.as_str(), of_stream(stream, *qos));
    }
    builder.build()
}

/// One pad. `frames` = `sent` + all `dropped-…` + `queued`.
pub(crate) fn of_stream(report: &StreamReport, qos: Option<u64>) -> gst::Structure {
    let totals = &report.counts.totals;
    let mut builder = gst::Structure::builder("application/x-selvedge-pad-stats")
        .field("period", report.contract.period.0)
        .field("frames", totals.frames)
        .field("sent", totals.sent)
        .field("on-time", totals.on_time)
        .field("decodable", totals.decodable)
        .field("violations", report.counts.counters.violations)
        .field("queued", report.queued as u64)
        .field("sent-bytes", report.counts.sent_bytes.0)
        .field("send-errors", report.counts.send_errors)
        .field("dropped", totals.dropped.iter().sum::<u64>())
        .field_if_some("qos", qos);
    for reason in DropReason::ALL {
        let count = totals.dropped[reason as usize];
        builder = builder.field(format!("dropped-{}", reason.name()), count);
    }
    builder.build()
}
