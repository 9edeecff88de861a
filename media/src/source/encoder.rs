//! The encoder of a source that is encoded here. Its bitrate may follow the rate of a link while it runs.

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_units::Bitrate;

use super::nominal::unit_of;

const BITRATE: &str = "bitrate";

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
    fn what_is_no_encoder_of_a_known_unit_does_not_follow() {
        assert!(Encoder::of(&pipeline("videotestsrc ! jpegenc ! fakesink")).is_none());
    }
}
