//! The properties as GObject describes them to tools and programs.

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use selvedge_units::Duration;

use crate::settings::{CATCH_UP_MAX, PadSettings, SinkSettings, disciplines};

/// The properties of `selvedgesrc`.
pub(crate) fn of_source() -> Vec<glib::ParamSpec> {
    vec![
        glib::ParamSpecString::builder("sdp")
            .nick("SDP file")
            .blurb("The file that describes the stream, with its address and format")
            .mutable_ready()
            .build(),
        glib::ParamSpecUInt::builder("stream")
            .nick("Stream")
            .blurb("Which stream of the SDP file, from 0")
            .mutable_ready()
            .build(),
        glib::ParamSpecString::builder("address")
            .nick("Address")
            .blurb("HOST:PORT with a numeric host to receive at, where there is no SDP file")
            .mutable_ready()
            .build(),
        glib::ParamSpecBoxed::builder::<gst::Caps>("caps")
            .nick("Caps")
            .blurb("What comes at the address, such as application/x-rtp,media=video,encoding-name=H264,clock-rate=90000")
            .mutable_ready()
            .build(),
        glib::ParamSpecBoolean::builder("undecodable")
            .nick("Undecodable frames")
            .blurb("Deliver frames that can't be decoded on time, too, as corrupted buffers")
            .mutable_ready()
            .build(),
        glib::ParamSpecUInt::builder("latency")
            .nick("Latency")
            .blurb("How much later than the first frame others may come, in ms")
            .default_value(200)
            .mutable_ready()
            .build(),
        glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
            .nick("Statistics")
            .blurb("What was received since the start, as `selvedge play` counts it")
            .read_only()
            .build(),
    ]
}

/// The properties of the element.
pub(crate) fn of_sink() -> Vec<glib::ParamSpec> {
    let default = SinkSettings::default();
    vec![
        glib::ParamSpecUInt64::builder("rate")
            .nick("Rate")
            .blurb("What the link carries in bit/s, IP and UDP headers included (required without bond)")
            .default_value(default.rate)
            .mutable_playing()
            .build(),
        glib::ParamSpecString::builder("bond")
            .nick("Bond")
            .blurb("HOST:PORT with a numeric host where the far end of a bond listens, which takes all pads (selvedgesink only)")
            .mutable_ready()
            .build(),
        glib::ParamSpecString::builder("secret")
            .nick("Secret")
            .blurb("The file with the secret that both ends of the bond share: 64 hexadecimal digits")
            .mutable_ready()
            .build(),
        glib::ParamSpecString::builder("devices")
            .nick("Devices")
            .blurb("The network devices of the bond's paths, separated by commas (none: one path, as routes say)")
            .mutable_ready()
            .build(),
        glib::ParamSpecString::builder("discipline")
            .nick("Discipline")
            .blurb(&format!("The order in which pads are served: one of {}", disciplines()))
            .default_value(Some(default.discipline.as_str()))
            .mutable_ready()
            .build(),
        glib::ParamSpecBoolean::builder("selection")
            .nick("Frame selection")
            .blurb("Drop early what can't be decoded or can't be on time (never with fifo)")
            .default_value(default.selection)
            .mutable_ready()
            .build(),
        glib::ParamSpecUInt64::builder("burst")
            .nick("Burst")
            .blurb("Bytes that may be sent at once (0: one packet of 1500)")
            .default_value(default.burst)
            .mutable_ready()
            .build(),
        glib::ParamSpecInt64::builder("catch-up")
            .nick("Catch up")
            .blurb("Bytes that may be sent after late wake-ups beyond rate and burst (-1: the larger of two packets and 20 ms of the rate, at most a tenth of the shortest delay)")
            .minimum(-1)
            .maximum(CATCH_UP_MAX)
            .default_value(default.catch_up)
            .mutable_ready()
            .build(),
        glib::ParamSpecBoolean::builder("sync")
            .nick("Sync")
            .blurb("Take frames when they are due on the pipeline's clock")
            .default_value(default.sync)
            .mutable_ready()
            .build(),
        glib::ParamSpecBoolean::builder("async")
            .nick("Async")
            .blurb("Go to PAUSED and PLAYING only when every pad has its first frame (selvedgesink only)")
            .default_value(default.preroll)
            .mutable_ready()
            .build(),
        glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
            .nick("Statistics")
            .blurb("What became of the frames since the start, by pad")
            .read_only()
            .build(),
    ]
}

