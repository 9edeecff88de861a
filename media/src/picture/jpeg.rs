//! JPEG (ITU-T Rec. T.81, Annex B): whether an image can travel as RTP JPEG (RFC 2435), which
//! leaves out most headers and so carries only one shape of baseline image.

use super::huffman;

/// Width and height in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Pixels across.
    pub width: u16,
    /// Pixels down.
    pub height: u16,
}

/// The largest side that RFC 2435 can express: 255 blocks of 8 pixels.
pub const SIDE_MAX: u16 = 2040;

/// Why an image can't travel as RTP JPEG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JpegError {
    /// No image, or one that breaks off before its data.
    #[error("not a JPEG image, or one without its headers")]
    Malformed,
    /// Not baseline.
    #[error(
        "JPEG process {0:#04x} is not baseline (progressive or lossless images do not fit RTP)"
    )]
    Process(u8),
    /// Too large.
    #[error("{0}x{1} pixels are more than the 2040x2040 that RTP JPEG can tell")]
    TooLarge(u16, u16),
    /// Not three components of 4:2:0 or 4:2:2.
    #[error("colours are not sampled 4:2:0 or 4:2:2")]
    Sampling,
    /// Optimised Huffman tables, which RTP JPEG has no room for.
    #[error("its Huffman tables are not the standard ones that RTP JPEG assumes")]
    Huffman,
}

/// Reads the headers up to the image data.
///
/// # Errors
/// [`JpegError`] if RTP can't carry the image.
pub fn check(image: &[u8]) -> Result<Size, JpegError> {
    let mut rest = image.strip_prefix(&[0xff, 0xd8]).ok_or(JpegError::Malformed)?;
    let mut size = None;
    loop {
        let (marker, body, after) = segment(rest).ok_or(JpegError::Malformed)?;
        match marker {
            0xc0 => size = Some(frame(body)?),
            0xc4 => tables(body)?,
            0xc8 | 0xcc => {}
            0xc1..=0xcf => return Err(JpegError::Process(marker)),
            0xda => return size.ok_or(JpegError::Malformed),
            _ => {}
        }
        rest = after;
    }
}

/// Marker and body of the segment at the front, and what follows it.
fn segment(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let skip = bytes.iter().take_while(|&&b| b == 0xff).count();
    let marker = *bytes.get(skip).filter(|_| skip > 0)?;
    let rest = &bytes[skip + 1..];
    let len = usize::from(u16::from_be_bytes([*rest.first()?, *rest.get(1)?]));
    let (body, after) = rest.split_at_checked(len)?;
    Some((marker, body.get(2..)?, after))
}

fn frame(body: &[u8]) -> Result<Size, JpegError> {
    let [8, h1, h0, w1, w0, components @ ..] = body else { return Err(JpegError::Malformed) };
    let (width, height) = (u16::from_be_bytes([*w1, *w0]), u16::from_be_bytes([*h1, *h0]));
    if width == 0 || height == 0 {
        return Err(JpegError::Malformed);
    }
    if width > SIDE_MAX || height > SIDE_MAX {
        return Err(JpegError::TooLarge(width, height));
    }
    match components {
        [3, _, 0x21 | 0x22, _, _, 0x11, q1, _, 0x11, q2, ..] if q1 == q2 => {
            Ok(Size { width, height })
        }
        _ => Err(JpegError::Sampling),
    }
}

fn tables(mut body: &[u8]) -> Result<(), JpegError> {
    while let Some((&id, rest)) = body.split_first() {
        let standard = huffman::standard(id).ok_or(JpegError::Huffman)?;
        body = rest.strip_prefix(standard).ok_or(JpegError::Huffman)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segment_of(marker: u8, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len() + 2).unwrap().to_be_bytes();
        [&[0xff, marker][..], &len, body].concat()
    }

    fn image(process: u8, size: (u16, u16), luma: u8, dht: &[u8]) -> Vec<u8> {
        let [h1, h0] = size.1.to_be_bytes();
        let [w1, w0] = size.0.to_be_bytes();
        let frame = [8, h1, h0, w1, w0, 3, 1, luma, 0, 2, 0x11, 1, 3, 0x11, 1];
        let parts = [
            vec![0xff, 0xd8],
            segment_of(0xe0, b"JFIF\0"),
            segment_of(process, &frame),
            segment_of(0xc4, dht),
            segment_of(0xda, &[3]),
            vec![1, 2, 3, 0xff, 0xd9],
        ];
        parts.concat()
    }

    fn standard(id: u8) -> Vec<u8> {
        [&[id], huffman::standard(id).unwrap()].concat()
    }

    #[test]
    fn what_fits_is_measured() {
        let tables = [standard(0x00), standard(0x10), standard(0x01), standard(0x11)].concat();
        let size = check(&image(0xc0, (384, 216), 0x22, &tables));
        assert_eq!(size, Ok(Size { width: 384, height: 216 }));
        assert!(check(&image(0xc0, (2040, 8), 0x21, &[])).is_ok());
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let mut optimised = standard(0x10);
        optimised[20] ^= 1;
        let refuse = |bytes: &[u8]| check(bytes).unwrap_err();
        assert_eq!(refuse(&image(0xc2, (8, 8), 0x22, &[])), JpegError::Process(0xc2));
        assert_eq!(refuse(&image(0xc0, (2048, 8), 0x22, &[])), JpegError::TooLarge(2048, 8));
        assert_eq!(refuse(&image(0xc0, (8, 8), 0x12, &[])), JpegError::Sampling);
        assert_eq!(refuse(&image(0xc0, (8, 8), 0x22, &optimised)), JpegError::Huffman);
        assert_eq!(refuse(&image(0xc0, (0, 8), 0x22, &[])), JpegError::Malformed);
        assert_eq!(refuse(b"GIF89a"), JpegError::Malformed);
    }

    #[test]
    fn every_cut_before_the_data_is_malformed() {
        let whole = image(0xc0, (8, 8), 0x22, &standard(0x00));
        let headers = whole.len() - 5;
        for len in 0..headers {
            assert_eq!(check(&whole[..len]), Err(JpegError::Malformed), "{len}");
        }
        assert!(check(&whole[..headers]).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = check(&[&[0xff, 0xd8, 0xff, 0xc0], &bytes[..]].concat());
            let _ = check(&[&[0xff, 0xd8, 0xff, 0xc4], &bytes[..]].concat());
        }
    }
}
