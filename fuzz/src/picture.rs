//! Access units: any bytes are a picture or none.

use selvedge_media::picture::{Codec, h264, jpeg, mpeg, reader};

pub fn fuzz(unit: &[u8]) {
    let mut order = mpeg::DisplayOrder::default();
    if let Some(headers) = mpeg::headers(unit) {
        assert!(headers.temporal_reference < 1024 && (headers.kind as u8) < 3);
        assert_eq!(mpeg::picture(unit), Some(headers.picture()));
        assert!(order.lag(&headers) <= 1024 && order.lag(&headers) <= 1024);
        for (first, last) in [(true, false), (false, true)] {
            let written = headers.rtp_header(unit, first, last);
            // MBZ and T, RFC 2250 section 3.4.
            assert_eq!(written[0] & 0xfc, 0);
            assert_eq!(written[2] & 0xc0, 0);
        }
    }
    if let Some(picture) = h264::picture(unit) {
        assert!((picture.kind as u8) < 3);
    }
    for codec in [Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1] {
        let mut reader = reader(codec);
        // The sets in it are known when it is read a second time; parts of it are further units.
        let units = [unit, unit].into_iter().chain(unit.chunks(48));
        for (number, unit) in (0_usize..).zip(units) {
            let refs = reader.push(unit).and_then(|picture| picture.refs).unwrap_or_default();
            assert!(!refs.is_known() || refs.distances().all(|back| usize::from(back) <= number));
        }
    }
    let delimiter = h264::delimiter_len(unit);
    let behind = &unit[delimiter..];
    assert!(delimiter == 0 || behind.starts_with(&[0, 0, 1]) || behind.starts_with(&[0, 0, 0, 1]));
    if let Some(id) = h264::profile_level_id(unit) {
        assert!(id.len() == 6 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
    }
    match jpeg::check(unit) {
        Ok(size) => {
            let sides = 1..=jpeg::SIDE_MAX;
            assert!(sides.contains(&size.width) && sides.contains(&size.height));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    for codec in Codec::ALL {
        let picture = codec.picture(unit);
        assert!(picture.referenced || !picture.closes || codec == Codec::H264);
    }
}
