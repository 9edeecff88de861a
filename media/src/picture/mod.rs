//! The relation of a picture to later ones, read from its own bits.
//!
//! Neither containers nor demultiplexers distinguish P from B. The input is one access unit as a parser
//! cut it; the result goes with the frame to the scheduler. Any bytes are accepted: invalid ones become
//! [`Kind::Data`]. Work is linear in the size of the unit.

pub mod av1;
pub(crate) mod bits;
pub mod h264;
pub mod h265;
mod huffman;
pub mod jpeg;
pub mod mpeg;
mod reader;
mod slots;
mod start_code;
pub mod vp8;
pub mod vp9;

use core::fmt;

use selvedge_control_config::view::Sound;
use selvedge_data_stream::{Kind, References};

pub use self::reader::reader;

/// Follows the pictures of one stream.
pub trait PictureReader: fmt::Debug + Send {
    /// The picture of the next unit, with its references counted in units; `None` if its headers can't
    /// be read. Must be called for every unit that becomes a frame.
    fn push(&mut self, unit: &[u8]) -> Option<Picture>;

    /// The medium begins again: later units do not refer to earlier ones.
    fn restart(&mut self);
}

/// The relation of an access unit to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Its kind; the most dependent of its slices counts.
    pub kind: Kind,
    /// Whether later pictures may refer to it.
    pub referenced: bool,
    /// Whether nothing after it can refer to anything before it (an H.264 IDR picture, the
    /// intra picture of a closed MPEG group).
    pub closes: bool,
    /// The frames of its stream that it refers to, where its headers state them.
    pub refs: Option<References>,
}

impl Picture {
    /// A unit without a picture that could be read.
    pub const DATA: Self = Self { kind: Kind::Data, referenced: false, closes: false, refs: None };
    /// A block of sound.
    pub const AUDIO: Self =
        Self { kind: Kind::Audio, referenced: false, closes: false, refs: None };
    /// A JPEG image.
    pub const STILL: Self =
        Self { kind: Kind::Still, referenced: false, closes: false, refs: None };

    /// A picture of which its packets state this much. Of an intra picture they do not state that nothing refers across it,
    /// which is so in nearly all streams.
    #[must_use]
    pub const fn stated(kind: Kind, referenced: bool) -> Self {
        Self { kind, referenced, closes: matches!(kind, Kind::Intra), refs: None }
    }
}

selvedge_units::named! {
    /// The encodings that are carried, each by its name in SDP and with its RTP payload format.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Codec {
        /// H.264 (RFC 6184).
        H264 = "H264",
        /// H.265 (RFC 7798).
        H265 = "H265",
        /// VP8 (RFC 7741).
        Vp8 = "VP8",
        /// VP9 (RFC 9628).
        Vp9 = "VP9",
        /// AV1 (RTP Payload Format for AV1).
        Av1 = "AV1",
        /// MPEG-1 and MPEG-2 video (RFC 2250).
        Mpv = "MPV",
        /// JPEG images (RFC 2435).
        Jpeg = "JPEG",
        /// AAC (RFC 3640, high bit rates).
        Aac = "mpeg4-generic",
        /// Opus (RFC 7587).
        Opus = "opus",
        /// Uncompressed sound, 16 bits, big-endian (RFC 3551).
        L16 = "L16",
    }
}

