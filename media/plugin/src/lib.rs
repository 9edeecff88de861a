//! `selvedgesink` and `selvedge`: the scheduler as GStreamer elements; `selvedgesrc` receives what they send.
//!
//! Many encoded streams enter on request pads, and leave as RTP over UDP on one paced link that may be
//! too small for all of them. The losses that each pad allows decide which frames are sent (NI
//! coprocessors: the scheduler near the wire, behind the producers of the frames).
//!
//! `ghost pad -> parser -> input (clock, packets) -> ring -> engine -> socket`; a pad's parser and
//! input are elements of the bin, the engine is a thread that all pads share. With `selvedge`, the
//! frames that the engine has chosen go to a src pad in place of the socket, and so to any sink.

mod chain;
mod filter;
mod frames;
mod input;
mod output;
mod pad;
mod properties;
mod session;
mod settings;
mod sink;
mod source;
mod src_pad;
mod stats;

use gstreamer as gst;
use gstreamer::glib;

pub use filter::Selvedge;
pub use frames::FRAME_META;
pub use pad::SelvedgeSinkPad;
pub use sink::SelvedgeSink;
pub use source::SelvedgeSrc;

/// Registers the elements in this process without loading the plugin from a file.
///
/// # Errors
/// GStreamer's, if it is not initialised.
pub fn register_static() -> Result<(), glib::BoolError> {
    plugin::plugin_desc::plugin_register_static()
}

mod plugin {
    use std::sync::Once;

    use gstreamer::prelude::*;

    use super::{FRAME_META, Selvedge, SelvedgeSink, SelvedgeSrc, glib, gst};

    fn plugin_init(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
        let sink = ("selvedgesink", SelvedgeSink::static_type());
        let source = ("selvedgesrc", SelvedgeSrc::static_type());
        // A second time would be an error of GStreamer's.
        static META: Once = Once::new();
        META.call_once(|| gst::meta::CustomMeta::register_simple(FRAME_META));
        for (name, element) in [sink, ("selvedge", Selvedge::static_type()), source] {
            gst::Element::register(Some(plugin), name, gst::Rank::NONE, element)?;
        }
        Ok(())
    }

    gst::plugin_define!(
        selvedge,
        env!("CARGO_PKG_DESCRIPTION"),
        plugin_init,
        concat!(env!("CARGO_PKG_VERSION"), "-", env!("COMMIT_ID")),
        "MIT/X11",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_NAME"),
        env!("CARGO_PKG_NAME"),
        env!("BUILD_REL_DATE")
    );
}
