//! `test:` sources: a test card or a tone, made here.

use std::str::FromStr;

use gstreamer as gst;
use selvedge_units::Bitrate;

use super::elements::package_of;
use crate::error::SourceError;

const CARD: &str = "videotestsrc pattern=smpte";
/// The whole frame rates that the MPEG-2 encoder takes.
const MPEG_RATES: [u32; 4] = [24, 25, 30, 50];

/// The launch line of a test source; `spec` is the text after `test:`.
pub(super) fn line(spec: &str) -> Result<String, SourceError> {
    let options = Options::parse(spec)?;
    let refuse = |option: &str, remedy| Err(options.error(option, remedy));
    let rate = options.rate.unwrap_or(25);
    let (width, height) = options.size.unwrap_or((320, 240));
    let card = format!(
        "{CARD} ! video/x-raw,format=I420,width={width},height={height},framerate={rate}/1"
    );
    if options.what != "audio" && !(1..=120).contains(&rate) {
        return refuse(&format!("rate={rate}"), "give 1 to 120 frames per second");
    }
    match options.what {
        "video" => Ok(format!("{card} ! {}", h264_encoder(rate, Bitrate::from_kbps(500))?)),
        "mpeg2" if !MPEG_RATES.contains(&rate) => {
            refuse(&format!("rate={rate}"), "MPEG-2 has 24, 25, 30 or 50 frames per second")
        }
        // avenc_mpeg2video of GStreamer 1.22 takes no frame rate at all.
        "mpeg2" => Ok(format!(
            "{card} ! mpeg2enc format=3 bitrate=600 quantisation=8 b-per-refframe=2 \
             min-gop-size=15 max-gop-size=15 closed-gop=true sequence-header-every-gop=true \
             interlace-mode=0 disable-encode-retries=true motion-search-radius=8"
        )),
        "jpeg" => Ok(format!("{card} ! jpegenc quality=75")),
        "audio" if options.size.is_some() => refuse("size", "sound has no size"),
        "audio" => {
            let rate = options.rate.unwrap_or(48_000);
            if !(8_000..=96_000).contains(&rate) {
                return refuse(&format!("rate={rate}"), "give 8000 to 96000 samples per second");
            }
            Ok(format!(
                "audiotestsrc wave=sine freq=440 volume=0.2 ! audioconvert ! \
                 capsfilter caps=audio/x-raw,format=S16BE,rate={rate},channels=1"
            ))
        }
        other => refuse(other, "write test:video, test:mpeg2, test:jpeg or test:audio"),
    }
}

/// The first encoder that is installed, for this many pictures a second. Only x264enc makes B pictures.
pub(super) fn h264_encoder(rate: u32, bitrate: Bitrate) -> Result<String, SourceError> {
    let lines = [
        (
            "x264enc",
            format!(
                "bitrate={} bframes=2 b-adapt=false key-int-max=30 rc-lookahead=5 threads=1 \
                 speed-preset=superfast option-string=b-pyramid=none",
                bitrate.0 / 1_000
            ),
        ),
        ("openh264enc", format!("bitrate={} gop-size={}", bitrate.0, rate.max(1))),
    ];
    let found = lines.iter().find(|(name, _)| gst::ElementFactory::find(name).is_some());
    found.map(|(name, options)| format!("{name} {options}")).ok_or_else(|| {
        let package = package_of("x264enc").unwrap_or_default();
        SourceError::CodecAbsent { codec: "encoding to H.264".into(), package }
    })
}

#[derive(Debug, PartialEq)]
struct Options<'a> {
    spec: &'a str,
    what: &'a str,
    rate: Option<u32>,
    size: Option<(u32, u32)>,
}

impl<'a> Options<'a> {
    fn parse(spec: &'a str) -> Result<Self, SourceError> {
        let (what, rest) = spec.split_once('?').unwrap_or((spec, ""));
        let mut options = Self { spec, what, rate: None, size: None };
        for option in rest.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("rate", value)) => {
                    let rate = value.parse().ok();
                    options.rate = Some(rate.ok_or_else(|| {
                        options.error(option, "write a whole number, such as rate=25")
                    })?);
                }
                Some(("size", value)) => {
                    let size = parse_size(value);
                    options.size = Some(size.ok_or_else(|| {
                        options.error(option, "write even numbers from 16 to 2040: size=320x240")
                    })?);
                }
                _ => return Err(options.error(option, "the options are rate= and size=")),
            }
        }
        Ok(options)
    }

    fn error(&self, option: &str, remedy: &'static str) -> SourceError {
        SourceError::Option { what: format!("test:{}", self.spec), option: option.into(), remedy }
    }
}

fn parse_size(text: &str) -> Option<(u32, u32)> {
    let (width, height) = text.split_once('x')?;
    let side = |text| u32::from_str(text).ok();
    let fits = |n: &u32| (16..=2040).contains(n) && n.is_multiple_of(2);
    side(width).filter(fits).zip(side(height).filter(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let read = Options::parse("jpeg?rate=5&size=64x48").unwrap();
        assert_eq!((read.what, read.rate, read.size), ("jpeg", Some(5), Some((64, 48))));
        let plain = Options::parse("audio").unwrap();
        assert_eq!((plain.what, plain.rate, plain.size), ("audio", None, None));
    }

    #[test]
    fn nonsense_says_what_to_write() {
        let say = |spec: &str| line(spec).unwrap_err().to_string();
        assert!(say("vidoe").contains("write test:video"));
        assert!(say("jpeg?rate=x").contains("rate=25"));
        assert!(say("jpeg?rate=0").contains("1 to 120"));
        assert!(say("jpeg?size=15x16").contains("even numbers"));
        assert!(say("jpeg?size=16").contains("even numbers"));
        assert!(say("jpeg?colour=red").contains("rate= and size="));
        assert!(say("mpeg2?rate=10").contains("MPEG-2 has"));
        assert!(say("audio?size=16x16").contains("no size"));
        assert!(say("audio?rate=1").contains("8000"));
    }
}