impl Codec {
    /// The encoding name in SDP.
    #[must_use]
    pub const fn encoding(self) -> &'static str {
        self.name()
    }

    /// The codec with this encoding name, in any case.
    #[must_use]
    pub fn from_encoding(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.encoding().eq_ignore_ascii_case(name))
    }

    /// The payload type that is sent: static where RFC 3551 assigns one, else dynamic.
    #[must_use]
    pub const fn payload_type(self) -> u8 {
        match self {
            Self::H264 => 96,
            Self::Mpv => 32,
            Self::Jpeg => 26,
            Self::L16 => 97,
            Self::H265 => 98,
            Self::Vp8 => 99,
            Self::Vp9 => 100,
            Self::Av1 => 101,
            Self::Aac => 102,
            Self::Opus => 103,
        }
    }

    /// Whether it is sound.
    #[must_use]
    pub const fn is_audio(self) -> bool {
        matches!(self, Self::Aac | Self::Opus | Self::L16)
    }

    /// The form of sound that pages play; `None` for pictures, and for sound that they do not play.
    #[must_use]
    pub const fn sound(self) -> Option<Sound> {
        match self {
            // RFC 7587: RTP announces two channels of 48 kHz, whatever was encoded.
            Self::Opus => Some(Sound { rate: 48_000, channels: 2 }),
            _ => None,
        }
    }

    /// The name by which a browser's decoder knows a stream with these format parameters of SDP, as RFC 6381 and the codecs'
    /// own documents write it; empty where browsers have no decoder, and of H.264 whose profile was not announced.
    #[must_use]
    pub fn browser_name(self, fmtp: Option<&str>) -> String {
        let parameter = |key: &str| {
            let mut each =
                fmtp.unwrap_or_default().split(';').filter_map(|one| one.split_once('='));
            each.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        let number = |key: &str, usual: u8| {
            parameter(key).and_then(|value| value.parse::<u8>().ok()).unwrap_or(usual)
        };
        match self {
            Self::H264 => {
                parameter("profile-level-id").map(|id| format!("avc1.{id}")).unwrap_or_default()
            }
            Self::H265 => {
                let (profile, level) = (number("profile-id", 1), number("level-id", 153));
                let tier = if number("tier-flag", 0) == 1 { 'H' } else { 'L' };
                // The profiles with which a stream is compatible, the lowest bit last: those from its own on.
                let compatible =
                    6_u32 & !1_u32.checked_shl(profile.into()).map_or(0, |bit| bit - 1);
                format!("hev1.{profile}.{compatible:X}.{tier}{level}.B0")
            }
            Self::Vp8 => "vp8".to_owned(),
            Self::Vp9 => {
                let profile = number("profile-id", 0);
                format!("vp09.{profile:02}.51.{}", if profile < 2 { "08" } else { "10" })
            }
            Self::Av1 => {
                let (profile, level) = (number("profile", 0), number("level-idx", 13));
                let tier = if number("tier", 0) == 1 { 'H' } else { 'M' };
                format!("av01.{profile}.{level:02}{tier}.08")
            }
            Self::Opus => "opus".to_owned(),
            Self::Mpv | Self::Jpeg | Self::Aac | Self::L16 => String::new(),
        }
    }

    /// The relation of this access unit to others, by its own bytes or else as its packets state it.
    #[must_use]
    pub fn picture_or(self, unit: &[u8], stated: Picture) -> Picture {
        let read = self.picture(unit);
        if read == Picture::DATA { stated } else { read }
    }

    /// The relation of this access unit to others. H.264 is expected as a byte stream (Annex B).
    #[must_use]
    pub fn picture(self, unit: &[u8]) -> Picture {
        match self {
            Self::H264 => h264::picture(unit).unwrap_or(Picture::DATA),
            Self::Mpv => mpeg::picture(unit).unwrap_or(Picture::DATA),
            Self::Jpeg => Picture::STILL,
            Self::Aac | Self::Opus | Self::L16 => Picture::AUDIO,
            // Only a reader that has seen the earlier units knows the relations of these.
            Self::H265 | Self::Vp8 | Self::Vp9 | Self::Av1 => Picture::DATA,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for codec in Codec::ALL {
            assert_eq!(Codec::from_encoding(&codec.encoding().to_lowercase()), Some(codec));
        }
        assert_eq!(Codec::from_encoding("theora"), None);
    }

    #[test]
    fn names_for_browsers_have_what_was_announced() {
        for (codec, fmtp, name) in [
            (Codec::H264, Some("packetization-mode=1; profile-level-id=42c01f"), "avc1.42c01f"),
            (Codec::H264, None, ""),
            (
                Codec::H265,
                Some("sprop-vps=QAE=;profile-id=2;tier-flag=1;level-id=93"),
                "hev1.2.4.H93.B0",
            ),
            (Codec::H265, None, "hev1.1.6.L153.B0"),
            (Codec::H265, Some("profile-id=255"), "hev1.255.6.L153.B0"),
            (Codec::Vp8, None, "vp8"),
            (Codec::Vp9, Some("profile-id=2"), "vp09.02.51.10"),
            (Codec::Av1, Some("profile=0;level-idx=5;tier=0"), "av01.0.05M.08"),
            (Codec::Opus, None, "opus"),
            (Codec::Jpeg, None, ""),
        ] {
            assert_eq!(codec.browser_name(fmtp), name);
        }
    }

    #[test]
    fn stills_and_sound_need_no_look() {
        assert_eq!(Codec::Jpeg.picture(&[]), Picture::STILL);
        assert_eq!(Codec::L16.picture(&[]), Picture::AUDIO);
    }
}
