//! The encoder of a source that is encoded here. While it runs its bitrate may follow the rate of a link, and it makes an
//! intra picture where the link lost what later pictures refer to. A source in a process of its own gets both by orders.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gstreamer as gst;
use gstreamer::glib;
use gstreamer::prelude::*;
use parking_lot::Mutex;
use selvedge_control_config::EncoderKnob;
use selvedge_units::{Bitrate, nearest};

use super::nominal::{UNFLAGGED, rate_property};
use crate::error::KnobFault;

/// An encoder aims at no less than this part of the most, unless its knob has a limit.
pub const LEAST_PART: u64 = 10;
/// The event by which GStreamer's encoders are asked for an intra picture, as its video library names it.
const FORCE_KEY_UNIT: &str = "GstForceKeyUnit";

/// An encoder of a source. This handle does not keep the source open.
#[derive(Clone, Debug)]
pub struct Encoder {
    least: Bitrate,
    most: Bitrate,
    at: Location,
}

/// Where an encoder runs.
#[derive(Clone, Debug)]
enum Location {
    /// In this process; the unit of its property is in bit/s.
    Here { element: Arc<Mutex<glib::WeakRef<gst::Element>>>, property: String, unit: u64 },
    /// Elsewhere.
    Remote(Arc<dyn RemoteEncoder>),
}

/// An encoder that is no element of ours: that of a source in another process, or of another program.
pub trait RemoteEncoder: Debug + Send + Sync {
    /// It must encode at this rate from now on. Called under locks of the node: it returns at once.
    fn set_rate(&self, rate: Bitrate);
    /// Its next picture must be an intra picture. Returns at once as well.
    fn request_intra(&self);
}

/// What a remote encoder is to do: written by its handles, read by the thread that reaches it.
#[derive(Debug, Default)]
pub struct EncoderOrders {
    rate: AtomicU64,
    intras: AtomicU64,
}

impl EncoderOrders {
    /// The rate that was set last; 0 until one was set.
    #[must_use]
    pub fn rate(&self) -> Bitrate {
        Bitrate(self.rate.load(Ordering::Relaxed))
    }

    /// How many intra pictures were requested so far.
    #[must_use]
    pub fn intras(&self) -> u64 {
        self.intras.load(Ordering::Relaxed)
    }
}

impl RemoteEncoder for EncoderOrders {
    fn set_rate(&self, rate: Bitrate) {
        self.rate.store(rate.0, Ordering::Relaxed);
    }

    fn request_intra(&self) {
        self.intras.fetch_add(1, Ordering::Relaxed);
    }
}

impl Encoder {
    /// The encoder of a bin whose bitrate may change while it runs: what the knob turns, or a known one that states its
    /// bitrate.
    pub(super) fn of(
        bin: &gst::Bin,
        knob: Option<&EncoderKnob>,
    ) -> Result<Option<Self>, KnobFault> {
        if let Some(knob) = knob {
            let element = bin.by_name(&knob.element);
            let element = element.ok_or_else(|| KnobFault::Element(knob.element.clone()))?;
            return Self::turned(&element, knob).map(Some);
        }
        let follows = |element: gst::Element| {
            let (property, _) = rate_property(&element.factory()?.name())?;
            let knob = EncoderKnob {
                element: element.name().into(),
                property: property.into(),
                unit: None,
                least: None,
                most: None,
            };
            Self::turned(&element, &knob).ok()
        };
        Ok(bin.iterate_recurse().into_iter().flatten().find_map(follows))
    }

