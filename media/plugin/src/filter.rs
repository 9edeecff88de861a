//! `selvedge`: the scheduler as a filter in front of any sink. Encoded streams enter on request pads;
//! the frames that one paced link carries on time leave whole, on a src pad for each stream.
//!
//! Everything but the end is shared with `selvedgesink`: in place of a socket there is
//! [`crate::output`].

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;

use crate::sink::SelvedgeSink;

glib::wrapper! {
    /// The filter.
    pub struct Selvedge(ObjectSubclass<imp::Selvedge>)
        @extends SelvedgeSink, gst::Bin, gst::Element, gst::Object, @implements gst::ChildProxy;
}

mod imp {
    use std::sync::LazyLock;

    use gst::subclass::prelude::*;

    use super::*;
    use crate::chain;
    use crate::pad::SelvedgeSinkPad;

    #[derive(Default)]
    pub struct Selvedge;

    #[glib::object_subclass]
    impl ObjectSubclass for Selvedge {
        const NAME: &'static str = "GstSelvedge";
        type Type = super::Selvedge;
        type ParentType = SelvedgeSink;
    }

    impl ObjectImpl for Selvedge {
        fn constructed(&self) {
            self.parent_constructed();
            // The sinks are downstream: they end the pipeline, and determine when frames are shown.
            self.obj().set_suppressed_flags(gst::ElementFlags::SINK);
        }
    }

    impl GstObjectImpl for Selvedge {}

    impl ElementImpl for Selvedge {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Selvedge filter",
                    "Filter/Network",
                    "Chooses and paces the frames of many streams for one link that may be too small, in \
                     front of any sink; each sink_%u has a src_%u",
                    "The Selvedge developers",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                let (caps, sink) = (chain::encoded_caps(), SelvedgeSinkPad::static_type());
                let (request, sometimes) = (gst::PadPresence::Request, gst::PadPresence::Sometimes);
                let (into, out) = (gst::PadDirection::Sink, gst::PadDirection::Src);
                [
                    gst::PadTemplate::with_gtype("sink_%u", into, request, &caps, sink),
                    gst::PadTemplate::new("src_%u", out, sometimes, &caps),
                ]
                .into_iter()
                .flatten()
                .collect()
            });
            &TEMPLATES
        }
    }

    impl BinImpl for Selvedge {}
    impl crate::sink::SelvedgeSinkImpl for Selvedge {}
}