/// The properties of a pad.
pub(crate) fn of_pad() -> Vec<glib::ParamSpec> {
    let default = PadSettings::default();
    vec![
                    glib::ParamSpecString::builder("to")
                        .nick("Receiver")
                        .blurb("Where packets go: HOST:PORT or rtp://HOST:PORT with a numeric host (selvedgesink only: required)")
                        .mutable_ready()
                        .build(),
                    glib::ParamSpecUInt64::builder("period")
                        .nick("Period")
                        .blurb("Time between frames in ns (0: from the medium)")
                        .default_value(default.period)
                        .mutable_ready()
                        .build(),
                    glib::ParamSpecString::builder("window")
                        .nick("Window-constraint")
                        .blurb("\"x/y\": at most x of any y frames may be late or lost")
                        .default_value(Some(default.window.as_str()))
                        .mutable_playing()
                        .build(),
                    glib::ParamSpecEnum::builder_with_default("late", default.late)
                        .nick("Late frames")
                        .blurb("What becomes of frames that missed their deadlines")
                        .mutable_ready()
                        .build(),
                    glib::ParamSpecInt::builder("priority")
                        .nick("Priority")
                        .blurb("Higher goes first under the discipline \"priority\", and is given up last by selection")
                        .minimum(-1000)
                        .maximum(1000)
                        .default_value(default.priority)
                        .mutable_playing()
                        .build(),
                    glib::ParamSpecUInt::builder("weight")
                        .nick("Weight")
                        .blurb("What a frame is worth against those of other pads")
                        .minimum(1)
                        .maximum(1000)
                        .default_value(default.weight)
                        .mutable_ready()
                        .build(),
                    glib::ParamSpecUInt64::builder("delay")
                        .nick("Delay")
                        .blurb("Time from a frame's arrival to its deadline in ns (the playout delay)")
                        .minimum(Duration::from_millis(1).0)
                        .maximum(Duration::from_secs(600).0)
                        .default_value(default.delay)
                        .mutable_ready()
                        .build(),
                    glib::ParamSpecUInt::builder("max-bitrate")
                        .nick("Maximum bitrate")
                        .blurb("The most that the pad's encoder may encode at over a bond in bit/s (0: it does not follow)")
                        .default_value(default.max_bitrate)
                        .mutable_ready()
                        .build(),
                    glib::ParamSpecUInt::builder("estimated-bitrate")
                        .nick("Estimated bitrate")
                        .blurb("What the pad's encoder should encode at in bit/s, from a tenth of max-bitrate to max-bitrate (0: not known)")
                        .read_only()
                        .build(),
                    glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                        .nick("Statistics")
                        .blurb("What became of the frames of this pad since the start")
                        .read_only()
                        .build(),
                ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use selvedge_data_sched::Discipline;

    #[test]
    fn every_discipline_is_named() {
        gst::init().unwrap();
        let all = of_sink();
        let blurb =
            all.iter().find(|spec| spec.name() == "discipline").and_then(|spec| spec.blurb());
        let manual = include_str!("../../../docs/gstreamer.md");
        let row = manual.lines().find(|line| line.starts_with("| `discipline`")).unwrap();
        for name in Discipline::ALL.map(Discipline::name) {
            assert!(blurb.unwrap().contains(name) && row.contains(&format!("`{name}`")), "{name}");
        }
    }
}
