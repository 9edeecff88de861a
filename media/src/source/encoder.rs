//! The encoder of a source that is encoded here. While it runs its bitrate may follow the rate of a link, and it makes an
//! intra picture where the link lost what later pictures refer to.

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_units::Bitrate;

use super::nominal::unit_of;

const BITRATE: &str = "bitrate";
/// The event by which GStreamer's encoders are asked for an intra picture, as its video library names it.
const FORCE_KEY_UNIT: &str = "GstForceKeyUnit";

/// An encoder of a source. This handle does not keep the source open.
#[derive(Clone, Debug)]
pub struct Encoder {
    element: gst::glib::WeakRef<gst::Element>,
    /// Of its property, in bit/s.
    unit: u64,
    stated: Bitrate,
}

impl Encoder {
    /// The encoder of a pipeline, if it is one whose bitrate is stated, and may change while it runs.
    pub(super) fn of(pipeline: &gst::Pipeline) -> Option<Self> {
        pipeline.iterate_recurse().into_iter().flatten().find_map(|element| Self::new(&element))
    }

    fn new(element: &gst::Element) -> Option<Self> {
        let unit = unit_of(&element.factory()?.name())?;
        let may_change = gst::PARAM_FLAG_MUTABLE_PLAYING;
        element.find_property(BITRATE).filter(|property| property.flags().contains(may_change))?;
        let value = element.property_value(BITRATE).transform::<u64>().ok()?;
        let stated = Bitrate(value.get::<u64>().ok()?.saturating_mul(unit));
        let element = element.downgrade();
        (stated.0 > 0).then_some(Self { element, unit, stated })
    }

    /// The bitrate that its source states.
    #[must_use]
    pub const fn stated(&self) -> Bitrate {
        self.stated
    }

    /// Makes it encode at this rate from its next pictures on, and at most as its source states.
    pub fn set_rate(&self, rate: Bitrate) {
        if let Some(element) = self.element.upgrade() {
            let value = (rate.min(self.stated).0 / self.unit).max(1);
            element.set_property_from_str(BITRATE, &value.to_string());
        }
    }

    /// Makes its next picture an intra picture, if it can.
    pub fn request_intra(&self) {
        let output = self.element.upgrade().and_then(|element| element.static_pad("src"));
        let request = gst::Structure::builder(FORCE_KEY_UNIT)
            .field("all-headers", true)
            .field("count", 0_u32)
            .build();
        // An encoder that can't goes on as before.
        let _ = output
            .is_some_and(|output| output.send_event(gst::event::CustomUpstream::new(request)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(line: &str) -> gst::Pipeline {
        crate::source::elements::init().unwrap();
        gst::parse::launch(line).unwrap().downcast().unwrap()
    }

    #[test]
    fn an_encoder_takes_other_rates_while_it_runs() {
        let line = "videotestsrc num-buffers=3 ! x264enc bitrate=800 name=enc ! fakesink";
        let running = pipeline(line);
        let encoder = Encoder::of(&running).unwrap();
        assert_eq!(encoder.stated(), Bitrate::from_kbps(800));
        let element = running.by_name("enc").unwrap();
        for (rate, set) in [(300, 300), (5_000, 800), (0, 1)] {
            encoder.set_rate(Bitrate::from_kbps(rate));
            assert_eq!(element.property::<u32>(BITRATE), set);
        }
        drop((running, element));
        // It has gone, which is no fault.
        encoder.set_rate(Bitrate::from_kbps(300));
    }

    #[test]
    fn an_encoder_makes_an_intra_picture_on_request() {
        let intras = |requests: bool| {
            let line = "videotestsrc num-buffers=40 ! x264enc bitrate=800 key-int-max=1000 tune=zerolatency \
                        ! appsink name=out sync=false max-buffers=1";
            let running = pipeline(line);
            let encoder = Encoder::of(&running).unwrap();
            let out: gstreamer_app::AppSink = running.by_name("out").unwrap().downcast().unwrap();
            running.set_state(gst::State::Playing).unwrap();
            let mut intras = 0;
            for n in 0..40 {
                let sample = out.pull_sample().unwrap();
                let is_delta =
                    sample.buffer().unwrap().flags().contains(gst::BufferFlags::DELTA_UNIT);
                intras += usize::from(!is_delta);
                if requests && n == 10 {
                    encoder.request_intra();
                }
            }
            running.set_state(gst::State::Null).unwrap();
            encoder.request_intra();
            intras
        };
        assert_eq!([intras(false), intras(true)], [1, 2]);
    }

    #[test]
    fn what_is_no_encoder_of_a_known_unit_does_not_follow() {
        assert!(Encoder::of(&pipeline("videotestsrc ! jpegenc ! fakesink")).is_none());
    }
}