    fn turned(element: &gst::Element, knob: &EncoderKnob) -> Result<Self, KnobFault> {
        let EncoderKnob { element: name, property, .. } = knob;
        let factory = element.factory().map_or_else(String::new, |factory| factory.name().into());
        let Some(spec) = element.find_property(property) else {
            let all = element.list_properties();
            let nearest = nearest(property, all.iter().map(|spec| spec.name())).map(str::to_owned);
            let (element, property) = (name.clone(), property.clone());
            return Err(KnobFault::Property { element, factory, property, nearest });
        };
        let whole = format!("{name}.{property}");
        let Some(numbers) = numbers(&spec) else {
            let found = spec.value_type().name().to_owned();
            return Err(KnobFault::NoNumber { knob: whole, found });
        };
        let known = rate_property(&factory).filter(|(known, _)| *known == property.as_str());
        let is_flagged = spec.flags().contains(gst::PARAM_FLAG_MUTABLE_PLAYING)
            || known.is_some() && UNFLAGGED.contains(&&*factory);
        if !is_flagged || !spec.flags().contains(glib::ParamFlags::READWRITE) {
            return Err(KnobFault::Fixed { knob: whole, factory });
        }
        let unit = knob.unit.map_or_else(|| known.map_or(1, |(_, unit)| unit), |unit| unit.0);
        let stated = || {
            let value =
                element.property_value(property).transform::<i64>().ok()?.get::<i64>().ok()?;
            let value = u64::try_from(value).ok().filter(|value| *value > 0)?;
            Some(Bitrate(value.saturating_mul(unit)))
        };
        let Some(most) = knob.most.or_else(stated) else { return Err(KnobFault::Unstated(whole)) };
        let [floor, ceiling] = [numbers.0.max(1), numbers.1].map(|n| n.saturating_mul(unit));
        let least = knob.least.unwrap_or_else(|| Bitrate((most.0 / LEAST_PART).max(floor)));
        // Whole units within the limits.
        let [low, high] = [least.0.div_ceil(unit) * unit, most.0 / unit * unit];
        if low > high {
            return Err(KnobFault::Empty { least, most });
        }
        if low < floor || high > ceiling {
            let takes = (Bitrate(floor), Bitrate(ceiling));
            return Err(KnobFault::Range { knob: whole, takes, set: (least, most) });
        }
        let (element, property) = (Arc::new(Mutex::new(element.downgrade())), property.clone());
        let at = Location::Here { element, property, unit };
        Ok(Self { least: Bitrate(low), most: Bitrate(high), at })
    }

    /// An encoder elsewhere that may encode at these rates. Where `most` is 0, it only makes intra pictures.
    #[must_use]
    pub fn remote(least: Bitrate, most: Bitrate, to: Arc<dyn RemoteEncoder>) -> Self {
        Self { least: least.min(most), most, at: Location::Remote(to) }
    }

    /// The least and the most that it may encode at.
    #[must_use]
    pub const fn range(&self) -> (Bitrate, Bitrate) {
        (self.least, self.most)
    }

    /// Its medium began anew, with this encoder: goes on with that, at the rate that was set.
    pub(super) fn handle_next(&self, next: &Self) {
        if let (Location::Here { element, property, .. }, Location::Here { element: next, .. }) =
            (&self.at, &next.at)
        {
            let (mut element, next) = (element.lock(), next.lock().clone());
            if let Some((was, next)) = element.upgrade().zip(next.upgrade()) {
                next.set_property_from_value(property, &was.property_value(property));
            }
            *element = next;
        }
    }

    /// Makes it encode at this rate from its next pictures on, within its range.
    pub fn set_rate(&self, rate: Bitrate) {
        let rate = rate.clamp(self.least, self.most);
        match &self.at {
            Location::Here { element, property, unit } => {
                // Held until it is set, so that a next medium goes on with this rate.
                let element = element.lock();
                if let Some(element) = element.upgrade() {
                    element.set_property_from_str(property, &(rate.0 / unit).to_string());
                }
            }
            Location::Remote(remote) => remote.set_rate(rate),
        }
    }

    /// Makes its next picture an intra picture, if it can.
    pub fn request_intra(&self) {
        let element = match &self.at {
            Location::Here { element, .. } => element.lock().upgrade(),
            Location::Remote(remote) => return remote.request_intra(),
        };
        let output = element.and_then(|element| element.static_pad("src"));
        // An encoder that can't goes on as before.
        let _ = output.is_some_and(|output| output.send_event(key_unit_request()));
    }
}

/// The event that asks the encoder upstream for an intra picture.
#[must_use]
pub fn key_unit_request() -> gst::Event {
    let request = gst::Structure::builder(FORCE_KEY_UNIT)
        .field("all-headers", true)
        .field("count", 0_u32)
        .build();
    gst::event::CustomUpstream::new(request)
}

