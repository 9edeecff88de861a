//! `camera:` sources: Video4Linux devices. Encoded output of the camera is taken as it is; unencoded
//! pictures become H.264, or JPEG where no encoder is installed.

use std::path::Path;

use gstreamer as gst;
use gstreamer::prelude::*;
use selvedge_control_config::FilePart;
use selvedge_units::Bitrate;

use super::carry::{I420, PICTURES};
use super::elements::{bin, init, make, wiring};
use super::feed::{Feed, Timing};
use super::test::h264_encoder;
use crate::error::SourceError;

const LIST: &str = "list the cameras of this machine with: v4l2-ctl --list-devices";

/// What is made of pictures that come unencoded. Over a bond the encoder follows the measured rate.
const ENCODED: Bitrate = Bitrate::from_mbps(2);

/// The feed of a camera.
pub(super) fn feed(what: &str, device: &str) -> Result<Feed, SourceError> {
    init()?;
    let absent = |message: String| SourceError::Device {
        device: format!("camera {device}"),
        message,
        remedy: LIST,
    };
    std::fs::metadata(Path::new(device)).map_err(|e| absent(e.to_string()))?;
    let camera = make("v4l2src")?;
    camera.set_property("device", device);
    let bus = gst::Bus::new();
    camera.set_bus(Some(&bus));
    // Once opened, a camera reports its formats.
    if camera.set_state(gst::State::Ready).is_err() {
        let message = bus.pop_filtered(&[gst::MessageType::Error]);
        let _ = camera.set_state(gst::State::Null);
        return Err(absent(match message.as_ref().map(|m| m.view()) {
            Some(gst::MessageView::Error(error)) => error.error().message().to_owned(),
            _ => "it can't be opened".into(),
        }));
    }
    camera.set_bus(None);
    opened(what, device, camera)
}

/// The feed of a camera that is open, and can report its formats.
fn opened(what: &str, device: &str, camera: gst::Element) -> Result<Feed, SourceError> {
    let caps = camera.static_pad("src").map(|pad| pad.query_caps(None));
    let caps = caps.unwrap_or_else(gst::Caps::new_empty);
    let Some(line) = line_for(&caps) else {
        let _ = camera.set_state(gst::State::Null);
        return Err(SourceError::Device {
            device: format!("camera {device}"),
            message: format!("it gives {caps}, which is no picture that is carried"),
            remedy: LIST,
        });
    };
    Feed::parsed(what, Timing::Live, FilePart::First, |pipeline| {
        let tail = bin(&line)?;
        let parts = [&camera, tail.upcast_ref()];
        pipeline.add_many(parts).map_err(|e| wiring("v4l2src", e))?;
        gst::Element::link_many(parts).map_err(|e| wiring("v4l2src", e))?;
        Ok(tail.upcast())
    })
}

/// The elements after a camera that delivers these caps.
fn line_for(caps: &gst::CapsRef) -> Option<String> {
    let gives = |name| caps.iter().any(|s| s.name() == name);
    let raw = || {
        let jpeg = |_| "jpegenc quality=75".to_owned();
        let encoder = h264_encoder(PICTURES, ENCODED).unwrap_or_else(jpeg);
        format!("capsfilter caps=video/x-raw,width=[1,1920],height=[1,1920] ! {I420} ! {encoder}")
    };
    if gives("video/x-h264") {
        Some("capsfilter caps=video/x-h264".to_owned())
    } else if gives("image/jpeg") {
        Some("capsfilter caps=image/jpeg,width=[1,2040],height=[1,2040]".to_owned())
    } else {
        gives("video/x-raw").then(raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    #[test]
    fn no_camera_says_how_to_find_one() {
        for device in ["/dev/no-such-camera", "/dev/null"] {
            let error = feed("camera", device).unwrap_err();
            assert!(matches!(error, SourceError::Device { .. }), "{error}");
            assert!(error.to_string().contains("v4l2-ctl"), "{error}");
        }
    }

    #[test]
    fn what_a_camera_encodes_itself_is_preferred() {
        init().unwrap();
        let line = |caps: &str| line_for(&gst::Caps::from_str(caps).unwrap());
        assert!(line("video/x-raw,format=YUY2").unwrap().contains("bitrate=2000"));
        assert!(line("video/x-raw; image/jpeg").unwrap().contains("image/jpeg"));
        assert!(line("video/x-raw; image/jpeg; video/x-h264").unwrap().contains("h264"));
        assert_eq!(line("video/x-bayer"), None);
    }

    #[test]
    fn every_line_can_be_built() {
        init().unwrap();
        for caps in ["video/x-raw", "image/jpeg", "video/x-h264"] {
            let line = line_for(&gst::Caps::new_empty_simple(caps)).unwrap();
            let built = bin(&line).unwrap();
            assert!(built.static_pad("sink").is_some() && built.static_pad("src").is_some());
        }
    }

    /// A live test card in the camera's place, after `convert`: the output of a device.
    fn fake(convert: &str) -> gst::Element {
        let line =
            format!("videotestsrc is-live=true num-buffers=30 pattern=ball ! {convert} ! identity");
        let bin = gst::parse::bin_from_description(&line, true).unwrap();
        bin.upcast()
    }

    /// Pulls ten units off a camera with this output, and returns their encoding.
    fn units(convert: &str) -> crate::picture::Codec {
        use crate::source::feed::PullResult;
        use crate::source::unit::Format;

        init().unwrap();
        let mut feed = opened("camera:fake", "fake", fake(convert)).unwrap();
        assert!(feed.is_live());
        if convert.contains("YUY2") {
            assert_eq!(feed.encoder(None).map(|encoder| encoder.range().1), Some(ENCODED));
        }
        let mut codec = None;
        for _ in 0..10 {
            match feed.pull(selvedge_units::Duration::from_secs(20)).unwrap() {
                PullResult::Unit(_, caps) => codec = Format::new(&caps).map(|format| format.codec),
                _ => panic!("the camera {convert} gave nothing"),
            }
        }
        codec.unwrap()
    }

    #[test]
    fn a_fake_camera_of_each_kind_delivers() {
        use crate::picture::Codec;

        let size = "video/x-raw,width=160,height=120,framerate=30/1";
        assert_eq!(units(&format!("{size},format=YUY2")), Codec::H264);
        assert_eq!(units(&format!("{size},format=I420 ! jpegenc")), Codec::Jpeg);
        assert_eq!(units(&format!("{size} ! x264enc tune=zerolatency")), Codec::H264);
    }

    #[test]
    fn a_camera_of_another_kind_is_refused() {
        init().unwrap();
        let error = opened("camera:fake", "fake", fake("video/x-raw ! theoraenc")).unwrap_err();
        assert!(error.to_string().contains("no picture that is carried"), "{error}");
    }
}
