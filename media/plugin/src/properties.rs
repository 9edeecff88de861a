//! The properties as GObject describes them to tools and programs.

use gstreamer as gst;
use gstreamer::glib::ParamSpec;
use gstreamer::glib::{
    ParamSpecBoolean as Flag, ParamSpecBoxed as Boxed, ParamSpecEnum as Choice,
    ParamSpecInt as Int, ParamSpecInt64 as Int64, ParamSpecString as Text, ParamSpecUInt as UInt,
    ParamSpecUInt64 as UInt64,
};
use gstreamer::prelude::*;
use selvedge_units::Duration;

use crate::settings::{CATCH_UP_MAX, PadSettings, SinkSettings, disciplines};

/// Properties: the builder with the name, the nick, the meaning, when one may be set, and its bounds and default.
macro_rules! properties {
    ($($builder:expr, $nick:literal, $meaning:expr, $when:ident $(, $more:ident($value:expr))*;)*) => {
        vec![$($builder.nick($nick).blurb($meaning)$(.$more($value))*.$when().build()),*]
    };
}

/// The properties of `selvedgesrc`.
#[rustfmt::skip]
pub(crate) fn of_source() -> Vec<ParamSpec> {
    properties! {
        Text::builder("sdp"), "SDP file",
            "The file that describes the stream, with its address and format",
            mutable_ready;
        UInt::builder("stream"), "Stream",
            "Which stream of the SDP file, from 0",
            mutable_ready;
        Text::builder("address"), "Address",
            "HOST:PORT with a numeric host to receive at, where there is no SDP file",
            mutable_ready;
        Boxed::builder::<gst::Caps>("caps"), "Caps",
            "What comes at the address, such as application/x-rtp,media=video,encoding-name=H264,clock-rate=90000",
            mutable_ready;
        Flag::builder("undecodable"), "Undecodable frames",
            "Deliver frames that can't be decoded on time, too, as corrupted buffers",
            mutable_ready;
        UInt::builder("latency"), "Latency",
            "How much later than the first frame others may come, in ms",
            mutable_ready, default_value(200);
        Boxed::builder::<gst::Structure>("stats"), "Statistics",
            "What was received since the start, as `selvedge play` counts it",
            read_only;
    }
}

/// The properties of the element.
#[rustfmt::skip]
pub(crate) fn of_sink() -> Vec<ParamSpec> {
    let default = SinkSettings::default();
    properties! {
        UInt64::builder("rate"), "Rate",
            "What the link carries in bit/s, IP and UDP headers included (required without bond)",
            mutable_playing, default_value(default.rate);
        Text::builder("bond"), "Bond",
            "HOST:PORT with a numeric host where the far end of a bond listens, which takes all pads (selvedgesink only)",
            mutable_ready;
        Text::builder("secret"), "Secret",
            "The file with the secret that both ends of the bond share: 64 hexadecimal digits",
            mutable_ready;
        Text::builder("devices"), "Devices",
            "The network devices of the bond's paths, separated by commas (none: one path, as routes say)",
            mutable_ready;
        Text::builder("discipline"), "Discipline",
            &format!("The order in which pads are served: one of {}", disciplines()),
            mutable_ready, default_value(Some(default.discipline.as_str()));
        Flag::builder("selection"), "Frame selection",
            "Drop early what can't be decoded or can't be on time (never with fifo)",
            mutable_ready, default_value(default.selection);
        UInt64::builder("burst"), "Burst",
            "Bytes that may be sent at once (0: one packet of 1500)",
            mutable_ready, default_value(default.burst);
        Int64::builder("catch-up"), "Catch up",
            "Bytes that may be sent after late wake-ups beyond rate and burst (-1: the larger of two packets and 20 ms of the rate, at most a tenth of the shortest delay)",
            mutable_ready, minimum(-1), maximum(CATCH_UP_MAX), default_value(default.catch_up);
        Flag::builder("sync"), "Sync",
            "Take frames when they are due on the pipeline's clock",
            mutable_ready, default_value(default.sync);
        Flag::builder("async"), "Async",
            "Go to PAUSED and PLAYING only when every pad has its first frame (selvedgesink only)",
            mutable_ready, default_value(default.preroll);
        Boxed::builder::<gst::Structure>("stats"), "Statistics",
            "What became of the frames since the start, by pad",
            read_only;
    }
}

/// The properties of a pad.
#[rustfmt::skip]
pub(crate) fn of_pad() -> Vec<ParamSpec> {
    let default = PadSettings::default();
    properties! {
        Text::builder("to"), "Receiver",
            "Where packets go: HOST:PORT or rtp://HOST:PORT with a numeric host (selvedgesink only: required)",
            mutable_ready;
        UInt64::builder("period"), "Period",
            "Time between frames in ns (0: from the medium)",
            mutable_ready, default_value(default.period);
        Text::builder("window"), "Window-constraint",
            "\"x/y\": at most x of any y frames may be late or lost",
            mutable_playing, default_value(Some(default.window.as_str()));
        Choice::builder_with_default("late", default.late), "Late frames",
            "What becomes of frames that missed their deadlines",
            mutable_ready;
        Int::builder("priority"), "Priority",
            "Higher goes first under the discipline \"priority\", and is given up last by selection",
            mutable_playing, minimum(-1000), maximum(1000), default_value(default.priority);
        UInt::builder("weight"), "Weight",
            "What a frame is worth against those of other pads",
            mutable_ready, minimum(1), maximum(1000), default_value(default.weight);
        UInt64::builder("delay"), "Delay",
            "Time from a frame's arrival to its deadline in ns (the playout delay)",
            mutable_ready, minimum(Duration::from_millis(1).0), maximum(Duration::from_secs(600).0), default_value(default.delay);
        UInt::builder("max-bitrate"), "Maximum bitrate",
            "The most that the pad's encoder may encode at over a bond in bit/s (0: it does not follow)",
            mutable_ready, default_value(default.max_bitrate);
        UInt::builder("estimated-bitrate"), "Estimated bitrate",
            "What the pad's encoder should encode at in bit/s, from a tenth of max-bitrate to max-bitrate (0: not known)",
            read_only;
        Boxed::builder::<gst::Structure>("stats"), "Statistics",
            "What became of the frames of this pad since the start",
            read_only;
    }
}