/// The least and the most of a property that holds whole numbers, as far as they are not negative.
fn numbers(spec: &glib::ParamSpec) -> Option<(u64, u64)> {
    let bounds = |least: i64, most: i64| [least, most].map(|n| u64::try_from(n).unwrap_or(0));
    let [least, most] = if let Some(spec) = spec.downcast_ref::<glib::ParamSpecInt>() {
        bounds(spec.minimum().into(), spec.maximum().into())
    } else if let Some(spec) = spec.downcast_ref::<glib::ParamSpecInt64>() {
        bounds(spec.minimum(), spec.maximum())
    } else if let Some(spec) = spec.downcast_ref::<glib::ParamSpecUInt>() {
        [spec.minimum().into(), spec.maximum().into()]
    } else {
        let spec = spec.downcast_ref::<glib::ParamSpecUInt64>()?;
        [spec.minimum(), spec.maximum()]
    };
    Some((least, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(line: &str) -> gst::Pipeline {
        crate::source::elements::init().unwrap();
        gst::parse::launch(line).unwrap().downcast().unwrap()
    }

    fn of(line: &gst::Pipeline, knob: Option<&EncoderKnob>) -> Result<Option<Encoder>, KnobFault> {
        Encoder::of(line.upcast_ref(), knob)
    }

    fn knob(text: &str) -> EncoderKnob {
        let (element, property) = text.split_once('.').unwrap();
        let (element, property) = (element.into(), property.into());
        EncoderKnob { element, property, unit: None, least: None, most: None }
    }

    #[test]
    fn an_encoder_takes_other_rates_while_it_runs() {
        let line = "videotestsrc num-buffers=3 ! x264enc bitrate=800 name=enc ! fakesink";
        let running = pipeline(line);
        let encoder = of(&running, None).unwrap().unwrap();
        assert_eq!(encoder.range(), (Bitrate::from_kbps(80), Bitrate::from_kbps(800)));
        let element = running.by_name("enc").unwrap();
        for (rate, set) in [(300, 300), (5_000, 800), (0, 80)] {
            encoder.set_rate(Bitrate::from_kbps(rate));
            assert_eq!(element.property::<u32>("bitrate"), set);
        }
        drop((running, element));
        // It has gone, which is no fault.
        encoder.set_rate(Bitrate::from_kbps(300));
    }

    #[test]
    fn a_knob_turns_its_property_in_its_unit_and_range() {
        let kbps = Bitrate::from_kbps;
        let line = "videotestsrc ! vp8enc name=vp target-bitrate=1000000 ! fakesink \
                    videotestsrc ! openh264enc name=open bitrate=700 ! fakesink";
        let line = pipeline(line);
        let plain = knob("vp.target-bitrate");
        let ranged =
            EncoderKnob { least: Some(kbps(200)), most: Some(kbps(2000)), ..plain.clone() };
        let thousands = EncoderKnob { unit: Some(kbps(1)), ..knob("open.bitrate") };
        let narrow = EncoderKnob {
            least: Some(Bitrate(1_500)),
            most: Some(Bitrate(9_900)),
            ..thousands.clone()
        };
        for (knob, range, set, value) in [
            // The line's 1 Mbit/s, and a tenth of that.
            (&plain, (kbps(100), kbps(1000)), kbps(300), 300_000),
            (&plain, (kbps(100), kbps(1000)), kbps(3000), 1_000_000),
            (&thousands, (kbps(70), kbps(700)), kbps(300), 300),
            (&ranged, (kbps(200), kbps(2000)), kbps(50), 200_000),
            // Whole units within the limits.
            (&narrow, (kbps(2), kbps(9)), Bitrate(3_999), 3),
        ] {
            let encoder = of(&line, Some(knob)).unwrap().unwrap();
            assert_eq!(encoder.range(), range, "{knob:?}");
            encoder.set_rate(set);
            let element = line.by_name(&knob.element).unwrap();
            let held = element.property_value(&knob.property).transform::<i64>().unwrap();
            assert_eq!(held.get::<i64>().unwrap(), value, "{knob:?}");
            let before = if knob.element == "vp" { "1000000" } else { "700" };
            element.set_property_from_str(&knob.property, before);
        }
        // It is the element that the knob names, not the first that is known.
        let line = "videotestsrc ! x264enc ! fakesink opusenc name=sound bitrate=64000";
        let sound = of(&pipeline(line), Some(&knob("sound.bitrate"))).unwrap().unwrap();
        assert_eq!(sound.range(), (Bitrate(6_400), Bitrate(64_000)));
    }

    /// The bytes of so many pictures at the first rate, and then of as many at a quarter of it.
    fn encoded(line: &str, first: Bitrate) -> [usize; 2] {
        const PICTURES: usize = 60;
        let line = format!(
            "videotestsrc pattern=snow num-buffers={} ! video/x-raw,format=I420,width=160,height=120,framerate=30/1 \
             ! {line} ! appsink name=out sync=false max-buffers=1",
            2 * PICTURES
        );
        let running = pipeline(&line);
        let encoder = of(&running, None).unwrap().unwrap();
        encoder.set_rate(first);
        let out: gstreamer_app::AppSink = running.by_name("out").unwrap().downcast().unwrap();
        running.set_state(gst::State::Playing).unwrap();
        let bytes = [first, Bitrate(first.0 / 4)].map(|rate| {
            encoder.set_rate(rate);
            let sizes = (0..PICTURES).map(|_| out.pull_sample().unwrap().buffer().unwrap().size());
            sizes.sum()
        });
        running.set_state(gst::State::Null).unwrap();
        bytes
    }

    #[test]
    fn an_encoder_without_the_flag_takes_other_rates_all_the_same() {
        for factory in UNFLAGGED {
            let line = format!(
                "{factory} target-bitrate=2000000 deadline=1 end-usage=cbr lag-in-frames=0 cpu-used=8"
            );
            let [first, then] = encoded(&line, Bitrate::from_mbps(2));
            assert!(then < first / 2, "{factory}: {first} bytes, then {then}");
        }
    }

    #[test]
    fn a_wrong_knob_says_what_to_write() {
        let line = "videotestsrc ! x264enc name=enc bitrate=800 ! fakesink \
                    videotestsrc ! openh264enc name=open ! fakesink \
                    videotestsrc ! mpeg2enc name=old ! fakesink \
                    videotestsrc ! vp8enc name=vp ! fakesink";
        let line = pipeline(line);
        let most = |text: &str, most| EncoderKnob { most: Some(most), ..knob(text) };
        let least = |text: &str, least| EncoderKnob { least: Some(least), ..knob(text) };
        for (knob, part) in [
            (knob("e.bitrate"), "no element \"e\"; write name=e behind"),
            (knob("enc.bitrat"), "enc has no property \"bitrat\"; did you mean \"bitrate\"?"),
            (knob("enc.rate"), "see which it has: gst-inspect-1.0 x264enc"),
            (knob("enc.option-string"), "enc.option-string is no whole number but a gchararray"),
            (knob("enc.aud"), "enc.aud is no whole number but a gboolean"),
            (knob("enc.key-int-max"), "can't change while the element runs"),
            (knob("old.bitrate"), "take another encoder than mpeg2enc"),
            (knob("open.max-bitrate"), "is 0 in the launch line; write the rate there, or most ="),
            (
                least("enc.bitrate", Bitrate::from_mbps(1)),
                "the least, 1 Mbit/s, is more than the most, 800 kbit/s; write most =",
            ),
            (
                most("enc.bitrate", Bitrate::from_mbps(10_000)),
                "takes 1 kbit/s to 2048 Mbit/s, and is to be set from 1 Gbit/s to 10 Gbit/s",
            ),
            (
                most("vp.target-bitrate", Bitrate::from_mbps(10_000)),
                "takes 1 bit/s to 2147483647 bit/s",
            ),
        ] {
            let fault = of(&line, Some(&knob)).unwrap_err().to_string();
            assert!(fault.contains(part), "{knob:?}: {fault}");
        }
    }

    #[test]
    fn an_encoder_makes_an_intra_picture_on_request() {
        let intras = |requests: bool| {
            let line = "videotestsrc num-buffers=40 ! x264enc bitrate=800 key-int-max=1000 tune=zerolatency \
                        ! appsink name=out sync=false max-buffers=1";
            let running = pipeline(line);
            let encoder = of(&running, None).unwrap().unwrap();
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
        let line = pipeline("videotestsrc ! jpegenc ! fakesink");
        assert!(of(&line, None).unwrap().is_none());
    }
}
