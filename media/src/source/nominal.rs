//! The rate that a launch line states before it runs: the bitrate that its encoder is set to, and its
//! frame rate. For `selvedge check`, about sources that can't be measured.

use selvedge_units::{Bitrate, Duration};

use super::PERIOD_DEFAULT;

/// Encoders, the property that sets their rate, and the size of its unit.
const ENCODERS: [(&str, &str, u64); 8] = [
    ("x264enc", "bitrate", 1000),
    ("x265enc", "bitrate", 1000),
    ("nvh264enc", "bitrate", 1000),
    ("vah264enc", "bitrate", 1000),
    ("mpeg2enc", "bitrate", 1000),
    ("openh264enc", "bitrate", 1),
    ("vp8enc", "target-bitrate", 1),
    ("vp9enc", "target-bitrate", 1),
];

/// Encoders that take another rate while they run, although the flags of their property do not show it.
pub(super) const UNFLAGGED: [&str; 2] = ["vp8enc", "vp9enc"];

/// The property that sets an encoder's rate, and the size of its unit.
pub(super) fn rate_property(encoder: &str) -> Option<(&'static str, u64)> {
    let (_, property, unit) = ENCODERS.into_iter().find(|(name, ..)| *name == encoder)?;
    Some((property, unit))
}

/// The mean rate and period of a launch line's output, headers not included, if it states them.
pub(super) fn nominal(line: &str) -> Option<(Bitrate, Duration)> {
    let rate =
        line.split('!').rev().find_map(|element| encoded(element).or_else(|| plain(element)));
    Some((rate?, period(line).unwrap_or(PERIOD_DEFAULT)))
}

fn encoded(element: &str) -> Option<Bitrate> {
    let name = element.split_whitespace().next()?;
    let (key, unit) = rate_property(name)?;
    let stated: u64 = property(element, key)?.parse().ok()?;
    Some(Bitrate(stated.saturating_mul(unit))).filter(|rate| rate.0 > 0)
}

/// Sound of 16 bits a sample.
fn plain(caps: &str) -> Option<Bitrate> {
    let samples: u64 = property(caps, "rate").filter(|_| caps.contains("S16BE"))?.parse().ok()?;
    let channels: u64 = property(caps, "channels")?.parse().ok()?;
    Some(Bitrate(samples.saturating_mul(16).saturating_mul(channels))).filter(|rate| rate.0 > 0)
}

fn period(line: &str) -> Option<Duration> {
    let (frames, seconds) = property(line, "framerate")?.split_once('/')?;
    let (frames, seconds): (u64, u64) = (frames.parse().ok()?, seconds.parse().ok()?);
    let nanos = seconds.checked_mul(1_000_000_000)?.checked_div(frames)?;
    Some(Duration(nanos)).filter(|period| *period > Duration::ZERO)
}

/// The value after `name=`, where the name stands by itself.
fn property<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let ends = |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '"' | '\'' | ')');
    let words = text.split(|c: char| c.is_whitespace() || c == ',');
    let value = words.filter_map(|word| word.split_once('=')).find(|(key, _)| *key == name)?.1;
    let value = value.trim_start_matches("(fraction)").trim_start_matches("(int)");
    Some(value.split(ends).next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_its_encoders_rate_and_its_frame_rate() {
        let of = |line| nominal(line).map(|(rate, period)| (rate.0, period.0 / 1000));
        let line = "videotestsrc ! video/x-raw,framerate=10/1 ! x264enc bitrate=300 ! h264parse";
        assert_eq!(of(line), Some((300_000, 100_000)));
        assert_eq!(of("videotestsrc ! openh264enc bitrate=500000"), Some((500_000, 40_000)));
        assert_eq!(of("videotestsrc ! vp8enc target-bitrate=9000"), Some((9_000, 40_000)));
        let sound = "audiotestsrc ! capsfilter caps=audio/x-raw,format=S16BE,rate=8000,channels=2";
        assert_eq!(of(sound), Some((256_000, 40_000)));
        for silent in ["videotestsrc ! jpegenc", "x264enc bitrate=x", "x264enc bitrate=0", ""] {
            assert_eq!(of(silent), None, "{silent}");
        }
    }

    #[test]
    fn test_signals_say_theirs() {
        crate::source::elements::init().unwrap();
        let of = |what| nominal(&crate::source::test::line(what).unwrap()).map(|(rate, _)| rate.0);
        assert_eq!(of("video?rate=30"), Some(500_000));
        assert_eq!(of("audio?rate=8000"), Some(128_000));
        assert_eq!(of("jpeg"), None);
    }
}
